package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/directget"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

// listing is what one call knows of a stream.
type listing struct {
	client *Client
	dead   bool // it is that of the dead letters
	get    *directget.Getter
	info   jetstream.StreamInfo
	known  map[key.Kind]map[string]uint64 // subjects of messages that no consumer takes
	takers *takers
}

// openListing looks at a stream and its consumers. Two round trips.
func (c *Client) openListing(ctx context.Context, dead bool) (*listing, error) {
	l := &listing{client: c, dead: dead, known: map[key.Kind]map[string]uint64{}, takers: &takers{}}
	stream := c.cfg.Stream
	if dead {
		stream = c.cfg.DeadStream
	}
	err := c.api.Ask(ctx, "STREAM.INFO."+stream, nil, &l.info)
	switch {
	case jsapi.IsNoStream(err):
		return nil, &MissingError{Asset: "stream " + stream, Cause: err}
	case err != nil:
		return nil, fmt.Errorf("worker: look up stream %s: %w", stream, err)
	case !l.info.Config.AllowDirect:
		return nil, &DriftError{Asset: "stream " + stream, Differences: []string{"allow_direct is false, must be true to list its jobs"}}
	}
	if !dead {
		if l.takers, err = c.listTakers(ctx); err != nil {
			return nil, err
		}
	}
	if l.get, err = directget.New(c.nc, c.api.Prefix); err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	return l, nil
}

func (l *listing) close() { _ = l.get.Close() } //nolint:errcheck // the connection is closed then

// read returns the job of a message, and whether it is one. What workers recorded of it is still missing.
func (l *listing) read(m jsapi.Message) (j StoredJob, ok bool) {
	if l.dead {
		return l.readLetter(m)
	}
	j = StoredJob{Header: ownHeaders(m.Header), Payload: m.Data, Status: Status{
		ID: jobID(m.Header, l.client.cfg.Stream, m.Sequence), Sequence: m.Sequence, Since: m.Time, State: StateQueued,
		Stream: l.client.cfg.Stream, Subject: m.Subject,
	}}
	switch key.KindOf(m.Subject) {
	case key.Later:
		at, once := strings.CutPrefix(m.Header.Get(headerSchedule), "@at ")
		j.State, j.Subject = StateScheduled, l.client.targetOf(m.Header)
		j.Due, _ = time.Parse(time.RFC3339, at) //nolint:errcheck // zero then
		ok = once
	case key.Done:
		j.State, j.Subject = State(cmp.Or(m.Header.Get(HeaderState), string(StateDone))), key.JobOf(m.Subject)
		if j.Payload = nil; len(m.Data) > 0 {
			j.Result = m.Data
		}
		ok = j.State != StateRunning && j.State != StateFree // a mark of a job that is there as well; nothing
	case key.Job:
		ok = true
	}
	taker, _ := l.takers.tree.Find(j.Subject)
	if taker == nil {
		return j, ok
	}
	j.Consumer = taker.name
	switch {
	case j.State != StateQueued || m.Sequence > taker.delivered:
	case l.info.Config.Retention == jetstream.LimitsPolicy && m.Sequence <= taker.floor:
		j.State = StateDone
	default:
		j.State = StateDelivered
	}
	return j, ok
}

// readLetter returns the job of a dead letter.
func (l *listing) readLetter(m jsapi.Message) (StoredJob, bool) {
	stream, to, _ := strings.Cut(strings.TrimPrefix(m.Subject, l.client.cfg.DeadSubject+"."), ".")
	letter, err := ParseDeadLetter(m.Data)
	if !l.client.has(stream) || err != nil || strings.HasPrefix(to, "$") {
		return StoredJob{}, false // another stream's, an advisory, or a part or record of a letter
	}
	return StoredJob{
		Consumer: letter.Consumer, Header: letter.Header, Letter: &letter, Payload: letter.Payload,
		Status: Status{ID: letter.ID, Sequence: m.Sequence, Since: m.Time, State: StateDead, Stream: letter.Stream, Subject: to},
	}, true
}

// complete adds what workers recorded of delivered jobs. One round trip for each 512.
func (l *listing) complete(ctx context.Context, jobs []StoredJob) error {
	var subjects []string
	at := make(map[string]*StoredJob)
	for i := range jobs {
		if j := &jobs[i]; j.State == StateDelivered {
			to := ProgressSubject(l.client.cfg.Bucket, l.client.cfg.Stream, j.Sequence)
			subjects, at[to] = append(subjects, to), j
		}
	}
	if len(subjects) == 0 {
		return nil
	}
	bucket := "KV_" + l.client.cfg.Bucket
	records, err := l.get.Last(ctx, bucket, subjects)
	if err != nil {
		return fmt.Errorf("worker: read what workers recorded in %s: %w", bucket, err)
	}
	for _, m := range records {
		var p Progress
		j := at[m.Subject]
		if j == nil || json.Unmarshal(m.Data, &p) != nil || p.ID != j.ID { // of a stream that was made again
			continue
		}
		j.Progress, j.State = &p, StateRetrying
		if p.State == StateRunning {
			j.State = StateRunning
		}
	}
	return nil
}

// ownHeaders returns the headers of a message without those that the server adds to its answer.
func ownHeaders(header nats.Header) nats.Header {
	for _, name := range []string{
		"Nats-Last-Sequence", "Nats-Num-Pending", "Nats-Sequence", "Nats-Stream", "Nats-Subject", "Nats-Time-Stamp", "Nats-UpTo-Sequence",
	} {
		delete(header, name)
	}
	return header
}
