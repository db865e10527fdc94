package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/big"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// hostile is a value whose methods panic with the value itself; of a nil pointer as well.
type hostile struct{ text string }

func (h *hostile) Error() string                { panic(h) }
func (h *hostile) String() string               { panic(h) }
func (h *hostile) Is(error) bool                { panic(h) }
func (h *hostile) As(any) bool                  { panic(h) }
func (h *hostile) LogValue() slog.Value         { panic(h) }
func (h *hostile) MarshalJSON() ([]byte, error) { panic(h) }
func (h *hostile) UnmarshalJSON([]byte) error   { panic(h) }

// vague is an error that says it is all others.
type vague struct{}

func (vague) Error() string { return "vague" }
func (vague) Is(error) bool { return true }
func (vague) As(any) bool   { return true }

// circle is an error that wraps itself.
type circle struct{}

func (circle) Error() string { return "circle" }
func (circle) Unwrap() error { return circle{} }

// TestNothingAHandlerDoesEndsTheProcess lets each job do it twice, and then be dead with a text. One lost slot would stop the worker.
func TestNothingAHandlerDoesEndsTheProcess(t *testing.T) {
	t.Parallel()
	var nothing *hostile
	all := []struct {
		want string // in the letter
		do   func(ctx context.Context, job *worker.Job[order]) error
	}{
		{"unexpected EOF", func(context.Context, *worker.Job[order]) error { panic(io.ErrUnexpectedEOF) }},
		{"runtime.Goexit", func(context.Context, *worker.Job[order]) error { runtime.Goexit(); return nil }},
		{"*worker_test.hostile", func(context.Context, *worker.Job[order]) error { return nothing }},
		{"*worker_test.hostile", func(context.Context, *worker.Job[order]) error { panic(&hostile{"boom"}) }},
		{"snooze for 1h", func(context.Context, *worker.Job[order]) error { panic(worker.Snooze(time.Hour)) }},
		{"*worker_test.hostile", func(context.Context, *worker.Job[order]) error { return worker.Retry(time.Millisecond, nothing) }},
		{"*worker_test.hostile", func(context.Context, *worker.Job[order]) error { return errors.Join(io.EOF, &hostile{}) }},
		{"*worker.SnoozeError", func(context.Context, *worker.Job[order]) error { return (*worker.SnoozeError)(nil) }},
		{"*worker.DecodeError", func(context.Context, *worker.Job[order]) error { return (*worker.DecodeError)(nil) }},
		{"stack: <nil>", func(context.Context, *worker.Job[order]) error {
			return fmt.Errorf("stack: %w", (*worker.PanicError)(nil))
		}},
		{"vague", func(context.Context, *worker.Job[order]) error { return vague{} }},
		{"a\x00b", func(context.Context, *worker.Job[order]) error {
			return errors.New("a\x00b\r\nX: y" + strings.Repeat("é", 1<<20))
		}},
		{"circle", func(context.Context, *worker.Job[order]) error { return circle{} }},
		{"cancelled by a client", func(context.Context, *worker.Job[order]) error { return fmt.Errorf("other: %w", worker.ErrCancelled) }},
		{"cannot be decoded", func(context.Context, *worker.Job[order]) error {
			return &worker.DecodeError{Cause: io.EOF, Subject: "jobs.0"}
		}},
		{"taken over job x", func(context.Context, *worker.Job[order]) error { return &step.FencedError{Deliveries: 3, Job: "x"} }},
		{"context canceled", func(context.Context, *worker.Job[order]) error {
			return errors.Join(context.Canceled, worker.ErrShutdown)
		}},
		{"*worker_test.hostile", func(ctx context.Context, job *worker.Job[order]) error {
			_, err := step.Run(ctx, job, "a", func(context.Context) (*hostile, error) { return &hostile{}, nil })
			return err
		}},
		{"runtime.Goexit", func(ctx context.Context, job *worker.Job[order]) error {
			return step.Do(ctx, job, "a", func(context.Context) error { runtime.Goexit(); return nil })
		}},
		{"*worker_test.hostile", func(ctx context.Context, job *worker.Job[order]) error { return job.Progress(ctx, &hostile{}) }},
	}
	b := setup(t, nil)
	var log events
	around := func(ctx context.Context, info worker.Info, _ nats.Header, next func(context.Context) error) error {
		if info.Subject == "jobs.around.1" {
			panic(&hostile{"boom"})
		}
		return next(ctx)
	}
	w := check.Must(worker.New(b.js, b.config(t, func(c *worker.Config) {
		c.Concurrency, c.Logger, c.Middleware = 1, log.logger(), []worker.Middleware{around}
	})))(t)
	policy := worker.Policy{Backoff: worker.Exponential(0, 0), MaxAttempts: 2}
	check.OK(t,
		worker.Handle(w, "jobs.*", policy, func(ctx context.Context, job *worker.Job[order]) error { return all[job.Args.N].do(ctx, job) }))
	check.OK(t, worker.Handle(w, "jobs.around.>", policy, complete))
	check.OK(t, worker.Handle(w, "jobs.args.>", policy, func(context.Context, *worker.Job[hostile]) error { return nil }))
	check.OK(t, worker.Handle(w, "jobs.key.>", worker.Policy{
		Limits:      []worker.Limit{{Concurrency: 1, Name: "all", Key: func(worker.Info, nats.Header, []byte) string { panic(&hostile{"boom"}) }}},
		MaxAttempts: 2,
	}, complete))
	check.OK(t, worker.Handle(w, "jobs.decode.>", worker.Policy{
		Decode: func(nats.Header, []byte, any) error { return &hostile{} },
	}, complete))
	start(t, w)
	b.publishN(t, len(all))
	want := map[string]string{
		"jobs.args.1": "*worker_test.hostile", "jobs.around.1": "*worker_test.hostile", "jobs.key.1": "*worker_test.hostile",
		"jobs.decode.1": "cannot be decoded",
	}
	for subject := range want {
		b.publish(t, subject, `{}`)
	}
	for i, one := range all {
		want[fmt.Sprint("jobs.", i)] = one.want
	}
	for dead := 0; dead < len(want); {
		if s := receive(t, b.settled, "a settlement"); s.Outcome == worker.OutcomeDead {
			dead++
		}
	}
	for _, letter := range b.deadLetters(t) {
		check.That(t, letter.Attempts == 2 || letter.Reason == worker.ReasonUndecodable, "%s: %d attempts", letter.Subject, letter.Attempts)
		check.That(t, strings.Contains(letter.Error, want[letter.Subject]), "%s: %q, want %q", letter.Subject, letter.Error, want[letter.Subject])
		check.That(t, letter.Subject != "jobs.0" || strings.Contains(letter.Stack, "hostile_test.go"),
			"the stack does not show the handler:\n%s", letter.Stack)
	}
	check.Equal(t, b.storedMessages(t), 0, "messages left")
	check.Equal(t, log.count(worker.EventJobDead)+1000*log.count(worker.EventJobUnhandled), len(want),
		"jobs logged as dead, or without a handler")
}

// brokenLog panics at each record.
type brokenLog struct{ slog.Handler }

func (brokenLog) Enabled(context.Context, slog.Level) bool  { return true }
func (brokenLog) Handle(context.Context, slog.Record) error { panic(&hostile{}) }
func (b brokenLog) WithAttrs([]slog.Attr) slog.Handler      { return b }

// TestCallbacksThatPanicChangeNothing breaks every callback of a worker, and the logger to which that is reported. Jobs end as they do with
// callbacks that return.
func TestCallbacksThatPanicChangeNothing(t *testing.T) {
	for name, fail := range map[string]func(){"panic": func() { panic(&hostile{"boom"}) }, "goexit": runtime.Goexit} {
		runBubble(t, name, func(t *testing.T, b *bundle) {
			called := make(map[string]int)
			calls := make(chan string, 1000)
			cfg := b.config(t, func(c *worker.Config) {
				settled := c.Hooks.Settled
				c.Logger = slog.New(brokenLog{slog.DiscardHandler})
				c.Hooks = worker.Hooks{
					Ready:   func(bool, error) { calls <- "ready"; fail() },
					Settled: func(s worker.Settlement) { settled(s); fail() },
					Stuck:   func(worker.StuckHandler) { calls <- "stuck"; fail() },
					Waiting: func(worker.Info, bool) { calls <- "waiting"; fail() },
				}
				if name == "panic" { // Goexit of the others ends the attempt, like that of a handler
					c.Hooks.Started = func(worker.Info) { calls <- "started"; fail() }
				}
			})
			letters := 0
			run(t, b.js, cfg, worker.Policy{
				Backoff: func(int) time.Duration { calls <- "backoff"; fail(); return time.Hour }, Jitter: -1, MaxAttempts: 2,
				Limits: []worker.Limit{{Concurrency: 1, Name: "all"}}, Timeout: 30 * time.Second,
				OnDeadLetter: func(context.Context, worker.DeadLetter) error {
					letters++
					if letters == 1 {
						fail()
					}
					return nil
				},
			}, func(_ context.Context, job *worker.Job[order]) error {
				natstest.Pass(time.Minute)
				if job.Args.N == 0 {
					return io.EOF
				}
				return nil
			})
			b.publishN(t, 2)
			for ended := 0; ended < 2; {
				s := <-b.settled
				if s.Outcome == worker.OutcomeDead || s.Outcome == worker.OutcomeCompleted {
					ended++
				}
				check.That(t, s.Outcome != worker.OutcomeRetried || s.Delay == time.Second, "the delay is %s, not the default", s.Delay)
			}
			for len(calls) > 0 {
				called[<-calls]++
			}
			check.That(t, called["ready"] > 0 && called["stuck"] > 0 && called["waiting"] > 0 && called["backoff"] == 1 && letters == 2 &&
				(name != "panic" || called["started"] > 2), "called %v, %d letters", called, letters)
			check.Equal(t, len(b.deadLetters(t)), 1, "letters")
			check.Equal(t, b.storedMessages(t), 0, "jobs left")
		})
	}
}

// TestLastErrorIsKept lets a job fail, kill its workers and use up its attempts, or those that the last worker allows.
func TestLastErrorIsKept(t *testing.T) {
	const displaced = "displaced by a newer failure"
	for name, test := range map[string]struct {
		fails, kills, allowed int
		want                  string
	}{
		"lowered":              {3, 0, 2, "attempts exhausted: attempt 3 failed, and the policy allows 2: no answer 3"},
		"lowered by one":       {3, 0, 3, "attempts exhausted: attempt 3 failed, and the policy allows 3: no answer 3"},
		"killed":               {3, 1, 4, "the worker of attempt 4 of 4 ended before it could report; attempt 3 failed: no answer 3"},
		"lowered after a kill": {3, 1, 2, "the worker of attempt 4 of 2 ended before it could report; attempt 3 failed: no answer 3"},
		"always killed":        {0, 3, 3, "the worker of attempt 3 of 3 ended before it could report"},
		displaced:              {3, 0, 3, "attempts exhausted: 3 of 3 used, and how the last one ended is no longer recorded"},
	} {
		runKeyedBubble(t, name, func(t *testing.T, b *bundle) {
			b.publish(t, "jobs.1", `{}`)
			for kill := range max(test.kills, 1) {
				nc, js := natstest.Connect(t, b.srv)
				hanging := make(chan struct{})
				r := run(t, js, b.config(t, stopAtOnce), worker.Policy{}, func(ctx context.Context, job *worker.Job[order]) error {
					switch {
					case job.Deliveries == 1:
						return worker.Snooze(time.Minute) // must not count
					case job.Attempt <= test.fails:
						return fmt.Errorf("no answer %d", job.Attempt)
					}
					close(hanging)
					<-ctx.Done()
					return ctx.Err()
				})
				for i := 0; kill == 0 && i <= test.fails; i++ {
					check.That(t, (<-b.settled).Outcome != worker.OutcomeDead, "dead after %d attempts", i)
				}
				if test.kills > 0 {
					<-hanging
					nc.Close()
				}
				_ = r.wait()
			}
			page := check.Must(client(t, b.js).Jobs(t.Context(), worker.JobFilter{}))(t)
			check.Require(t, len(page.Jobs) == 1 && page.Jobs[0].Lost == max(test.kills-1, 0), "%+v", page.Jobs)
			if name == displaced {
				record := "$KV.jobs.excused." + stream + "." + page.Jobs[0].Consumer + ".failed.1"
				b.publish(t, record, `{"sequence":10001,"attempt":1,"error":"of another job"}`)
			}
			run(t, b.js, b.config(t), worker.Policy{MaxAttempts: test.allowed}, func(context.Context, *worker.Job[order]) error {
				panic("another attempt")
			})
			for dead := false; !dead; {
				dead = (<-b.settled).Outcome == worker.OutcomeDead
			}
			all := b.deadLetters(t)
			check.Require(t, len(all) == 1 && all[0].Reason == worker.ReasonExhausted, "%+v", all)
			check.Contains(t, all[0].Error, test.want)
			check.Equal(t, all[0].Attempts, test.fails+test.kills, "attempts")
		})
	}
}

// checkArguments inserts arguments, and returns a check of what a handler gets.
func checkArguments[T any](args any, want T) func(t *testing.T, b *bundle, w *worker.Worker, subject string) func() {
	return func(t *testing.T, b *bundle, w *worker.Worker, subject string) func() {
		t.Helper()
		arrived := make(chan T, 1)
		check.OK(t,
			worker.Handle(w, subject, worker.Policy{}, func(_ context.Context, job *worker.Job[T]) error { arrived <- job.Args; return nil }))
		insert(t, client(t, b.js), worker.NewJob{Args: args, Subject: subject})
		return func() {
			check.Equal(t, fmt.Sprintf("%+v", receive(t, arrived, "arguments")), fmt.Sprintf("%+v", want), fmt.Sprintf("%T", args))
		}
	}
}

// TestArgumentsArriveAsTheyWereSent is the table of README.md.
func TestArgumentsArriveAsTheyWereSent(t *testing.T) {
	t.Parallel()
	b := keyed(t, nil)
	w := check.Must(worker.New(b.js, b.config(t)))(t)
	at := time.Date(2026, 2, 28, 23, 59, 59, 999_999_999, time.UTC)
	bytes, number := []byte("x\xff"), new(big.Int).Lsh(big.NewInt(1), 200)
	var checks []func()
	for i, one := range []func(*testing.T, *bundle, *worker.Worker, string) func(){
		checkArguments(bytes, bytes), checkArguments(&bytes, bytes), checkArguments(bytes, &bytes), checkArguments([]byte{}, []byte{}), checkArguments(order{N: 1}, []byte(`{"n":1}`)),
		checkArguments(json.RawMessage(`{"a":  1e0}`), json.RawMessage(`{"a":  1e0}`)), checkArguments(json.RawMessage(nil), json.RawMessage("null")),
		checkArguments("<é\n", "<é\n"), checkArguments(at, at), checkArguments([]string{"a"}, []string{"a"}), checkArguments(map[string]int{"a": 1}, map[string]int{"a": 1}),
		checkArguments(order{N: 1}, order{N: 1}), checkArguments(&order{N: 1}, order{N: 1}), checkArguments(order{N: 1}, &order{N: 1}), checkArguments(nil, order{}), checkArguments(nil, (*order)(nil)),
		checkArguments(uint64(math.MaxUint64), uint64(math.MaxUint64)), checkArguments(math.MaxFloat64, math.MaxFloat64), checkArguments(number, number), checkArguments[any](1, 1.0),
		checkArguments(json.Number("9007199254740993"), json.Number("9007199254740993")), checkArguments(netip.IPv6Unspecified(), netip.IPv6Unspecified()),
	} {
		checks = append(checks, one(t, b, w, fmt.Sprint("jobs.", i)))
	}
	start(t, w)
	for _, arrived := range checks {
		arrived()
	}
	for _, bad := range []any{math.NaN(), make(chan int), json.RawMessage("x")} {
		check.That(t, check.Err(client(t, b.js).Insert(t.Context(), worker.NewJob{Args: bad, Subject: "jobs.bad"})) != nil, "%T was inserted",
			bad)
	}
}
