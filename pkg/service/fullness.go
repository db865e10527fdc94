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

	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/pause"
)

const (
	// fullnessEvery is how often each stream is asked about, and fullnessTimeout bounds a question.
	fullnessEvery   = 15 * time.Second
	fullnessTimeout = 5 * time.Second

	// fullnessFresh is for how long an answer counts: two of three may be lost.
	fullnessFresh = 3 * fullnessEvery

	// replicaSilent is for how long a node that keeps up may not have answered the leader, which asks every second. The server itself
	// takes it for behind after 10 seconds.
	replicaSilent = 5 * time.Second

	// strandedAgain is how soon a stream is looked at once more in which a message seems to be stranded.
	strandedAgain = 2 * time.Second

	// fullnessNoted and fullnessRefused are the parts of its bound from which a stream that refuses messages when it is full is
	// noted, and from which the service is not ready.
	fullnessNoted   = 0.80
	fullnessRefused = 0.95

	scope = "github.com/expediter-io/expediter/pkg/service" // names this package to OpenTelemetry
)

// fullness samples how full the streams of a service are, and which jobs wait in them. It asks every 15 seconds, for all streams at the
// same time: one request for each stream, some 100 µs of the server's time, one more for one of which workers take jobs, and a third
// while jobs wait there. Readiness needs no limits of the account: a server reserves the bounds of all streams in them, so that a
// stream is full first.
type fullness struct {
	js    jetstream.JetStream
	names []string
	stop  func() error // ends the metrics, nil for none
	works bool         // workers take jobs; it does not change while run runs

	mu      sync.Mutex // guards the answers
	account stored
	streams map[string]filled
	worked  map[string]worked // those of which workers take jobs
}

// filled is the last answer about a stream.
type filled struct {
	at              time.Time // when it was asked for
	held            uint64    // messages
	bytes, messages float64   // the parts of the bounds, 0 where there is none
	missing         bool
	refuses         bool     // what is full refuses messages; the others drop the oldest
	without         []string // nodes that do not keep up with the stream, and why
}

// newFullness samples once, for 5 seconds at most.
func newFullness(ctx context.Context, js jetstream.JetStream, names []string, exports *export.Exports) (*fullness, error) {
	f := &fullness{js: js, names: slices.Sorted(slices.Values(names)), streams: map[string]filled{}, worked: map[string]worked{}}
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
	if f.works { // which was not known at the first sample
		f.sample(ctx)
	}
	pause.Every(ctx, fullnessEvery, f.sample)
	return nil
}

func (f *fullness) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, fullnessTimeout)
	defer cancel()
	var asking sync.WaitGroup
	for _, name := range f.names {
		asking.Go(func() {
			f.ask(ctx, name)
			if f.suspects(name) && pause.For(ctx, strandedAgain) {
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
		now.without, now.held = without(info.Cluster), info.State.Msgs
		f.askOldest(ctx, jobs, info)
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
		case peer.Active > replicaSilent:
			nodes = append(nodes, fmt.Sprintf("%s was silent for %s", peer.Name, peer.Active.Truncate(time.Second)))
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
