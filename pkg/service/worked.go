package service

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
)

// The states of jobs in the metrics.
const (
	jobsWaiting   = "waiting"   // that no worker was given
	jobsDelivered = "delivered" // that a worker was given, and that are not done: they run, or were put off
	jobsStranded  = "stranded"  // of a work queue, that no consumer will ever deliver
	jobsAside     = "aside"     // of a work queue with schedules, that no consumer has: also delayed jobs, and records of jobs
)

// consumerID is a consumer, which is another one when it was made anew.
type consumerID struct {
	name    string
	created time.Time
}

// worked is the last answer about a stream of which workers take jobs.
type worked struct {
	at      time.Time // when it was asked for, zero for no answer
	waiting map[consumerID]uint64
	given   map[consumerID]int // and not done

	// passed has, for each consumer, a sequence up to which no job waits.
	passed map[consumerID]uint64

	// first is the sequence from which on the oldest job waits, and stored when that was stored; both are zero when none waits.
	first  uint64
	stored time.Time

	// aside is how many messages of a work queue no consumer has, in the last two answers.
	aside     [2]uint64
	asideAt   time.Time
	asideName string

	taken uint64    // messages that consumers have
	since time.Time // before the first consumer was looked at
}

// stored is the last answer about the account.
type stored struct {
	at          time.Time
	used, limit uint64
}

// work notes that workers take jobs of a stream.
func (f *fullness) work(stream string) { f.works, f.worked[stream] = true, worked{} }

// askConsumers asks for the consumers of a stream of which workers take jobs. One round trip; nil for no answer. It leaves time to ask
// for the stream, which readiness depends on.
func (f *fullness) askConsumers(ctx context.Context, name string) *worked {
	f.mu.Lock()
	was, ok := f.worked[name]
	f.mu.Unlock()
	if !ok {
		return nil
	}
	var page struct {
		Consumers []jetstream.ConsumerInfo `json:"consumers"`
		Missing   []string                 `json:"missing"`
		Total     int                      `json:"total"`
	}
	now := was
	now.at = time.Now()
	if err := jsapi.New(f.js, fullnessTimeout/2).Ask(ctx, "CONSUMER.LIST."+name, nil, &page); err != nil {
		return nil
	}
	if len(page.Missing) > 0 || len(page.Consumers) < page.Total {
		return nil // a part would be taken for the whole
	}
	now.waiting, now.given, now.passed = map[consumerID]uint64{}, map[consumerID]int{}, map[consumerID]uint64{}
	now.taken, now.since = 0, now.at
	for i, c := range page.Consumers {
		now.taken += c.NumPending + uint64(max(c.NumAckPending, 0))
		if i == 0 || c.TimeStamp.Before(now.since) {
			now.since = c.TimeStamp
		}
		if c.Config.Durable == "" {
			continue // of a program that looks at the stream, under a name that it will not have again
		}
		id := consumerID{c.Name, c.Created}
		now.waiting[id], now.given[id] = c.NumPending, c.NumAckPending
		now.passed[id] = max(was.passed[id], c.Delivered.Stream)
	}
	return &now
}

// askOldest completes what was found of the consumers of a stream by what the stream says, and asks it for the oldest job that waits.
// One round trip when there is one. The server looks for the next message from there on, whatever its subject: to find one for the
// filter of the consumer could cost it a look at every subject.
func (f *fullness) askOldest(ctx context.Context, now *worked, info *jetstream.StreamInfo) {
	if now == nil {
		return
	}
	var first uint64
	for id, n := range now.waiting {
		switch from := now.passed[id] + 1; {
		case n == 0 && info.State.LastTime.Before(now.since):
			now.passed[id] = info.State.LastSeq
		case n > 0 && (first == 0 || from < first):
			first = from
		}
	}
	if first == 0 {
		now.first, now.stored = 0, time.Time{}
	} else if first != now.first {
		m, ok, err := jsapi.New(f.js, fullnessTimeout).Get(ctx, info.Config.Name, jsapi.Query{NextBySubject: ">", Sequence: first})
		if err != nil {
			return
		}
		if now.first, now.stored = first, m.Time; !ok {
			now.first, now.stored = 0, time.Time{} // it is done meanwhile
		}
	}
	// A message that came between the two answers would count as one that no consumer has.
	if info.Config.Retention == jetstream.WorkQueuePolicy && info.State.LastTime.Before(now.since) {
		now.asideAt, now.asideName = now.at, jobsStranded
		if info.Config.AllowMsgSchedules {
			now.asideName = jobsAside
		}
		now.aside = [2]uint64{now.aside[1], max(info.State.Msgs, now.taken) - now.taken}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.worked[info.Config.Name] = *now
}

// suspects reports whether the last answer had more messages that no consumer has than the one before: they are stranded, or were
// being removed.
func (f *fullness) suspects(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := f.worked[name]
	return w.asideName == jobsStranded && w.aside[1] > w.aside[0]
}

// askAccount asks how much of its storage the account uses. One round trip.
func (f *fullness) askAccount(ctx context.Context) {
	now := stored{at: time.Now()}
	info, err := f.js.AccountInfo(ctx)
	if err != nil {
		return
	}
	now.used, now.limit = info.Store, uint64(max(info.Limits.MaxStore, 0))
	for _, tier := range info.Tiers {
		now.limit += uint64(max(tier.Limits.MaxStore, 0))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.account = now
}

// export shows the answers as metrics until stop is called. One that is old is left out.
func (f *fullness) export(meter metric.Meter) (stop func() error, err error) {
	m := meters{Meter: meter}
	full := m.float("stream.fullness", "1", "How much of its bound a stream uses, absent while the server does not answer.")
	age := m.float("stream.jobs.age", "s", "Since when the oldest job waits that no worker was given, 0 when none does.")
	messages := m.int("stream.messages", "{message}", "Messages of a stream or a bucket.")
	away := m.int("stream.replicas.away", "{replica}", "Replicas of a stream on nodes that are away or behind.")
	jobs := m.int("stream.jobs", "{job}", "Jobs in a stream, by state, and by consumer where one has them.")
	used := m.int("jetstream.storage.used", "By", "Storage that the streams of the account use.")
	limit := m.int("jetstream.storage.limit", "By", "Storage that the streams of the account may use, absent without a limit.")
	if m.err != nil {
		return nil, m.err
	}
	registered, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		for name, s := range f.streams {
			stream := attribute.String("stream", name)
			if s.missing || !fresh(s.at) {
				continue
			}
			o.ObserveInt64(messages, int64(s.held), metric.WithAttributes(stream)) //nolint:gosec // fewer
			o.ObserveInt64(away, int64(len(s.without)), metric.WithAttributes(stream))
			o.ObserveFloat64(full, s.bytes, metric.WithAttributes(stream, attribute.String("bound", "bytes")))
			if s.messages > 0 {
				o.ObserveFloat64(full, s.messages, metric.WithAttributes(stream, attribute.String("bound", "messages")))
			}
		}
		for name, w := range f.worked {
			w.observe(func(state, consumer string, n int64) {
				labels := []attribute.KeyValue{attribute.String("stream", name), attribute.String("state", state)}
				if consumer != "" {
					labels = append(labels, attribute.String("consumer", consumer))
				}
				o.ObserveInt64(jobs, n, metric.WithAttributes(labels...))
			})
			if fresh(w.at) {
				o.ObserveFloat64(age, w.age(), metric.WithAttributes(attribute.String("stream", name)))
			}
		}
		if fresh(f.account.at) {
			o.ObserveInt64(used, int64(f.account.used)) //nolint:gosec // fewer
			if f.account.limit > 0 {
				o.ObserveInt64(limit, int64(f.account.limit)) //nolint:gosec // it was one
			}
		}
		return nil
	}, m.all...)
	if err != nil {
		return nil, fmt.Errorf("service: metrics: %w", err)
	}
	return registered.Unregister, nil
}

// fresh reports whether an answer counts.
func fresh(at time.Time) bool { return time.Since(at) <= fullnessFresh }

// age is for how long the oldest job waits, in seconds.
func (w worked) age() float64 {
	if w.stored.IsZero() {
		return 0
	}
	return max(time.Since(w.stored), 0).Seconds()
}

// observe tells how many jobs there are, by state and consumer, "" for none.
func (w worked) observe(tell func(state, consumer string, n int64)) {
	if fresh(w.at) {
		for id := range maps.Keys(w.waiting) {
			tell(jobsWaiting, id.name, int64(w.waiting[id])) //nolint:gosec // fewer
			tell(jobsDelivered, id.name, int64(w.given[id]))
		}
	}
	if fresh(w.asideAt) {
		tell(w.asideName, "", int64(min(w.aside[0], w.aside[1]))) //nolint:gosec // fewer
	}
}

// meters makes gauges, and keeps the first error.
type meters struct {
	metric.Meter

	all []metric.Observable
	err error
}

func (m *meters) float(name, unit, description string) metric.Float64Observable {
	g, err := m.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.made(g, err)
	return g
}

func (m *meters) int(name, unit, description string) metric.Int64Observable {
	g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.made(g, err)
	return g
}

func (m *meters) made(g metric.Observable, err error) {
	if m.all = append(m.all, g); err != nil && m.err == nil {
		m.err = fmt.Errorf("service: metrics: %w", err)
	}
}
