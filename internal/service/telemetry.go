package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/expediter-io/expediter/internal/consumer"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/meters"
	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/internal/natsotel/export"
)

// show exports a gauge with a value for each name, which label has, until the service stops. read is called when the metrics are collected.
func (s *Service) show(name, unit, label, description string, read func() map[string]int64) error {
	if s.Config.Exports == nil {
		return nil
	}
	m := meters.New(s.Config.Exports.Meters.Meter(scope))
	gauge := m.Gauge(name, unit, description)
	stop, err := m.Observe(func(_ context.Context, o metric.Observer) error {
		for of, value := range read() {
			o.ObserveInt64(gauge, value, metric.WithAttributes(attribute.String(label, of)))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", s.spec.Name, err)
	}
	s.unobserve = append(s.unobserve, stop)
	return nil
}

// passed returns 1 for each check of readiness that is passed, and 0 for the others.
func (s *Service) passed() map[string]int64 {
	passed := map[string]int64{}
	for name, err := range s.Ready() {
		passed[name] = 0
		if _, noted := errors.AsType[Note](err); noted || err == nil {
			passed[name] = 1
		}
	}
	return passed
}

// exportTimeout bounds the export of the last spans when a service stops.
const exportTimeout = 5 * time.Second

// telemetry connects the parts of a service with the exporters, or with nothing when exports is nil.
func telemetry(name string, exports *export.Exports) (*natsotel.Telemetry, error) {
	to := natsotel.Config{MeterProvider: noopmetric.NewMeterProvider(), TracerProvider: nooptrace.NewTracerProvider()}
	if exports != nil {
		to = natsotel.Config{MeterProvider: exports.Meters, Propagator: exports.Propagator, TracerProvider: exports.Tracers}
	}
	t, err := natsotel.New(to)
	if err != nil {
		return nil, fmt.Errorf("%s: telemetry: %w", name, err)
	}
	return t, nil
}

// StopExports exports the remaining data, within 5 seconds, even if ctx has ended.
func StopExports(ctx context.Context, exports *export.Exports) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exportTimeout)
	defer cancel()
	return exports.Stop(ctx)
}

// quiet are the paths of probes, which would flood the traces.
var quiet = map[string]bool{"/health": true, "/livez": true, "/metrics": true, "/readyz": true, "/version": true}

// The states of jobs in the metrics, in addition to consumer.Stranded and consumer.Aside.
const (
	jobsWaiting   = "queued"    // jobs that no worker has
	jobsDelivered = "delivered" // jobs that a worker has and that are not done: they run, or wait for their next attempt
)

// stored is the last answer about the account.
type stored struct {
	at          time.Time
	used, limit uint64
}

// work notes that workers take jobs of a stream.
func (f *fullness) work(stream string) { f.works, f.worked[stream] = true, consumer.Count{} }

// askConsumers asks for the consumers of a stream of which workers take jobs. One round trip; nil for no answer. It leaves time for the
// question about the stream, on which readiness depends.
func (f *fullness) askConsumers(ctx context.Context, name string) *consumer.Count {
	f.mu.Lock()
	was, ok := f.worked[name]
	f.mu.Unlock()
	if !ok {
		return nil
	}
	return was.Ask(ctx, jsapi.New(f.js, fullnessTimeout/2), name)
}

// askOldest calls [consumer.Count.Complete] for the answer about the consumers.
func (f *fullness) askOldest(ctx context.Context, now *consumer.Count, info *jetstream.StreamInfo) {
	if now == nil || !now.Complete(ctx, jsapi.New(f.js, fullnessTimeout), info) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.worked[info.Config.Name] = *now
}

// asksAgain reports whether the last answer about a stream may soon be out of date: messages without a consumer became more, so they are
// stranded or were being removed; or workers take jobs of the stream and it has no consumer, as while a service starts.
func (f *fullness) asksAgain(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	w, works := f.worked[name]
	return works && (len(w.Consumers) == 0 || w.AsideName == consumer.Stranded && w.Aside[1] > w.Aside[0])
}

// askAccount asks for the used part of the account's storage. One round trip.
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

// export exports the answers as metrics until stop is called. Old answers are left out.
func (f *fullness) export(meter metric.Meter) (stop func() error, err error) {
	m := meters.New(meter)
	full := m.Float("stream.fullness", "1", "How much of its bound a stream uses, absent while the server does not answer.")
	age := m.Float("stream.jobs.age", "s", "Since when the oldest job waits that no worker was given, 0 when none does.")
	messages := m.Gauge("stream.messages", "{message}", "Messages of a stream or a bucket.")
	away := m.Gauge("stream.replicas.away", "{replica}", "Replicas of a stream on nodes that are away or behind.")
	jobs := m.Gauge("stream.jobs", "{job}", "Jobs in a stream, by state, and by consumer where one has them.")
	used := m.Gauge("jetstream.storage.used", "By", "Storage that the streams of the account use.")
	limit := m.Gauge("jetstream.storage.limit", "By", "Storage that the streams of the account may use, absent without a limit.")
	return m.Observe(func(_ context.Context, o metric.Observer) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		for name, s := range f.streams {
			stream := attribute.String("stream", name)
			if s.missing || !fresh(s.at) {
				continue
			}
			o.ObserveInt64(messages, int64(s.held), metric.WithAttributes(stream))
			o.ObserveInt64(away, int64(len(s.without)), metric.WithAttributes(stream))
			o.ObserveFloat64(full, s.bytes, metric.WithAttributes(stream, attribute.String("bound", "bytes")))
			if s.messages > 0 {
				o.ObserveFloat64(full, s.messages, metric.WithAttributes(stream, attribute.String("bound", "messages")))
			}
		}
		for name, w := range f.worked {
			observe(w, func(state, consumer string, n int64) {
				labels := []attribute.KeyValue{attribute.String("stream", name), attribute.String("state", state)}
				if consumer != "" {
					labels = append(labels, attribute.String("consumer", consumer))
				}
				o.ObserveInt64(jobs, n, metric.WithAttributes(labels...))
			})
			if fresh(w.At) {
				o.ObserveFloat64(age, w.Age().Seconds(), metric.WithAttributes(attribute.String("stream", name)))
			}
		}
		if fresh(f.account.at) {
			o.ObserveInt64(used, int64(f.account.used))
			if f.account.limit > 0 {
				o.ObserveInt64(limit, int64(f.account.limit))
			}
		}
		return nil
	})
}

// fresh reports whether an answer is young enough to count.
func fresh(at time.Time) bool { return time.Since(at) <= fullnessFresh }

// observe calls tell with the numbers of jobs, by state and consumer, "" for no consumer.
func observe(w consumer.Count, tell func(state, consumer string, n int64)) {
	if fresh(w.At) {
		for id, c := range w.Consumers {
			tell(jobsWaiting, id.Name, int64(c.Queued))
			tell(jobsDelivered, id.Name, int64(c.Delivered))
		}
	}
	if fresh(w.AsideAt) {
		tell(w.AsideName, "", int64(w.Left()))
	}
}
