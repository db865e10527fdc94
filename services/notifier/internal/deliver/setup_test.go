package deliver_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// provider is a channel that does as the test says, by the number of the call, from 1.
type provider struct {
	answer func(ctx context.Context, call int) (channel.Receipt, error)

	mu   sync.Mutex
	at   []time.Time
	sent []channel.Message
}

func (*provider) Name() string { return "push" }

func (b *provider) Send(ctx context.Context, m channel.Message) (channel.Receipt, error) {
	b.mu.Lock()
	b.sent = append(b.sent, m)
	b.at = append(b.at, time.Now())
	call := len(b.sent)
	b.mu.Unlock()
	if b.answer == nil {
		return channel.Receipt{ID: "r"}, nil
	}
	return b.answer(ctx, call)
}

func fails(kind channel.Kind) func(context.Context, int) (channel.Receipt, error) {
	return func(context.Context, int) (channel.Receipt, error) {
		return channel.Receipt{}, &channel.Error{Channel: "push", Kind: kind, Detail: "no"}
	}
}

// failsFirst fails the first calls with errs, and takes the others.
func failsFirst(errs ...error) func(context.Context, int) (channel.Receipt, error) {
	return func(_ context.Context, call int) (channel.Receipt, error) {
		if call <= len(errs) {
			return channel.Receipt{}, errs[call-1]
		}
		return channel.Receipt{Delivered: true}, nil
	}
}

// profile knows one user.
type profile contracts.Recipient

func (p profile) Get(context.Context, contracts.RecipientType, string) (contracts.Recipient, bool, error) {
	return contracts.Recipient(p), true, nil
}

func (profile) Drop(context.Context, contracts.RecipientType, string, string, string) (bool, error) {
	return false, nil
}

// profileFunc is a directory that is asked for a user.
type profileFunc func(user string) (contracts.Recipient, error)

func (f profileFunc) Get(_ context.Context, _ contracts.RecipientType, user string) (contracts.Recipient, bool, error) {
	r, err := f(user)
	return r, err == nil, err
}

func (profileFunc) Drop(context.Context, contracts.RecipientType, string, string, string) (bool, error) {
	return false, nil
}

// fixture is one notification on a server, and the workers that send it.
type fixture struct {
	*testing.T

	deliveries    *deliveries.Store
	digests       *hold.Digests
	js            jetstream.JetStream
	srv           *natsrun.Server
	throttles     *hold.Throttles
	notifications *kvrecord.Stream
}

const theKey = "e.push.CUSTOMER.u"

// runWithFixture is withFixture as a subtest.
func runWithFixture(t *testing.T, name string, f func(n *fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { withFixture(t, f) })
}

// withFixture runs a test under fake time, which starts at midnight UTC.
func withFixture(t *testing.T, f func(n *fixture)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		js, records := recordtest.Open(t, srv)
		f(&fixture{
			T: t, deliveries: deliveries.New(records), digests: hold.NewDigests(records), js: js,
			notifications: records.Stream(contracts.StreamNotifications), srv: srv,
			throttles: hold.NewThrottles(records),
		})
	})
}

// aNotification is a notification of an event for a user.
func aNotification(event, user string, mutate ...func(*contracts.Notification)) contracts.Notification {
	notification := contracts.Notification{
		EventID: event, UserID: user, RecipientType: "CUSTOMER", Channel: "push", EventType: "X", CreatedAt: time.Now().UTC(),
	}
	for _, m := range mutate {
		m(&notification)
	}
	return notification
}

// put stores a notification.
func (n *fixture) put(notification contracts.Notification) {
	n.Helper()
	data := check.Must(contracts.Encode(notification))(n)
	check.OK(n, check.Err(n.js.Publish(n.Context(), check.Must(keys.Send(&notification))(n), data)))
}

// store stores the notification.
func (n *fixture) store(mutate ...func(*contracts.Notification)) {
	n.Helper()
	n.put(aNotification("e", "u", append([]func(*contracts.Notification){withCategory}, mutate...)...))
}

// withCategory is a notification of the category c.
func withCategory(notification *contracts.Notification) { notification.Category = "c" }

func (n *fixture) sender(name string, b *provider, p profile, mutate ...func(*deliver.Config)) *deliver.Sender {
	n.Helper()
	cfg := deliver.Config{
		Cancelled: &cancellations{}, Paused: func(string) bool { return false }, Preferences: func(contracts.RecipientType, string) string { return "" },
		Read:    func(context.Context, *contracts.Notification) (bool, error) { return false, nil },
		Channel: b, Digests: n.digests, Deliveries: n.deliveries, Logger: slog.New(slog.DiscardHandler), Profiles: p,
		Notifications: n.notifications, Throttles: n.throttles, Worker: name,
		Payload: func(context.Context, string) (json.RawMessage, error) { return json.RawMessage(`{"from":"plan"}`), nil },
	}
	for _, m := range mutate {
		m(&cfg)
	}
	return check.Must(deliver.New(cfg))(n)
}

// startWorker has a process send notifications until stop, or the end of the test.
func (n *fixture) startWorker(s *deliver.Sender) (stop func()) {
	n.Helper()
	_, js := natstest.Connect(n.T, n.srv)
	w, err := worker.New(js, worker.Config{
		AckWait:    30 * time.Second, // heartbeats of days of fake time take long
		AutoCreate: true, Bucket: contracts.BucketJobs, Consumer: "push",
		Logger: slog.New(slog.DiscardHandler), SoftStop: -1, Stream: contracts.StreamNotifications,
	})
	if err == nil {
		err = worker.Handle(w, "notify.send."+s.Channel()+".>", s.Policy(), s.Work)
	}
	check.OK(n, err)
	return natstest.Background(n, w.Run)
}

// startSending has the process "a" send notifications by a provider that takes everything, and returns the provider.
func (n *fixture) startSending(p profile, mutate ...func(*deliver.Config)) *provider {
	n.Helper()
	b := &provider{}
	n.startWorker(n.sender("a", b, p, mutate...))
	return b
}

// dieAt leaves the notification as a process leaves it that dies at a point when it is delivered for the n-th time.
func (n *fixture) dieAt(b *provider, at string, delivered int, mutate ...func(*deliver.Config)) {
	n.Helper()
	type killed struct{}
	s := n.sender("dead", b, profile{}, append(mutate, func(c *deliver.Config) {
		c.Passed = func(point string) {
			if point == at {
				panic(killed{})
			}
		}
	})...)
	func() {
		defer func() {
			_, ok := recover().(killed)
			check.Require(n, ok, "it did not die")
		}()
		check.OK(n, s.Work(n.Context(), n.job(delivered)))
	}()
}

// diesAt has a process die when it passes a point for the n-th time; left counts down to that.
func diesAt(point string, nth int32) (mutate func(*deliver.Config), left *atomic.Int32) {
	left = new(atomic.Int32)
	left.Store(nth)
	return func(c *deliver.Config) {
		c.Passed = func(at string) {
			if at == point && left.Add(-1) == 0 {
				panic("the process died")
			}
		}
	}, left
}

// record returns the notification's record in the store of deliveries.
func (n *fixture) record() *deliveries.Delivery {
	n.Helper()
	return check.Must(n.deliveries.Get(n.Context(), theKey))(n)
}

// want wants the notification in a state, after attempts with outcomes.
func (n *fixture) want(state deliveries.State, reason string, outcomes ...string) {
	n.Helper()
	n.wantDelivery(n.record(), state, reason, outcomes)
}

func (n *fixture) wantDelivery(d *deliveries.Delivery, state deliveries.State, reason string, outcomes []string) {
	n.Helper()
	var got []string
	for _, a := range d.Attempts {
		got = append(got, a.Outcome)
	}
	check.That(n, d.State == state && d.Reason == reason && slices.Equal(got, outcomes),
		"the notification is %s (%s) after %q, want %s (%s) after %q", d.State, d.Reason, got, state, reason, outcomes)
}

// deadLetters is how many dead letters there are.
func (n *fixture) deadLetters() uint64 {
	n.Helper()
	stream := check.Must(n.js.Stream(n.Context(), contracts.StreamDead))(n)
	info := check.Must(stream.Info(n.Context(), jetstream.WithSubjectFilter(contracts.DeadSubjects)))(n)
	var sum uint64
	for _, count := range info.State.Subjects {
		sum += count
	}
	return sum
}

// elapse lets fake time pass, until all workers wait again. The test may then read the records that they have
// written.
func elapse(d time.Duration) {
	natstest.Pass(d)
	synctest.Wait()
}

// job is the notification as it is delivered for the n-th time.
func (n *fixture) job(delivered int, mutate ...func(*contracts.Notification)) *worker.Job[contracts.Notification] {
	job := &worker.Job[contracts.Notification]{Args: aNotification("e", "u", mutate...)}
	job.Deliveries, job.Subject = delivered, check.Must(keys.Send(&job.Args))(n)
	return job
}

// snoozed is for how long a notification is put off.
func snoozed(err error) time.Duration {
	if snooze, ok := errors.AsType[*worker.SnoozeError](err); ok {
		return snooze.Delay
	}
	return 0
}
