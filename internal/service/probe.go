package service

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/consumer"
	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

const (
	// probeEvery is the time between two writes to a store, and probeTimeout bounds the wait for an acknowledgement. A store that cannot
	// write is known within the sum of both.
	probeEvery   = 2 * time.Second
	probeTimeout = 2 * time.Second

	// probeBytes is the size of a record: more than a block of the disk, because the last block of a file may have room when the disk is
	// full.
	probeBytes = 5 << 10

	// probeTTL is the time for which the record of an instance stays after the instance has ended.
	probeTTL = time.Minute
)

// probe writes a record to each store of a service every 2 seconds, all at the same time: one round trip each. The record has
// 5 KiB and the mark of a deleted key, so that clients of a bucket do not see it. Each instance has one key in each store, and
// replaces only its own record: an acknowledgement proves that the leader of the store can write.
type probe struct {
	js       jetstream.JetStream
	subjects map[string]string // by the names of the stores

	mu       sync.Mutex // guards outcomes
	outcomes map[string]outcome
}

// outcome is the outcome of the last write to a store.
type outcome struct {
	err      error
	revision uint64 // of the record, 0 for none
	since    time.Time
}

// newProbe writes to each bucket and object store among the streams, for 2 seconds at most. Other streams have no subject for a record
// that their consumers would ignore.
func newProbe(ctx context.Context, js jetstream.JetStream, streams []string) *probe {
	id := nuid.Next()
	p := &probe{js: js, subjects: map[string]string{}, outcomes: map[string]outcome{}}
	for _, name := range streams {
		if subject := probeSubject(name, id); subject != "" {
			p.subjects[name], p.outcomes[name] = subject, outcome{err: errors.New("a write was not tried yet")}
		}
	}
	p.sample(ctx)
	return p
}

// probeSubject returns the subject of an instance's record in a store, or "" for a stream that is not a store.
func probeSubject(name, id string) string {
	if bucket, ok := strings.CutPrefix(name, "KV_"); ok {
		return "$KV." + bucket + ".ready." + id
	} else if bucket, ok := strings.CutPrefix(name, "OBJ_"); ok {
		return "$O." + bucket + ".C.ready." + id // a part of no object
	}
	return ""
}

// ProbeStore writes once to a bucket or object store, as each service does to prove that its leader can write. The record has 5 KiB, is
// not seen by clients of the bucket, and ends after a minute. The bucket's subjects begin with prefix in the account of the connection. It
// does nothing to other streams.
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
	retry.Every(ctx, probeEvery, p.sample)
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

// try writes to a store, and writes again when the record was not at the expected revision: it expired, or an earlier write whose answer
// was lost has replaced it.
func (p *probe) try(ctx context.Context, name, subject string) {
	p.mu.Lock()
	now := p.outcomes[name]
	p.mu.Unlock()
	revision, err := p.write(ctx, name, subject, now.revision)
	if there, ok := kvrecord.RefusedAt(err); ok {
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
		msg.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject) // an object store keeps all messages of a subject
	}
	ack, err := p.js.PublishMsg(ctx, msg, jetstream.WithExpectStream(name), jetstream.WithExpectLastSequencePerSubject(revision),
		jetstream.WithMsgTTL(probeTTL))
	if err != nil {
		return 0, fmt.Errorf("write: %w", err)
	}
	return ack.Sequence, nil
}

// ready is the check of readiness. Its error names each store that cannot write, the reason, and the time since when.
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

const (
	// fullnessEvery is the time between two questions about a stream, and fullnessTimeout bounds a question.
	fullnessEvery   = 15 * time.Second
	fullnessTimeout = 5 * time.Second

	// fullnessFresh is the time for which an answer counts: two of three may be lost.
	fullnessFresh = 3 * fullnessEvery

	// again is the time until the next question after an answer that may soon be out of date.
	again = 2 * time.Second

	// fullnessNoted is the used part of its bound from which a stream that refuses messages when full is noted, and fullnessRefused the part
	// from which the service is not ready.
	fullnessNoted   = 0.80
	fullnessRefused = 0.95

	scope = "github.com/expediter-io/expediter/internal/service" // names this package to OpenTelemetry
)

// fullness samples how full the streams of a service are, and which jobs wait in them. It asks every 15 seconds, for all streams at the
// same time: one request for each stream, some 100 µs of the server's time, one more for a stream of workers, and a third while jobs wait
// there. Readiness needs no limits of the account: a server reserves the bounds of all streams in them, so that a stream is full first.
type fullness struct {
	js    jetstream.JetStream
	names []string     // sorted; guarded by mu
	stop  func() error // ends the metrics, nil for none
	works bool         // the service has workers; it does not change while run runs

	mu      sync.Mutex // guards the answers
	account stored
	streams map[string]filled
	worked  map[string]consumer.Count // the streams of which workers take jobs
}

// filled is the last answer about a stream.
type filled struct {
	at              time.Time // when it was asked for
	held            uint64    // messages
	bytes, messages float64   // the used parts of the bounds, 0 where there is no bound
	missing         bool
	refuses         bool     // a full stream refuses messages; the others drop the oldest
	without         []string // nodes that do not keep up with the stream, with the reasons
}

// newFullness returns a fullness that has sampled once, for 5 seconds at most.
func newFullness(ctx context.Context, js jetstream.JetStream, names []string, exports *export.Exports) (*fullness, error) {
	f := &fullness{js: js, names: slices.Sorted(slices.Values(names)), streams: map[string]filled{}, worked: map[string]consumer.Count{}}
	now := time.Now()
	for _, name := range names {
		f.streams[name] = filled{at: now}
	}
	f.sample(ctx)
	if exports == nil {
		return f, nil
	}
	var err error
	f.stop, err = f.export(exports.Meters.Meter(scope))
	return f, err
}

// run samples until ctx ends.
func (f *fullness) run(ctx context.Context) error {
	if f.works { // the workers were not known at the first sample
		f.sample(ctx)
	}
	retry.Every(ctx, fullnessEvery, f.sample)
	return nil
}

func (f *fullness) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, fullnessTimeout)
	defer cancel()
	var asking sync.WaitGroup
	f.mu.Lock()
	names := f.names // added names go to a copy
	f.mu.Unlock()
	for _, name := range names {
		asking.Go(func() {
			f.ask(ctx, name)
			if f.asksAgain(name) && retry.Sleep(ctx, again) {
				f.ask(ctx, name)
			}
		})
	}
	if f.works {
		asking.Go(func() { f.askAccount(ctx) })
	}
	asking.Wait()
}

// ask keeps the former answer when there is no new one.
func (f *fullness) ask(ctx context.Context, name string) {
	jobs := f.askConsumers(ctx, name)
	now := filled{at: time.Now()}
	stream, err := f.js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		now.missing = true
	case err != nil:
		return
	default:
		info := stream.CachedInfo()
		now.refuses = info.Config.Discard == jetstream.DiscardNew
		now.bytes = part(info.State.Bytes, info.Config.MaxBytes)
		now.messages = part(info.State.Msgs, info.Config.MaxMsgs)
		now.without, now.held = consumer.Without(info.Cluster, consumer.ReplicaSilent), info.State.Msgs
		f.askOldest(ctx, jobs, info)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams[name] = now
}

// part returns the used part of a bound, 0 where there is no bound.
func part(used uint64, bound int64) float64 {
	if bound <= 0 {
		return 0
	}
	return float64(used) / float64(bound)
}

// ready is the check of readiness: an error when a stream is missing, or is about to refuse messages. Nodes that are missing are
// noted: the streams go on without them.
func (f *fullness) ready() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var failed, noted []string
	for _, name := range f.names {
		s := f.streams[name]
		used := max(s.bytes, s.messages)
		full := fmt.Sprintf("%s is %.0f %% full, and refuses messages at 100 %%", name, 100*used)
		switch age := time.Since(s.at); {
		case age > fullnessFresh:
			noted = append(noted, fmt.Sprintf("%s: how full it is was not answered for %s", name, age.Truncate(time.Second)))
		case s.missing:
			failed = append(failed, name+" is missing")
		case s.refuses && used >= fullnessRefused:
			failed = append(failed, full)
		case s.refuses && used >= fullnessNoted:
			noted = append(noted, full)
		}
		for _, node := range s.without {
			noted = append(noted, name+": node "+node)
		}
	}
	switch {
	case len(failed) > 0:
		return errors.New(strings.Join(slices.Concat(failed, noted), "; "))
	case len(noted) > 0:
		return Note(strings.Join(noted, "; "))
	}
	return nil
}

// close ends the metrics.
func (f *fullness) close() error {
	if f == nil || f.stop == nil {
		return nil
	}
	return f.stop()
}

// AskReady returns an error unless a URL, such as that of /readyz, is answered with 200 within 5 seconds. Any certificate is accepted: a
// health check asks its own machine, and sends no secret.
func AskReady(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody) //nolint:gosec // the operator names it
	if err != nil {
		return err
	}
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13} //nolint:gosec // see above
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(r) //nolint:gosec // as above
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, text)
	}
	return err
}
