package deadletter_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

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
			check.Same(t, "jobs", b.messages(t, "JOBS"), c.jobs)
			check.Same(t, "messages are left in the dead letter stream", b.messages(t, "DEAD"), 0)
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
				check.Is(t, outcomes[0].Err, c.want)
				check.Same(t, "messages are left in the dead letter stream", b.messages(t, "DEAD"), 1)
			}
		})
	}
}
