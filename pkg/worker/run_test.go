package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/internal/pull"
)

// A server that looks for the first message for longer than a request lasts, and forgets it then, is given more time.
func TestPullOutlastsASlowServer(t *testing.T) {
	for _, look := range []time.Duration{1300 * time.Millisecond, 5 * time.Second} {
		natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
			nc, _ := natstest.Connect(t, srv)
			var asked atomic.Int64
			delivered := make(chan bool, 1)
			_, err := nc.Subscribe("pull", func(m *nats.Msg) {
				var request struct {
					Expires time.Duration `json:"expires"`
				}
				check.OK(t, json.Unmarshal(m.Data, &request))
				asked.Add(1)
				natstest.Pass(look)
				answer := &nats.Msg{Subject: m.Reply, Header: nats.Header{"Status": {"408"}}}
				if request.Expires > look {
					answer = &nats.Msg{Subject: m.Reply, Reply: "ack"}
				}
				check.OK(t, nc.PublishMsg(answer))
			})
			check.OK(t, err)
			p := pull.New(pull.Config{
				Conn: nc, Expires: time.Second, Free: func() int { return 1 - len(delivered) }, Up: func() {}, Down: func(error) {},
				Lost:    func(context.Context, error) {},
				Deliver: func(*nats.Msg, time.Time) uint64 { delivered <- true; return 0 },
				Sources: []pull.Source{{Paused: func() bool { return false }, Subject: "pull", Weight: 1}},
			})
			stop := natstest.Background(t, p.Run)
			check.Until(t, patience(), "the message to come", func() bool { return len(delivered) > 0 })
			check.That(t, asked.Load() <= 5, "the server was asked %d times", asked.Load())
			stop()
		})
	}
}

// TestJobsOfManySubjectsAreListedAcrossGaps lists a stream of so many subjects that the server is asked for one message at a time. No
// answer is late in fake time.
func TestJobsOfManySubjectsAreListedAcrossGaps(t *testing.T) {
	const n = 10_600
	keyedBubble(t, func(t *testing.T, b *bundle) {
		for i := range n {
			check.OK(t, check.Err(b.js.PublishAsync(fmt.Sprintf("jobs.%d", i+1), nil, jetstream.WithStallWait(time.Minute))))
		}
		<-b.js.PublishAsyncComplete()
		jobs := check.Must(b.js.Stream(t.Context(), stream))(t)
		var want []uint64
		for seq := uint64(1); seq <= n; seq++ {
			if seq == 100 || seq > 300 && seq <= 500 || seq > 700 && seq <= 900 && seq%2 == 0 || seq == n-1 {
				check.OK(t, jobs.DeleteMsg(t.Context(), seq))
				continue
			}
			want = append(want, seq)
		}

		proxy := natstest.NewProxy(t, b.srv)
		_, js := natstest.Connect(t, b.srv, proxy.Through())
		c := client(t, js)
		for name, test := range map[string]struct {
			limit int
			from  uint64
			lost  []byte // in the first answer that has it
		}{
			"small pages":              {50, 2, nil},
			"an answer is lost":        {700, 2, []byte("\r\nNats-Sequence: 610\r\n")},
			"that for a gap is lost":   {50, 2, []byte("\r\nNats-Sequence: 501\r\n")},
			"the end":                  {50, n - 200, nil},
			"the last answer is lost":  {700, n - 200, []byte("NATS/1.0 404")},
			"one of the first is lost": {50, 2, []byte("\r\nNats-Sequence: 3\r\n")},
		} {
			asked := 0
			proxy.Filter(natstest.Losing(func(f natstest.Frame) bool {
				if f.FromClient && bytes.HasSuffix(bytes.TrimSpace(f.Raw), []byte(`,"next_by_subj":">"}`)) {
					asked++
				}
				lost := test.lost != nil && !f.FromClient && bytes.Contains(f.Raw, test.lost)
				if lost {
					test.lost = nil
				}
				return lost
			}))
			f := worker.JobFilter{From: worker.Cursor{Sequence: test.from}, Limit: test.limit}
			got, last := []uint64(nil), test.from+1000
			for more := true; more && f.From.Sequence <= last; more = f.From.Sequence > 0 {
				page := check.Must(c.Jobs(t.Context(), f))(t)
				for _, j := range page.Jobs {
					got = append(got, j.Sequence)
				}
				f.From = page.Next
			}
			outside := func(seq uint64) bool { return seq < test.from || seq > last }
			check.Equal(t, slices.DeleteFunc(got, outside), slices.DeleteFunc(slices.Clone(want), outside))
			check.That(t, asked > 100 && test.lost == nil, "%s: %d messages were asked for one by one; lost %q", name, asked, test.lost)
		}
		proxy.Filter(nil)
	})
}

// TestJobThatTheLastPullBringsIsHandedBackOnce publishes while a stopping worker's last
// request is still at the server: the job comes to this worker, and must come here once.
func TestJobThatTheLastPullBringsIsHandedBackOnce(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		r := run(t, b.js, b.config(t), worker.Policy{}, func(context.Context, *worker.Job[order]) error {
			t.Error("a stopping worker started a job")
			return nil
		})
		<-b.ready
		natstest.Pass(500 * time.Millisecond) // the request is at the server, half of its time left
		r.stop()
		natstest.Pass(100 * time.Millisecond)
		b.publish(t, "jobs.1", `{}`)

		check.ErrorIs(t, r.wait(), nil)

		assertHandedBack(t, b)
	})
}

// assertHandedBack checks that another worker gets the job at once, as its first attempt.
func assertHandedBack(t *testing.T, b *bundle) {
	t.Helper()

	again := make(chan *worker.Job[order], 1)
	stopped := time.Now()
	r := run(t, b.js, b.config(t), worker.Policy{MaxAttempts: 1}, sendEach(again, wholeJob))

	job := receive(t, again, "the job")
	within(t, "the start elsewhere", time.Since(stopped), 0, time.Second)

	check.That(t, job.Attempt == 1 && job.Deliveries == 2,
		"attempt %d, delivery %d; want 1, 2: a shutdown uses no attempt", job.Attempt, job.Deliveries)

	check.ErrorIs(t, r.wait(), nil)

	check.Equal(t, b.storedMessages(t), 0, "messages left")
}

// TestStopWithManyInFlightKeepsItsDeadline stops a worker that runs 1,000 jobs. A third of
// them finish in time, a third when their context ends, and a third never do.
func TestStopWithManyInFlightKeepsItsDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, b *bundle) {
		const n = 1000

		b.publishN(t, n)

		var effects counter

		started := make(chan struct{}, n)
		release := make(chan struct{})
		cfg := b.config(t, func(c *worker.Config) { c.Concurrency, c.HardStop, c.SoftStop = n, 5*time.Second, 10*time.Second })
		first := run(t, b.js, cfg, worker.Policy{MaxAttempts: 1}, func(ctx context.Context, job *worker.Job[order]) error {
			started <- struct{}{}

			switch job.Args.N % 3 {
			case 0:
				natstest.Pass(9 * time.Second)
				effects.add(job.ID)
				return ctx.Err() // none while it may finish
			case 1:
				<-ctx.Done()
				return ctx.Err()
			default:
				<-release
				return nil
			}
		})

		for range n {
			<-started
		}

		begun := time.Now()
		err := first.wait()

		within(t, "SoftStop, HardStop and a second at most", time.Since(begun), 15*time.Second, 17*time.Second)

		var stuck *worker.StuckError
		check.That(t, errors.As(err, &stuck) && len(stuck.Jobs) == n/3 && strings.HasPrefix(stuck.Jobs[0].Subject, "jobs."),
			"Run: %v, want a StuckError of %d jobs", err, n/3)

		check.Equal(t, b.storedMessages(t), n-n/3-1, "messages left")

		// Another worker gets the others at once, each as its first attempt.
		settled := make(chan worker.Settlement, n)
		begun = time.Now()
		cfg.Concurrency, cfg.Hooks.Settled = 100, func(s worker.Settlement) { settled <- s }
		run(t, b.js, cfg, worker.Policy{MaxAttempts: 1}, func(_ context.Context, job *worker.Job[order]) error {
			effects.add(job.ID)
			return nil
		})

		for range n - n/3 - 1 {
			s := <-settled
			check.That(t, s.Outcome == worker.OutcomeCompleted && s.Attempt == 1, "%s: %s in attempt %d", s.ID, s.Outcome, s.Attempt)
		}

		within(t, "the others", time.Since(begun), 0, time.Second)

		close(release)

		effects.once(t, n)
		check.That(t, b.storedMessages(t) == 0 && len(b.deadLetters(t)) == 0, "%d left, %d letters; want 0, 0", b.storedMessages(t), len(b.deadLetters(t)))
	})
}
