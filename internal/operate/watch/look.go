package watch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/consumer"
	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

const (
	// fewSubjects are counted in each round, and more of them only in a round with details: the server lists them all.
	fewSubjects = 1000

	// patience is the time for the answer of one worker that did not answer with the others.
	patience = 300 * time.Millisecond

	// maxAsked bounds the workers that are asked one by one.
	maxAsked = 64
)

// Source is an account of which streams are looked at.
type Source struct {
	Account   string
	JetStream jetstream.JetStream
	Client    jsapi.Client

	// Workers returns the workers of the account that answer. Asked reports whether they may be asked.
	Workers func() []inspect.Info
	Asked   bool
}

// MayHaveJobs reports whether workers may take jobs of a stream: it is no bucket, and not one of those that the services only read.
func MayHaveJobs(name string) bool {
	return !strings.HasPrefix(name, "KV_") && !strings.HasPrefix(name, "OBJ_") && !strings.HasPrefix(name, contracts.StreamAudit) &&
		name != contracts.StreamDead
}

// Look asks about a stream, after an earlier look at it. Two round trips and the question to the workers; for a stream with jobs up to two
// more, and with details, or few subjects, those of [deadletter.StrandedIn], and with details those of lookCloser. While no job completes,
// and others come, those of lookAtLimits. An error is that about the stream.
func Look(ctx context.Context, from Source, name string, before State, details bool) (State, error) {
	now := State{
		Account: from.Account, At: time.Now(), Asked: from.Asked, Answered: map[string]inspect.Info{}, Dead: before.Dead, Partial: before.Partial,
		details: before.details,
	}
	var count *consumer.Count
	if MayHaveJobs(name) {
		count = before.Count.Ask(ctx, from.Client, name)
	}
	stream, err := from.JetStream.Stream(ctx, name)
	if err != nil {
		return before, err
	}
	if now.Info = stream.CachedInfo(); count != nil && count.Complete(ctx, from.Client, now.Info) {
		now.Count = *count
	}
	now.Known = now.Info.Config.Retention != jetstream.WorkQueuePolicy // others keep messages that no consumer takes on purpose
	if !MayHaveJobs(name) || !now.HasJobs() {
		return now, nil
	}
	for _, w := range from.Workers() {
		if w.Stream == name {
			now.Workers = append(now.Workers, w)
		}
	}
	now.askOthers(ctx, from, before)
	maps.Copy(now.Answered, before.Answered)
	for _, w := range now.Workers {
		for _, h := range w.Handlers {
			now.Answered[h.Consumer] = w
		}
	}
	now.countStranded(ctx, from, before, details)
	client, err := worker.NewClient(from.JetStream, worker.ClientConfig{Stream: name, RequestTimeout: time.Second, SettleTimeout: time.Second})
	if err != nil { // worker takes no stream of this name: it has no pauses and limits
		return now, nil //nolint:nilerr // the rest is known
	}
	pauses, err := client.Pauses(ctx)
	now.Pauses = newer(before.Pauses, pauses, err)
	if now.stalls(before) || details {
		now.lookAtLimits(ctx, from)
	}
	if details {
		now.lookCloser(ctx, client)
	}
	return now, nil
}

// newer returns what was read, none where its bucket or stream does not exist, and what was read before when there was no answer: a
// problem does not end because a server is slow.
func newer[T any](before, now []T, err error) []T {
	switch {
	case err == nil:
		return now
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil
	}
	return before
}

// askOthers asks the workers that answered in the round before, and not in this one: they may have been late, ended, or be frozen.
func (s *State) askOthers(ctx context.Context, from Source, before State) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var asking sync.WaitGroup
	var mu sync.Mutex
	here := slices.Clone(s.Workers)
	for i, w := range slices.Concat(before.Workers, before.Frozen) {
		if i == maxAsked || slices.ContainsFunc(here, func(other inspect.Info) bool { return other.Instance == w.Instance }) {
			continue
		}
		asking.Go(func() {
			info, err := inspect.InfoOf(ctx, from.JetStream, w.Instance)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				s.Workers = append(s.Workers, info)
			} else if !errors.Is(err, inspect.ErrNoWorker) {
				s.Frozen = append(s.Frozen, w)
			}
		})
	}
	asking.Wait()
}

// countStranded counts the jobs that no consumer will deliver.
func (s *State) countStranded(ctx context.Context, from Source, before State, details bool) {
	quiet := !s.Count.At.IsZero() && s.Count.AsideAt.Equal(s.Count.At)
	switch {
	case s.Known:
		return
	case quiet && s.Count.Aside[1] == 0:
		s.Known = true
		return
	case s.Count.At.IsZero():
		return
	case s.Info.State.NumSubjects > fewSubjects && !details:
		s.Stranded, s.Example, s.Known = before.Stranded, before.Example, before.Known
		return
	}
	found, err := deadletter.StrandedIn(ctx, from.JetStream, s.Info.Config.Name)
	if s.Known = err == nil && found.Complete; s.Known && found.Messages > 0 {
		s.Stranded, s.Example = found.Messages, found.Subjects[0].Subject
	}
}

// newestDead is the number of the newest dead letters that are read.
const newestDead = 1000

// DeadLetters groups the dead letters since a time by stream, out of the newest 1,000.
func DeadLetters(ctx context.Context, js jetstream.JetStream, since time.Time) (deadletter.Overview, error) {
	store, err := deadletter.Open(ctx, js, deadletter.Config{})
	if err != nil {
		return deadletter.Overview{}, err
	}
	opts := deadletter.SurveyOptions{By: deadletter.ByStream, Newest: newestDead}
	return store.Survey(ctx, deadletter.Filter{Since: since}, opts)
}

// DeadOf returns the number of dead letters of a stream's jobs.
func DeadOf(dead deadletter.Overview, stream string) (n int) {
	for _, g := range dead.Groups {
		if g.Stream == stream {
			n += g.Count
		}
	}
	return n
}
