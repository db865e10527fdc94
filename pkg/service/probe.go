package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/pause"
)

const (
	// probeEvery is how often each store is written to, and probeTimeout bounds the wait for its acknowledgement: a store that
	// takes nothing is known within the sum of both.
	probeEvery   = 2 * time.Second
	probeTimeout = 2 * time.Second

	// probeBytes is the size of a record: more than a block of the disk, of which the last one of a file has room when the disk is full.
	probeBytes = 5 << 10

	// probeTTL is for how long the record of an instance that has ended stays.
	probeTTL = time.Minute
)

var errUnproved = errors.New("a write was not tried yet")

// probe writes a record to each store of a service every 2 seconds, all at the same time: one round trip each. The record has
// 5 KiB and the mark of a deleted key, so that clients of a bucket do not see it. Each instance has one key in each store, and
// replaces only its own record: an acknowledgement proves that the leader of the store can write.
type probe struct {
	js       jetstream.JetStream
	subjects map[string]string // by the names of the stores

	mu       sync.Mutex // guards outcomes
	outcomes map[string]outcome
}

// outcome is that of the last write to a store.
type outcome struct {
	err      error
	revision uint64 // of the record, 0 for none
	since    time.Time
}

// newProbe writes to each bucket and object store among the streams, for 2 seconds at most. The other streams have no subject for
// a record that is nobody's message.
func newProbe(ctx context.Context, js jetstream.JetStream, streams []string) *probe {
	id := nuid.Next()
	p := &probe{js: js, subjects: map[string]string{}, outcomes: map[string]outcome{}}
	for _, name := range streams {
		if subject := probeSubject(name, id); subject != "" {
			p.subjects[name], p.outcomes[name] = subject, outcome{err: errUnproved}
		}
	}
	p.sample(ctx)
	return p
}

// probeSubject returns where an instance writes to a store, or "" for a stream that is none.
func probeSubject(name, id string) string {
	if bucket, ok := strings.CutPrefix(name, "KV_"); ok {
		return "$KV." + bucket + ".ready." + id
	} else if bucket, ok := strings.CutPrefix(name, "OBJ_"); ok {
		return "$O." + bucket + ".C.ready." + id // a part of no object
	}
	return ""
}

// ProbeStore writes once to a bucket or object store what each service writes to prove that the leader of it can write: a record
// of 5 KiB that no client of the bucket sees, and that ends after a minute. The bucket's subjects begin with prefix in the account of
// the connection. It does nothing to other streams.
func ProbeStore(ctx context.Context, js jetstream.JetStream, prefix, name string) error {
	subject := probeSubject(name, nuid.Next())
	if subject == "" {
		return nil
	}
	_, err := (&probe{js: js}).write(ctx, name, prefix+subject, 0)
	return err
}

// run samples until ctx ends.
func (p *probe) run(ctx context.Context) error {
	pause.Every(ctx, probeEvery, p.sample)
	return nil
}

func (p *probe) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var writing sync.WaitGroup
	for name, subject := range p.subjects {
		writing.Go(func() { p.try(ctx, name, subject) })
	}
	writing.Wait()
}

// try writes to a store, and again when the record turned out to be another: it expired, or an earlier write whose answer was
// lost has replaced it.
func (p *probe) try(ctx context.Context, name, subject string) {
	p.mu.Lock()
	now := p.outcomes[name]
	p.mu.Unlock()
	revision, err := p.write(ctx, name, subject, now.revision)
	if there, ok := refusedBy(err); ok {
		revision, err = p.write(ctx, name, subject, there)
	}
	if err == nil {
		now = outcome{revision: revision}
	} else if now.err = err; now.since.IsZero() {
		now.since = time.Now()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outcomes[name] = now
}

// write replaces the record at a revision, 0 for none, and returns the new revision.
func (p *probe) write(ctx context.Context, name, subject string, revision uint64) (uint64, error) {
	msg := nats.NewMsg(subject)
	msg.Data = make([]byte, probeBytes)
	msg.Header.Set("KV-Operation", "DEL")
	if strings.HasPrefix(name, "OBJ_") {
		msg.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject) // it keeps all messages of a subject
	}
	ack, err := p.js.PublishMsg(ctx, msg, jetstream.WithExpectStream(name), jetstream.WithExpectLastSequencePerSubject(revision),
		jetstream.WithMsgTTL(probeTTL))
	if err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	return ack.Sequence, nil
}

// refusedBy returns the revision of the record for which a write was refused, 0 when there is none.
func refusedBy(err error) (revision uint64, ok bool) {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok || api.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence {
		return 0, false
	}
	_, number, _ := strings.Cut(api.Description, ": ")
	revision, err = strconv.ParseUint(number, 10, 64)
	return revision, err == nil
}

// ready is the check of readiness: an error that names each store that takes nothing, why, and for how long.
func (p *probe) ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	failed := make([]string, 0, len(p.outcomes))
	for _, name := range slices.Sorted(maps.Keys(p.outcomes)) {
		o := p.outcomes[name]
		switch {
		case o.err == nil:
			continue
		case errors.Is(o.err, context.DeadlineExceeded):
			o.err = errors.New("a write was not acknowledged: is the server's disk full? its /healthz and its log say")
		case errors.Is(o.err, jetstream.ErrNoStreamResponse), errors.Is(o.err, nats.ErrNoResponders):
			o.err = errors.New("nobody takes a write: the stream is missing, or has no leader")
		}
		failed = append(failed, fmt.Sprintf("%s for %s: %v", name, time.Since(cmp.Or(o.since, time.Now())).Truncate(time.Second), o.err))
	}
	if len(failed) > 0 {
		return errors.New(strings.Join(failed, "; "))
	}
	return nil
}
