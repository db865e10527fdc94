package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/partition"
	"github.com/expediter-io/expediter/pkg/jsretry"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// divided gives a test a stream that takes all kinds of jobs, and a client of it that is to have four partitions.
func divided(t *testing.T, srv *natsrun.Server) (*bundle, *worker.Client) {
	t.Helper()
	b := keyed(t, srv)
	c := check.Must(worker.NewClient(b.js, worker.ClientConfig{AllowUntaken: true, Partitions: grown, Stream: stream}))(t)
	return b, c
}

// The figures of partitions are added to those of the first, whatever other streams there are. A partition without the first stays.
func TestWholeStreams(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b, c := divided(t, srv)
		ctx := t.Context()
		check.OK(t, c.Grow(ctx, nil))
		for i := range 24 {
			insert(t, c, worker.NewJob{Args: order{N: 1}, Subject: fmt.Sprint("jobs.mail.", i)})
			pass(time.Second) // each is younger than the one before
		}
		check.OK(t, check.Err(b.js.CreateStream(ctx, jetstream.StreamConfig{Name: stream + "-other", Subjects: []string{"other"}})))
		check.OK(t, check.Must(b.js.Stream(ctx, stream))(t).Purge(ctx)) // the oldest message is in another partition
		var parts, others []*jetstream.StreamInfo
		messages, bytes, consumers, oldest := uint64(0), uint64(0), 0, time.Now()
		for info := range b.js.ListStreams(ctx).Info() {
			if info.Config.Name != stream && !worker.IsPartition(info.Config) {
				others = append(others, info)
				continue
			}
			parts = append(parts, info)
			messages, bytes, consumers = messages+info.State.Msgs, bytes+info.State.Bytes, consumers+info.State.Consumers
			if info.State.Msgs > 0 && info.State.FirstTime.Before(oldest) {
				oldest = info.State.FirstTime
			}
		}
		slices.Reverse(parts)
		all := worker.WholeStreams(slices.Concat(parts, others))
		check.Same(t, "streams", len(all), 1+len(others))
		at := slices.IndexFunc(all, func(s worker.WholeStream) bool { return s.Config.Name == stream })
		check.Require(t, at >= 0, "%s is not there: %+v", stream, all)
		whole := all[at]
		check.That(t, len(parts) == grown && whole.Partitions == grown && whole.State.Msgs == messages && messages > 12 &&
			whole.State.Bytes == bytes && whole.State.Consumers == consumers && whole.State.FirstTime.Equal(oldest),
			"want %d messages, %d bytes, %d consumers since %s: %d partitions, %+v", messages, bytes, consumers, oldest, whole.Partitions, whole.State)
		slices.SortFunc(parts, func(a, b *jetstream.StreamInfo) int { return strings.Compare(a.Config.Name, b.Config.Name) })
		check.Same(t, "streams without the first", len(worker.WholeStreams(parts[1:])), grown-1)
	})
}

// TestEveryCallFindsItsPartition has unique, delayed and periodic jobs before and after a stream is divided.
func TestEveryCallFindsItsPartition(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b, c := divided(t, srv)
		ctx := t.Context()
		one := func(key string, delay time.Duration) worker.NewJob {
			return worker.NewJob{Args: order{N: 1}, Delay: delay, Subject: "jobs.mail", Unique: &worker.Unique{Key: key}}
		}
		const jobs = 24
		grew, left := make(chan error, 1), make(chan string, jobs)
		for i := range jobs { // half of them before
			if i == jobs/2 {
				go func() { grew <- c.Grow(ctx, func(subject string, _ uint64) { left <- subject }) }() // it waits for the first half
				until(t, "the division", func() bool {
					_, err := b.js.Stream(ctx, partition.Name(stream, grown-1))
					return err == nil
				})
			}
			insert(t, c, one(fmt.Sprint(i), time.Duration(i%2)*time.Hour))
		}
		for i := range jobs {
			r := insert(t, c, one(fmt.Sprint(i), 0))
			s, err := c.Inspect(ctx, "jobs.mail", fmt.Sprint(i))
			check.That(t, r.Duplicate && err == nil && s.ID == r.ID, "the second insert of %d: %+v; inspected %+v, %v", i, r, s, err)
			j, err := c.Job(ctx, worker.JobRef{ID: r.ID, Sequence: s.Sequence, Subject: r.Subject})
			check.That(t, err == nil && j.ID == r.ID, "job %d: %+v, %v", i, j, err)
		}
		receipts, err := c.InsertMany(ctx, []worker.NewJob{one("3", 0), one("20", 0), one("new", 0)})
		check.That(t, err == nil && receipts[0].Duplicate && receipts[1].Duplicate && !receipts[2].Duplicate, "%+v, %v", receipts, err)

		seen := map[string]int{}
		for f := (worker.JobFilter{Limit: 5}); ; {
			page := check.Must(c.Jobs(ctx, f))(t)
			for _, j := range page.Jobs {
				seen[j.Stream]++
			}
			if f.From = page.Next; page.Next == (worker.Cursor{}) {
				check.Same(t, "messages", page.Messages, jobs+1+1) // and the barrier
				break
			}
		}
		all := 0
		for _, n := range seen {
			all += n
		}
		check.That(t, all == jobs+1 && len(seen) == grown, "listed %v", seen)

		for i := 1; i < jobs; i += 2 { // the delayed ones
			s, err := c.Cancel(ctx, "jobs.mail", fmt.Sprint(i))
			check.That(t, err == nil && s.State == worker.StateScheduled, "cancel %d: %+v, %v", i, s, err)
		}
		_, err = c.Schedule(ctx, worker.Periodic{Subject: "jobs.report", Name: "nightly", Every: time.Minute})
		check.OK(t, err)
		changed, err := c.Schedule(ctx, worker.Periodic{Subject: "jobs.report", Name: "nightly", Every: time.Minute})
		schedules, failed := c.Schedules(ctx)
		check.That(t, !changed && len(schedules) == 1 && schedules[0].Subject == "jobs.report.nightly", "%+v, %v, %v", schedules, err, failed)
		check.OK(t, c.Unschedule(ctx, "jobs.report", "nightly"))

		cfg := check.Must(b.js.Stream(ctx, stream))(t).CachedInfo().Config
		cfg.Description = "set while it was being divided"
		check.Must(b.js.UpdateStream(ctx, cfg))(t)

		r := run(t, b.js, b.config(t, func(cfg *worker.Config) {
			cfg.Partitions, cfg.Concurrency = grown, 2
		}), worker.Policy{}, complete)
		streams := map[string]int{}
		for range jobs/2 + 1 {
			streams[(<-b.settled).Stream]++
		}
		check.That(t, len(streams) == grown, "worked %v", streams)
		check.Is(t, r.wait(), nil)
		check.Is(t, receive(t, grew, "the division"), nil)
		check.That(t, strings.HasPrefix(<-left, "jobs"), "nothing was told to be left")
		check.Same(t, "the description", check.Must(b.js.Stream(ctx, stream))(t).CachedInfo().Config.Description, cfg.Description)
	})
}

// TestPartitionsAreFoundDuringAnElection asks for the partitions of a stream whose first answers are lost, of one whose leader stays away,
// and of streams that are not there.
func TestPartitionsAreFoundDuringAnElection(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, c := divided(t, srv)
		check.OK(t, c.Grow(t.Context(), nil))
		p, js := natstest.Proxied(t, srv)
		isInfo := func(f natstest.Frame) bool { return strings.Contains(f.Subject, ".STREAM.INFO.") }

		p.Hit(isInfo, natstest.ReplyLost, 2)
		first, n, err := worker.PartitionsOf(t.Context(), js, partition.Name(stream, 1))
		check.That(t, first == stream && n == grown && err == nil, "after two lost answers: %s, %d, %v", first, n, err)

		p.Filter(natstest.Losing(isInfo))
		_, n, err = worker.PartitionsOf(t.Context(), js, stream)
		check.That(t, n == 0 && errors.Is(err, jsretry.ErrNotReady), "without a leader: %d, %v", n, err)

		p.Filter(nil)
		for _, name := range []string{"NONE", "no.name"} {
			first, n, err = worker.PartitionsOf(t.Context(), js, name)
			check.That(t, first == name && n == 1 && err == nil, "%s: %s, %d, %v", name, first, n, err)
		}
	})
}

// TestReplacedAndDelayedJobsOfAPartition debounces a job until it runs, in a partition.
func TestReplacedAndDelayedJobsOfAPartition(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b, c := divided(t, srv)
		check.OK(t, c.Grow(t.Context(), nil))
		for n := range 3 {
			r, err := c.Replace(t.Context(), worker.NewJob{
				Args: order{N: n}, Delay: 10 * time.Second, Subject: "jobs.mail", Unique: &worker.Unique{Key: "u17", Keep: time.Hour},
			})
			check.That(t, err == nil && r.Replaced == (n > 0), "%d: %+v, %v", n, r, err)
		}
		ran := make(chan *worker.Job[order], 3)
		run(t, b.js, b.config(t, func(cfg *worker.Config) { cfg.Partitions = grown }), worker.Policy{},
			func(_ context.Context, job *worker.Job[order]) error { ran <- job; return nil })
		job := receive(t, ran, "the job")
		check.That(t, job.Args.N == 2 && job.Stream == partition.Name(stream, partition.Of("jobs.mail.u17", grown)), "%+v", job)
		pass(time.Second)
		ended, err := c.Job(t.Context(), worker.JobRef{Subject: "jobs.mail", Key: "u17"})
		check.That(t, err == nil && ended.State == worker.StateDone, "%s, %v", ended.State, err)
	})
}

// TestLettersComeBackToTheirPartition gives up jobs before and after a stream is divided.
func TestLettersComeBackToTheirPartition(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b, c := divided(t, srv)
		run(t, b.js, b.config(t, func(cfg *worker.Config) {
			cfg.Partitions = grown
		}), worker.Policy{}, func(_ context.Context, job *worker.Job[order]) error {
			if job.Header.Get(worker.HeaderReplay) == "" {
				return worker.Cancel(errors.New("no"))
			}
			return nil
		})
		await := func(want worker.Outcome) (stream string) {
			s := receive(t, b.settled, "the job")
			check.Same(t, "outcome", s.Outcome, want)
			return s.Stream
		}
		insert(t, c, worker.NewJob{Args: order{}, Subject: "jobs.mail.u17"})
		check.Same(t, "before", await(worker.OutcomeDead), stream)
		check.OK(t, c.Grow(t.Context(), nil))
		insert(t, c, worker.NewJob{Args: order{}, Subject: "jobs.mail.u18"})
		await(worker.OutcomeDead)
		page, err := c.Jobs(t.Context(), worker.JobFilter{Dead: true})
		check.That(t, err == nil && len(page.Jobs) == 2, "%+v, %v", page.Jobs, err)
		store := check.Must(deadletter.Open(t.Context(), b.js, deadletter.Config{}))(t)
		result, err := store.Replay(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{})
		check.That(t, err == nil && result.Done == 2, "%+v, %v", result, err)
		got := []string{await(worker.OutcomeCompleted), await(worker.OutcomeCompleted)}
		slices.Sort(got)
		check.Equal(t, []string{"JOBS-1", "JOBS-2"}, got)
	})
}

// TestWrongPartitionsAreRefused wants a typed error wherever another number of partitions is set than the stream has.
func TestWrongPartitionsAreRefused(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b, c := divided(t, srv)
		check.OK(t, c.Grow(t.Context(), nil))
		check.OK(t, c.Grow(t.Context(), nil)) // it has been
		isDrift := func(what string, err error) {
			_, drift := errors.AsType[*worker.DriftError](err)
			check.That(t, drift, "%s: %v, want a DriftError", what, err)
		}
		for _, n := range []int{1, 2, 5} {
			other, err := worker.NewClient(b.js, worker.ClientConfig{AllowUntaken: true, Partitions: n, Stream: stream})
			check.OK(t, err)
			_, err = other.Insert(t.Context(), worker.NewJob{Subject: "jobs.mail.u17"})
			isDrift(fmt.Sprint("insert with ", n), err)
		}
		w := check.Must(worker.New(b.js, b.config(t, func(cfg *worker.Config) { cfg.Partitions = 2 })))(t)
		check.OK(t, worker.Handle(w, pattern, worker.Policy{}, complete))
		isDrift("work with 2", w.Run(t.Context()))

		config := b.config(t, func(cfg *worker.Config) { cfg.Partitions = grown })
		r := run(t, b.js, config, worker.Policy{}, complete)
		pass(time.Second) // it makes the consumers
		check.Is(t, r.wait(), nil)
		check.OK(t, b.js.DeleteConsumer(t.Context(), partition.Name(stream, 2), partition.Name(config.Consumer, 2)))
		config.AutoCreate = false
		w = check.Must(worker.New(b.js, config))(t)
		check.OK(t, worker.Handle(w, pattern, worker.Policy{}, complete))
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		missing, ok := errors.AsType[*worker.MissingError](w.Run(ctx))
		check.That(t, ok && strings.Contains(missing.Asset, partition.Name(stream, 2)), "work without a consumer: %v", missing)
	})
}

// A stream that has the name of a partition and is another is not taken for it: jobs would be in two streams, or lost.
func TestStreamsInTheWayOfADivision(t *testing.T) {
	for name, makes := range map[string]func(t *testing.T, js jetstream.JetStream, cfg jetstream.StreamConfig){
		"of another stream": func(t *testing.T, js jetstream.JetStream, cfg jetstream.StreamConfig) {
			t.Helper()
			check.Must(js.CreateStream(t.Context(), jetstream.StreamConfig{Name: partition.Name(cfg.Name, 1), Subjects: []string{"b.>"}}))(t)
		},
		"of a division into 2": func(t *testing.T, js jetstream.JetStream, cfg jetstream.StreamConfig) {
			t.Helper()
			check.Must(partition.Copy(t.Context(), js, cfg, 2))(t)
		},
		"with other subjects": func(t *testing.T, js jetstream.JetStream, cfg jetstream.StreamConfig) {
			t.Helper()
			cfg.Subjects = []string{"tasks.>"}
			check.Must(partition.Copy(t.Context(), js, cfg, grown))(t)
		},
		"with jobs": func(t *testing.T, js jetstream.JetStream, cfg jetstream.StreamConfig) {
			t.Helper()
			check.Must(partition.Copy(t.Context(), js, cfg, grown))(t)
			check.Must(js.Publish(t.Context(), partition.Entry(stream, 1)+"jobs.mail", nil))(t)
		},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			b, c := divided(t, srv)
			first := func() jetstream.StreamConfig {
				return check.Must(b.js.Stream(t.Context(), stream))(t).CachedInfo().Config
			}
			before := first()
			makes(t, b.js, before)
			err := c.Grow(t.Context(), nil)
			check.That(t, err != nil && strings.Contains(err.Error(), "stream "+partition.Name(stream, 1)), "divided: %v", err)
			check.Equal(t, first(), before)
			for p := 1; p < grown; p++ {
				_ = b.js.DeleteStream(t.Context(), partition.Name(stream, p)) //nolint:errcheck // not all are there
			}
			check.OK(t, c.Grow(t.Context(), nil))
		})
	}
}

// A call whose answers come late finds that another has divided the stream, and that the partitions have jobs.
func TestTwoDivisionsAtOnce(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b, c := divided(t, srv)
		p, js := natstest.Proxied(t, srv)
		late := check.Must(worker.NewClient(js, worker.ClientConfig{Partitions: grown, SettleTimeout: time.Hour, Stream: stream}))(t)
		p.Slow(2500 * time.Millisecond)
		grew := make(chan error, 1)
		go func() { grew <- late.Grow(t.Context(), nil) }()
		pass(time.Second)
		check.OK(t, c.Grow(t.Context(), nil))
		cfg := check.Must(b.js.Stream(t.Context(), stream))(t).CachedInfo().Config
		cfg.Description = "set after the division"
		check.Must(b.js.UpdateStream(t.Context(), cfg))(t)
		for i := range 2 * grown {
			insert(t, c, worker.NewJob{Subject: fmt.Sprint("jobs.mail.", i)})
		}
		check.Is(t, <-grew, nil)
		check.Equal(t, check.Must(b.js.Stream(t.Context(), stream))(t).CachedInfo().Config, cfg)
	})
}

// An insert ends when what it reads of the first partition is gone, as after a purge, and the next call of Grow stores that again.
func TestBarrierOfADivisionIsLost(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b, c := divided(t, srv)
		ctx, stop := context.WithCancel(t.Context())
		job := func(i int) worker.NewJob {
			return worker.NewJob{Subject: fmt.Sprint("jobs.mail.", i), Unique: &worker.Unique{}}
		}
		for i := range 2 * grown {
			insert(t, c, job(i))
		}
		check.Is(t, c.Grow(ctx, func(string, uint64) { stop() }), context.Canceled)
		check.OK(t, check.Must(b.js.Stream(t.Context(), stream))(t).Purge(t.Context()))
		inserted := make(chan error, 1)
		go func() {
			_, err := c.InsertMany(t.Context(), []worker.NewJob{job(0), job(1), job(2), job(3)})
			inserted <- err
		}()
		check.Is(t, receive(t, inserted, "the insert"), context.DeadlineExceeded)
		check.OK(t, c.Grow(t.Context(), nil))
		for i := range 2 * grown {
			insert(t, c, job(i))
		}
	})
}

// A division that has begun waits out an election that lasts longer than an insert does, which says what it waits for.
func TestDivisionWaitsForTheCluster(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, c := divided(t, srv)
		p, js := natstest.Proxied(t, srv)
		grower := check.Must(worker.NewClient(js, worker.ClientConfig{Partitions: grown, Stream: stream}))(t)
		var mu sync.Mutex
		var created, updates int
		var closed time.Time
		p.Filter(natstest.Losing(func(f natstest.Frame) bool {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case strings.Contains(f.Subject, "STREAM.CREATE."):
				created++
				return created == 1
			case strings.Contains(f.Subject, "STREAM.UPDATE."):
				updates++
				if updates == 1 {
					closed = time.Now()
				}
				return updates > 1 && time.Since(closed) < 20*time.Second
			}
			return false
		}))
		grew := make(chan error, 1)
		go func() { grew <- grower.Grow(t.Context(), nil) }()
		until(t, "the division", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return updates > 1
		})
		_, err := c.Insert(t.Context(), worker.NewJob{Subject: "jobs.mail.u17"})
		check.That(t, err != nil && strings.Contains(err.Error(), "call it again"), "insert: %v", err)
		check.OK(t, <-grew)
		insert(t, c, worker.NewJob{Subject: "jobs.mail.u17"})
	})
}
