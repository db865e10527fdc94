package denied_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/denied"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	create  = "$JS.API.STREAM.CREATE.X"
	foreign = "$JS.OTHER.API.STREAM.INFO.X" // no account exports it here
)

// Work ends at once, by the name of its subject, at a request that is denied or to which nothing answers, and at no other. Other work goes
// on.
func TestWorkEndsAtADenial(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *testing.T, ctx context.Context, js jetstream.JetStream)
		want string // "" for work that goes on
	}{
		"a publish": {func(t *testing.T, ctx context.Context, js jetstream.JetStream) {
			t.Helper()
			check.That(t, check.Err(js.CreateStream(ctx, jetstream.StreamConfig{Name: "X"})) != nil, "the stream was made")
		}, "the user may not publish to " + create},
		"a message": {func(t *testing.T, ctx context.Context, js jetstream.JetStream) {
			t.Helper()
			denied.Sent(ctx, "jobs.a")
			check.OK(t, errors.Join(js.Conn().Publish("jobs.a", nil), js.Conn().Publish("jobs.b", nil)))
		}, "the user may not publish to jobs.a"},
		"a subscription": {func(t *testing.T, ctx context.Context, js jetstream.JetStream) {
			t.Helper()
			denied.Sent(ctx, "secrets.a")
			check.OK(t, check.Err(js.Conn().SubscribeSync("secrets.a")))
		}, ""},
		"a missing import": {func(t *testing.T, ctx context.Context, js jetstream.JetStream) {
			t.Helper()
			js = check.Must(jetstream.NewWithAPIPrefix(js.Conn(), "$JS.OTHER.API"))(t)
			_, err := check.Must(denied.JetStream(ctx, js))(t).Stream(ctx, "X")
			check.ErrorIs(t, err, nats.ErrNoResponders)
			denied.Failed(ctx, err)
		}, "nothing answers to " + foreign},
		"an election": {func(_ *testing.T, ctx context.Context, _ jetstream.JetStream) {
			denied.Answered(ctx, foreign, nil)
			natstest.Pass(time.Minute - 1)
			denied.Answered(ctx, foreign, nats.ErrNoResponders)
		}, ""},
		"after an answer": {func(_ *testing.T, ctx context.Context, _ jetstream.JetStream) {
			denied.Answered(ctx, foreign, nil)
			natstest.Pass(time.Minute)
			denied.Answered(ctx, foreign, nats.ErrNoResponders)
		}, "nothing answers to " + foreign},
		"a message for nobody": {func(_ *testing.T, ctx context.Context, _ jetstream.JetStream) {
			denied.Answered(ctx, "events.a", nats.ErrNoResponders)
		}, ""},
	} {
		bubble(t, name, func(t *testing.T, w *denied.Watch, js jetstream.JetStream, _ chan string) {
			ctx, stop := w.Begin(t.Context())
			defer stop()
			other, stop := w.Begin(t.Context())
			defer stop()
			c.do(t, ctx, check.Must(denied.JetStream(ctx, js))(t))
			check.OK(t, js.Conn().FlushTimeout(time.Second)) // after the server's errors
			select {
			case <-ctx.Done():
				cause, ok := errors.AsType[*denied.Error](context.Cause(ctx))
				check.That(t, ok && c.want != "" && strings.HasPrefix(cause.Error(), c.want), "it ends with %v", context.Cause(ctx))
			case <-time.After(time.Hour):
				check.Equal(t, "", c.want, "the end of the work")
			}
			check.OK(t, other.Err())
		})
	}
}

// Each subject is reported once, and not where it was only asked whether it may be used.
func TestDenialsAreReported(t *testing.T) {
	bubble(t, "reports", func(t *testing.T, w *denied.Watch, js jetstream.JetStream, reports chan string) {
		for range 2 {
			check.Equal(t, w.May(t.Context(), "$JS.API.INFO"), true, "may ask")
			check.Equal(t, w.May(t.Context(), create), false, "may create")
		}
		check.Equal(t, len(reports), 0, "reports")
		for range 2 {
			check.OK(t, js.Conn().Publish("jobs.a", nil))
		}
		check.OK(t, js.Conn().FlushTimeout(time.Second))
		check.Equal(t, <-reports, "jobs.a", "report")
		natstest.Pass(time.Second)
		check.Equal(t, len(reports), 0, "more reports")
	})
}

// bubble runs a test over the connection of a user who may do little.
func bubble(t *testing.T, name string, f func(*testing.T, *denied.Watch, jetstream.JetStream, chan string)) {
	t.Helper()
	natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
		reports := make(chan string, 10)
		w := denied.New(func(err *denied.Error) { reports <- err.Subject })
		nc, js := natstest.Connect(t, srv, natstest.Restricted(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			subject, publish, known := denied.Subject(err)
			check.That(t, known && w.Handle(err) == publish, "%v about %q", err, subject)
		}))
		w.Conn = nc
		f(t, w, js, reports)
	}, natstest.Restrict(server.Permissions{
		Publish:   &server.SubjectPermission{Deny: []string{create, "jobs.>"}},
		Subscribe: &server.SubjectPermission{Deny: []string{"secrets.>"}},
	}))
}
