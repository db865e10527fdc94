package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// The operations that are measured beside growing queues and dead letters.
const (
	jobAmongQueued    rig.Growth = "job_queued"
	deathAmongLetters rig.Growth = "death_letters"
	pageOfLetters     rig.Growth = "page_letters"
	replayOfLetters   rig.Growth = "replay_letters"
)

const (
	fewestLetters = 1_000
	pageJobs      = 100
)

// growth measures insert and start with more and more jobs of another kind in the queue.
func growth(ctx context.Context, b *bench) (rig.Figures, error) {
	c, err := b.client(ctx)
	if err != nil {
		return nil, err
	}
	started := make(chan time.Time, 1)
	stop, err := c.work(ctx, slots, func(context.Context, string) error {
		started <- time.Now()
		return nil
	})
	if err != nil {
		return nil, err
	}
	many, n := b.n(b.queued), b.n(growthJobs)
	f, queued := rig.Figures{"growth_to": float64(many)}, 0
	for i, times := range rig.Times {
		if err = c.queue(ctx, queued, many*times/100-queued); err != nil {
			break
		}
		queued = many * times / 100
		before := rig.WorkOf(b.service)
		insert, start, failed := probe(ctx, c, i*n, n, started)
		if err = failed; err != nil {
			break
		}
		jobAmongQueued.Add(f, times, b.service, before, n)
		jobAmongQueued.Hold(f, times, rig.OwnBytes(), b.service)
		f["growth_insert_us"], f["growth_start_us"] = rig.In("us", insert), rig.In("us", start)
	}
	return f, errors.Join(err, stop())
}

// settled counts jobs that were completed, and that became dead letters.
func (b *broker) settled(s worker.Settlement) {
	switch s.Outcome {
	case worker.OutcomeCompleted:
		b.done.Add(1)
	case worker.OutcomeDead:
		b.died.Add(1)
	}
}

// letters makes jobs dead letters, lists the newest and replays them, while more and more others are kept.
func letters(ctx context.Context, b *bench) (rig.Figures, error) {
	c, err := b.client(ctx)
	if err != nil {
		return nil, err
	}
	js := c.broker.insert
	if err := js.DeleteStream(ctx, "DEAD"); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, err
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "DEAD", Subjects: []string{"dead.>"}, AllowDirect: true, Replicas: c.broker.replicas,
	})
	if err != nil {
		return nil, err
	}
	store, err := deadletter.Open(ctx, js, deadletter.Config{})
	if err != nil {
		return nil, err
	}
	var died sync.Map
	stop, err := c.work(ctx, slots, func(_ context.Context, id string) error {
		if _, again := died.LoadOrStore(id, true); again {
			return nil
		}
		return worker.Cancel(errors.New("no kitchen has it"))
	})
	if err != nil {
		return nil, err
	}
	f := rig.Figures{}
	for i, times := range rig.Times {
		kept := fewestLetters * times / 10 * min(i, 1)
		if err = c.broker.keep(ctx, kept, fewestLetters*times-kept); err == nil {
			err = b.die(ctx, f, i, c, store)
		}
		if err != nil {
			break
		}
		deathAmongLetters.Hold(f, times, rig.OwnBytes(), b.service)
	}
	return f, errors.Join(err, stop())
}

// keep stores n letters of other jobs.
func (b *broker) keep(ctx context.Context, from, n int) error {
	return rig.Publish(ctx, b.insert, n, func(i int) (*nats.Msg, error) {
		id := fmt.Sprintf("kept%d", from+i)
		letter := worker.DeadLetter{
			Attempts: 1, Consumer: "ours", DeadAt: time.Now(), Error: "no kitchen has it", ID: id, MaxAttempts: 1,
			Payload: []byte(payload), Reason: worker.ReasonCancelled, Sequence: uint64(from + i + 1), Signature: "no kitchen has it", Stream: b.stream,
			Subject: b.subject(id), Worker: "another",
		}
		data, err := json.Marshal(letter)
		return &nats.Msg{Subject: "dead." + b.stream + "." + letter.Subject, Data: data, Header: nats.Header{
			worker.HeaderDeadReason: {string(letter.Reason)}, worker.HeaderDeadSignature: {letter.Signature}, worker.HeaderDeadWorker: {letter.Worker},
		}}, err
	})
}

// die makes jobs fail for good, lists pages of their letters, and replays them.
func (b *bench) die(ctx context.Context, f rig.Figures, round int, c *client, store *deadletter.Store) error {
	times, n, began := rig.Times[round], b.n(growthJobs), time.Now()
	before := rig.WorkOf(b.service)
	err := insertAll(ctx, c, round*n, n)
	if err == nil {
		err = await(ctx, &c.broker.died, (round+1)*n)
	}
	if err != nil {
		return err
	}
	deathAmongLetters.Add(f, times, b.service, before, n)
	before = rig.WorkOf(b.service)
	for range probes {
		if err := page(ctx, store); err != nil {
			return err
		}
	}
	pageOfLetters.Add(f, times, b.service, before, probes)
	before = rig.WorkOf(b.service)
	result, err := store.Replay(ctx, deadletter.Filter{Since: began}, deadletter.ReplayOptions{Rate: -1})
	if err == nil && result.Done != n {
		err = fmt.Errorf("%d of %d letters replayed", result.Done, n)
	}
	if err == nil {
		err = await(ctx, &c.broker.done, (round+1)*n)
	}
	replayOfLetters.Add(f, times, b.service, before, n)
	return err
}

// page reads the newest letters.
func page(ctx context.Context, store *deadletter.Store) error {
	n := 0
	for _, err := range store.List(ctx, deadletter.Filter{}, deadletter.NewestFirst) {
		if err != nil {
			return err
		}
		if n++; n == pageJobs {
			return nil
		}
	}
	return fmt.Errorf("a page of %d letters", n)
}
