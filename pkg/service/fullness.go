package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/pause"
)

const (
	// fullnessEvery is how often each stream is asked about, and fullnessTimeout bounds a question.
	fullnessEvery   = 15 * time.Second
	fullnessTimeout = 5 * time.Second

	// fullnessFresh is for how long an answer counts: two of three may be lost.
	fullnessFresh = 3 * fullnessEvery

	// fullnessNoted and fullnessRefused are the parts of its bound from which a stream that refuses messages when it is full is
	// noted, and from which the service is not ready.
	fullnessNoted   = 0.80
	fullnessRefused = 0.95

	scope = "github.com/expediter-io/expediter/pkg/service" // names this package to OpenTelemetry
)

// fullness samples how full the streams of a service are. It asks for each stream every 15 seconds, all at the same time: one
// request each, some 100 µs of the server's time. The limits of an account need no question: a server reserves the bounds of all
// streams in them, so that a stream is full first.
type fullness struct {
	js    jetstream.JetStream
	names []string
	stop  func() error // ends the metrics, nil for none

	mu      sync.Mutex // guards streams
	streams map[string]filled
}

// filled is the last answer about a stream.
type filled struct {
	at              time.Time // when it was asked for
	bytes, messages float64   // the parts of the bounds, 0 where there is none
	missing         bool
	refuses         bool     // what is full refuses messages; the others drop the oldest
	without         []string // nodes that do not keep up with the stream, and why
}

// newFullness samples once, for 5 seconds at most.
func newFullness(ctx context.Context, js jetstream.JetStream, names []string, exports *export.Exports) (*fullness, error) {
	f := &fullness{js: js, names: slices.Sorted(slices.Values(names)), streams: map[string]filled{}}
	now := time.Now()
	for _, name := range names {
		f.streams[name] = filled{at: now}
	}
	f.sample(ctx)
	if exports == nil {
		return f, nil
	}
	meter := exports.Meters.Meter(scope)
	gauge, err := meter.Float64ObservableGauge("stream.fullness", metric.WithUnit("1"),
		metric.WithDescription("How much of its bound a stream uses, absent while the server does not answer"))
	if err != nil {
		return nil, fmt.Errorf("service: metrics: %w", err)
	}
	registered, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		f.observe(func(stream, bound string, part float64) {
			o.ObserveFloat64(gauge, part, metric.WithAttributes(attribute.String("stream", stream), attribute.String("bound", bound)))
		})
		return nil
	}, gauge)
	if err != nil {
		return nil, fmt.Errorf("service: metrics: %w", err)
	}
	f.stop = registered.Unregister
	return f, nil
}

// run samples until ctx ends.
func (f *fullness) run(ctx context.Context) error {
	pause.Every(ctx, fullnessEvery, f.sample)
	return nil
}

func (f *fullness) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, fullnessTimeout)
	defer cancel()
	var asking sync.WaitGroup
	for _, name := range f.names {
		asking.Go(func() { f.ask(ctx, name) })
	}
	asking.Wait()
}

// ask keeps the former answer when there is no new one.
func (f *fullness) ask(ctx context.Context, name string) {
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
		now.without = without(info.Cluster)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams[name] = now
}

// without returns the nodes of a cluster that have a replica of a stream and are away, or have not all of its messages, and why.
func without(cluster *jetstream.ClusterInfo) (nodes []string) {
	if cluster == nil {
		return nil
	}
	for _, peer := range cluster.Replicas {
		switch {
		case peer.Offline:
			nodes = append(nodes, peer.Name+" is offline")
		case !peer.Current:
			nodes = append(nodes, peer.Name+" is behind")
		}
	}
	slices.Sort(nodes)
	return nodes
}

// part is how much of a bound is used, 0 where there is none.
func part(used uint64, bound int64) float64 {
	if bound <= 0 {
		return 0
	}
	return float64(used) / float64(bound)
}

// observe tells the fullness of each stream of which it is known.
func (f *fullness) observe(tell func(stream, bound string, part float64)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, s := range f.streams {
		if s.missing || time.Since(s.at) > fullnessFresh {
			continue
		}
		tell(name, "bytes", s.bytes)
		if s.messages > 0 {
			tell(name, "messages", s.messages)
		}
	}
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
