package deadletter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

// TestInterruptedReplayPublishesOnce ends a replay between any two of its steps, at any
// distance of time, and takes it up again.
func TestInterruptedReplayPublishesOnce(t *testing.T) {
	for _, c := range []struct {
		name      string
		to        string // publication at which it dies
		after     bool   // the server gets that publication
		worked    bool   // the job is worked before the replay is taken up
		published bool   // the first attempt has published the job
	}{
		{"before the record", "dead.", false, false, false},
		{"after the record", "dead.", true, false, false},
		{"before the job", "jobs.", false, false, false},
		{"after the job, which waits", "jobs.", true, false, true},
		{"after the job, which has been worked", "jobs.", true, true, true},
	} {
		for _, later := range []time.Duration{0, 48 * time.Hour} {
			natstest.RunBubble(t, fmt.Sprintf("%s, taken up after %s", c.name, later), func(t *testing.T, srv *natsrun.Server) {
				b := setup(t, srv)
				b.put(t, letter(1))
				b.die(t, c.to, c.after)

				ran := 0

				if c.worked {
					ran += len(b.work(t, 1, nil))

					// The server forgets its state that is not stored.
					check.OK(t, srv.Restart(t.Context()))

					natstest.Pass(time.Second)
				}

				waits := b.messages(t, "JOBS")
				check.Require(t, (waits == 1) == (c.published && !c.worked), "%d jobs wait before the second attempt", waits)

				natstest.Pass(later)
				b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1})

				check.Equal(t, int(b.messages(t, "JOBS"))+ran, 1, "times published")

				check.Equal(t, b.messages(t, "DEAD"), 0, "messages are left in the dead letter stream")
			})
		}
	}
}

// TestInterruptedReplayFindsTheJobBehindOthers ends a replay after its second job, of the same subject as the first.
func TestInterruptedReplayFindsTheJobBehindOthers(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setup(t, srv)
		for i := range 2 {
			b.put(t, letter(i+1, func(l *worker.DeadLetter) { l.Subject = "jobs.mail" }))
		}

		dying := &cut{JetStream: b.js, after: true, to: "jobs."}
		dying.hits.Store(1)
		_, err := b.open(t, dying).Replay(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{Rate: -1})
		check.Require(t, errors.Is(err, errCut), "%v, want the cut", err)

		natstest.Pass(48 * time.Hour)
		b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1})
		check.Equal(t, b.messages(t, "JOBS"), 2, "jobs")
	})
}

// TestInterruptedReplayLeavesNothing interrupts a replay at its removals: the server does not get that of the letter, or that of the
// record, or carries out the first, whose answer is lost.
func TestInterruptedReplayLeavesNothing(t *testing.T) {
	for _, c := range []struct {
		removal string
		lost    bool
		letters int
	}{{`"seq":1}`, true, 2}, {`"seq":1}`, false, 1}, {`"seq":2}`, true, 1}} {
		for next, jobs := range map[string]uint64{"replayed": 2, "discarded": 1} {
			natstest.RunBubble(t, fmt.Sprintf("%+v, then %s", c, next), func(t *testing.T, srv *natsrun.Server) {
				b := setup(t, srv)
				b.put(t, letter(1))

				proxy := natstest.NewProxy(t, srv)
				_, js := natstest.Connect(t, srv, proxy.Through())
				interrupted := b.open(t, js)

				cut := false

				proxy.Filter(func(f natstest.Frame) natstest.Verdict {
					is := strings.HasSuffix(f.Subject, "STREAM.MSG.DELETE.DEAD") && bytes.Contains(f.Raw, []byte(c.removal))
					if cut = cut || is; cut && (!f.FromClient || is && c.lost) {
						return natstest.Lose
					}
					return natstest.Relay
				})

				_, err := interrupted.Replay(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{})
				check.ErrorIs(t, err, context.DeadlineExceeded)

				natstest.Pass(48 * time.Hour) // the server has forgotten the message IDs
				b.put(t, letter(2))

				var result deadletter.Result
				if next == "replayed" {
					result, err = b.store.Replay(t.Context(), deadletter.Filter{}, deadletter.ReplayOptions{})
				} else {
					result, err = b.store.Discard(t.Context(), deadletter.Filter{}, deadletter.DiscardOptions{})
				}

				check.That(t, err == nil && result.Failed == 0 && result.Done+result.Skipped == c.letters, "%+v, %v; want %d letters", result, err, c.letters)
				b.wantLeft(t, jobs, 0)
			})
		}
	}
}

// TestReplayOutlastsSilence loses all answers for six seconds, from one request of a replay on.
func TestReplayOutlastsSilence(t *testing.T) {
	for _, from := range []string{"dead.JOBS.$replay.1", "jobs.mail.1", `{"no_erase":true,"seq":1}`, `{"no_erase":true,"seq":2}`} {
		natstest.RunBubble(t, from, func(t *testing.T, srv *natsrun.Server) {
			b := setup(t, srv)
			b.put(t, letter(1))
			far, proxy := b.through(t)

			var silent time.Time

			proxy.Filter(natstest.Losing(func(f natstest.Frame) bool {
				if silent.IsZero() && f.FromClient && (f.Subject == from || bytes.HasSuffix(bytes.TrimSpace(f.Raw), []byte(from))) {
					silent = time.Now()
				}
				return !silent.IsZero() && !f.FromClient && time.Since(silent) < 6*time.Second
			}))

			far.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1})
			proxy.Filter(nil)
			check.That(t, !silent.IsZero(), "nothing was lost")
			b.wantLeft(t, 1, 0)
		})
	}
}

// TestUnsettledReplayIsNamed is about jobs of programs that note nothing.
func TestUnsettledReplayIsNamed(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := setup(t, srv)
		b.put(t, letter(1, func(l *worker.DeadLetter) { l.Worker = "" }))
		b.die(t, "jobs.", false)
		natstest.Pass(time.Hour)

		outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Skipped: 1})
		check.That(t, errors.Is(outcomes[0].Err, deadletter.ErrUnsettled) && b.messages(t, "JOBS") == 0, "%v, want ErrUnsettled", outcomes[0].Err)

		b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{Again: true, DryRun: true}, deadletter.Result{Done: 1})
		b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{Again: true}, deadletter.Result{Done: 1})

		b.wantLeft(t, 1, 0)

		// Within the window the server itself knows whether it was published.
		b.put(t, letter(2, func(l *worker.DeadLetter) { l.Worker = "" }))
		b.die(t, "jobs.", true)
		natstest.Pass(time.Minute)
		b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1})

		check.Equal(t, b.messages(t, "JOBS"), 2, "jobs")
	})
}

func TestReplayGoesOnAtTheFailedStep(t *testing.T) {
	t.Parallel()

	edit := func(worker.DeadLetter) ([]byte, error) { return []byte(`{"edited":true}`), nil }

	for name, c := range map[string]struct {
		opts deadletter.ReplayOptions
		want int // runs of the step that did not fail
	}{
		"as it is": {want: 1},
		"edited":   {opts: deadletter.ReplayOptions{Edit: edit}, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			b := setup(t, nil)
			ran, failed := 0, 0
			settled, stop := b.startWorker(t, func(ctx context.Context, job *worker.Job[any]) error {
				err := step.Do(ctx, job, "first", func(context.Context) error {
					ran++
					return nil
				})
				if err != nil {
					return err
				}
				return step.Do(ctx, job, "second", func(context.Context) error {
					failed++
					if failed <= 2 {
						return worker.Discard(errors.New("burnt"))
					}
					return nil
				})
			})
			check.OK(t, check.Err(b.js.Publish(t.Context(), "jobs.1", []byte(`{}`))))

			s := <-settled
			check.Require(t, s.Outcome == worker.OutcomeDead, "%s: %v", s.Outcome, s.Err)

			for _, want := range []worker.Outcome{worker.OutcomeDead, worker.OutcomeCompleted} { // the second is a replay of a replay
				result, err := b.store.Replay(t.Context(), deadletter.Filter{}, c.opts)
				check.Require(t, err == nil && result.Done == 1, "replay: %+v, %v", result, err)

				s := <-settled
				check.That(t, s.Outcome == want, "replayed: %s, %v; want %s", s.Outcome, s.Err, want)

				check.That(t, want != worker.OutcomeDead || ran == c.want, "the first step ran %d times, want %d", ran, c.want)
			}

			stop()
		})
	}
}

// elect has a stream be without a leader for eight seconds, from the first message to a subject with a certain part: no server takes its
// messages, and questions about it are refused.
func elect(p *natstest.Proxy, stream, family, first string) (ended func() bool) {
	const refusal = `{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`
	var end time.Time
	refused := map[string]bool{}
	elsewhere := func(f natstest.Frame, subject string) []byte {
		return bytes.Replace(f.Raw, []byte(f.Subject), []byte(subject), 1)
	}
	p.Change(func(f natstest.Frame) []byte {
		if end.IsZero() && f.FromClient && strings.Contains(f.Subject, first) {
			end = time.Now().Add(8 * time.Second)
		}
		switch {
		case !f.FromClient && refused[f.Subject]:
			delete(refused, f.Subject)
			return f.With([]byte(refusal), 0)
		case !f.FromClient || !time.Now().Before(end):
		case strings.HasPrefix(f.Subject, family):
			return elsewhere(f, "nowhere")
		case strings.HasPrefix(f.Subject, "$JS.API.STREAM.") && strings.HasSuffix(f.Subject, "."+stream):
			refused[f.Reply] = true
			return elsewhere(f, "$JS.API.INFO")
		}
		return nil
	})
	return func() bool {
		p.Change(nil)
		return !end.IsZero() && !time.Now().Before(end)
	}
}

// TestPassOutlastsAnElection has a stream elect a leader from one request of a pass on.
func TestPassOutlastsAnElection(t *testing.T) {
	const letters = 20
	unique := func(l *worker.DeadLetter) {
		if l.Sequence%2 == 0 {
			l.Header[worker.HeaderKeep] = []string{"0s"}
		}
	}
	for first, c := range map[string]struct {
		stream, family string
		jobs           uint64 // 0 to discard
	}{
		"STREAM.INFO.JOBS":       {"JOBS", "jobs.", letters},
		"STREAM.MSG.GET.JOBS":    {"JOBS", "jobs.", letters},
		"jobs.mail.5":            {"JOBS", "jobs.", letters},
		"STREAM.INFO.DEAD":       {"DEAD", "dead.", letters},
		"STREAM.MSG.GET.DEAD":    {"DEAD", "dead.", letters},
		"dead.JOBS.$replay.5":    {"DEAD", "dead.", letters},
		"STREAM.MSG.DELETE.DEAD": {"DEAD", "dead.", 0},
	} {
		natstest.RunBubble(t, first, func(t *testing.T, srv *natsrun.Server) {
			b := setup(t, srv, func(cfg *jetstream.StreamConfig) { cfg.Subjects = []string{"jobs.>", "jobs-done.>", "jobs-later.>"} })
			for n := range letters {
				b.put(t, letter(n+1, unique))
			}
			proxy := natstest.NewProxy(t, srv)
			_, js := natstest.Connect(t, srv, proxy.Through())
			ended := elect(proxy, c.stream, c.family, first)
			b.store = b.open(t, js)
			if c.jobs > 0 {
				b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: letters})
			} else {
				r, err := b.store.Discard(t.Context(), deadletter.Filter{}, deadletter.DiscardOptions{})
				check.That(t, err == nil && r.Done == letters, "%+v, %v", r, err)
			}
			check.That(t, ended(), "there was no election in the midst of the pass")
			b.wantLeft(t, c.jobs, 0)
		})
	}
}

// TestLetterWithoutAStreamFailsAlone: no wait can help a job whose stream is gone, full, or does not take its subject.
func TestLetterWithoutAStreamFailsAlone(t *testing.T) {
	for name, c := range map[string]struct {
		mutate  func(*jetstream.StreamConfig)
		subject string
		want    error
	}{
		"it does not take the subject": {func(*jetstream.StreamConfig) {}, "other.1", deadletter.ErrNoStream},
		"it is full":                   {func(cfg *jetstream.StreamConfig) { cfg.Discard, cfg.MaxBytes = jetstream.DiscardNew, 1000 }, "jobs.mail.1", nil},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			b := setup(t, srv, c.mutate)
			b.put(t, letter(1, func(l *worker.DeadLetter) {
				l.Subject = c.subject
				l.Header["long"] = []string{strings.Repeat("x", 1000)}
			}))
			b.put(t, letter(2))
			begun := time.Now()
			outcomes := b.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1, Failed: 1})
			took := time.Since(begun)
			check.That(t, took < 3*time.Second, "it took %s", took)
			if c.want != nil {
				check.ErrorIs(t, outcomes[0].Err, c.want)
				check.Equal(t, b.messages(t, "DEAD"), 1, "messages are left in the dead letter stream")
			}
		})
	}
}

// TestRefusedReplayThatWasStored: the server stores a unique job and refuses it, as it may around a change of leader.
func TestRefusedReplayThatWasStored(t *testing.T) {
	t.Parallel()

	b := setup(t, nil, func(cfg *jetstream.StreamConfig) { cfg.Subjects = []string{"jobs.>", "jobs-done.>", "jobs-later.>"} })
	b.put(t, letter(1, func(l *worker.DeadLetter) { l.Header[worker.HeaderKeep] = []string{"0s"} }))

	far, p := b.through(t)
	p.Hit(func(f natstest.Frame) bool { return f.Subject == "jobs.mail.1" }, natstest.RefusedApplied, 1)
	far.replay(t, deadletter.Filter{}, deadletter.ReplayOptions{}, deadletter.Result{Done: 1})
	b.wantLeft(t, 1, 0)
}
