package deliver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// bench is a server on which events are planned and expanded by processes that die.
type bench struct {
	expander *deliver.Expander
	js       jetstream.JetStream
	reader   *plan.Reader
	records  *kvrecord.Client
	rules    *rules.Rules
	stream   jetstream.Stream
}

func newBench(t *testing.T) *bench {
	t.Helper()
	js, records := recordtest.Open(t, natstest.Server(t))
	const routes = `{version: 1, events: {X: {CUSTOMER: {scope: all, channels: [inapp, email]}, ADMIN: {scope: all, channels: [inapp]}}}}`
	return &bench{
		expander: deliver.NewExpander(records, nil), js: js, reader: plan.NewReader(records), records: records,
		rules:  check.Must(rules.Parse([]byte(routes), []string{"inapp", "email"}))(t),
		stream: check.Must(js.Stream(t.Context(), contracts.StreamNotifications))(t),
	}
}

// process runs a process, which dies at the n-th point that it passes; 0 is none.
func process(death int, run func(passed func(point string)) error) error {
	type killed struct{}
	defer func() {
		if r := recover(); r != nil && r != any(killed{}) {
			panic(r)
		}
	}()
	return run(func(string) {
		if death--; death == 0 { //nolint:gocritic // counts the points
			panic(killed{})
		}
	})
}

// plan has a process plan an event.
func (b *bench) plan(ctx context.Context, e recipient.Event, r recipient.Resolver, death int) error {
	return process(death, func(passed func(string)) error {
		p := plan.New(b.records, plan.Config{PageBytes: 200, Passed: passed, Resolver: r, Rules: func() *rules.Rules { return b.rules }})
		return check.Err(p.Plan(ctx, e))
	})
}

// expand has a process expand the plan of an event, if there is one.
func (b *bench) expand(ctx context.Context, id string, death int) error {
	p, err := b.reader.Get(ctx, id)
	if errors.Is(err, plan.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return process(death, func(passed func(string)) error {
		return check.Err(deliver.NewExpander(b.records, passed).Expand(ctx, p))
	})
}

// planned returns the plan of an event for n customers, each notified on two channels.
func (b *bench) planned(t *testing.T, n int) *plan.Plan {
	t.Helper()
	e := recipient.Event{EventID: "e", EventType: "X", AggregateType: "Y"}
	for i := range n {
		e.Recipients = append(e.Recipients, contracts.Recipient{RecipientType: "CUSTOMER", UserID: fmt.Sprint("u/", i)})
	}
	check.OK(t, b.plan(t.Context(), e, recipient.Carried(nil), 0))
	return check.Must(b.reader.Get(t.Context(), "e"))(t)
}

// notifications returns the notifications of an event as they are stored, by subject.
func (b *bench) notifications(ctx context.Context, id string) (map[string]string, error) {
	info, err := b.stream.Info(ctx, jetstream.WithSubjectFilter("notify.send.*.*.*."+id))
	if err != nil {
		return nil, err
	}
	notifications := map[string]string{}
	for subject := range info.State.Subjects {
		msg, err := b.stream.GetLastMsgForSubject(ctx, subject)
		if err != nil {
			return nil, err
		}
		notifications[subject] = string(msg.Data)
	}
	return notifications, nil
}

// changingDirectory is a directory that returns other users each time that it is asked, and remembers its answers.
type changingDirectory struct{ answers [][]string }

func (c *changingDirectory) Resolve(_ context.Context, q recipient.Query) iter.Seq2[contracts.Recipient, error] {
	return func(yield func(contracts.Recipient, error) bool) {
		if q.Type == "ADMIN" {
			c.answers = append(c.answers, nil)
		}
		round := len(c.answers) - 1
		for i := range 7 + round%5 {
			r := contracts.Recipient{RecipientType: q.Type, UserID: fmt.Sprintf("user-%d-%d", i, (i*round)%3)}
			c.answers[round] = append(c.answers[round], string(r.RecipientType)+"/"+r.UserID)
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Whichever process dies, in any order: the plan is one answer of the directory, it never changes once it is there, and the
// notifications are those of the plan, each stored once.
func TestAnyOrderOfCrashesGivesTheNotificationsOfThePlan(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	run := 0
	rapid.Check(t, func(r *rapid.T) {
		run++
		e := recipient.Event{EventID: fmt.Sprint("e", run), EventType: "X", AggregateType: "Y"}
		var c changingDirectory
		committed := ""
		for range rapid.IntRange(0, 8).Draw(r, "steps") {
			death := rapid.IntRange(0, 40).Draw(r, "death")
			if rapid.Bool().Draw(r, "expand") {
				check.OK(t, b.expand(t.Context(), e.EventID, death))
			} else {
				check.OK(t, b.plan(t.Context(), e, &c, death))
			}
			p, err := b.reader.Get(t.Context(), e.EventID)
			if committed != "" && (err != nil || p.Attempt != committed) {
				r.Fatalf("the plan changed: %s, then %+v, %v", committed, p, err)
			}
			if err == nil {
				committed = p.Attempt
			}
		}
		check.OK(t, b.plan(t.Context(), e, &c, 0))
		check.OK(t, b.expand(t.Context(), e.EventID, 0))
		p := check.Must(b.reader.Get(t.Context(), e.EventID))(t)
		var users []string
		want := map[string]string{}
		for n, err := range b.reader.Notifications(t.Context(), p) {
			check.OK(t, err)
			want[check.Must(keys.Send(&n))(t)] = string(check.Must(contracts.Encode(n))(t))
			if n.Channel == "inapp" {
				users = append(users, string(n.RecipientType)+"/"+n.UserID)
			}
		}
		if diff := cmp.Diff(want, check.Must(b.notifications(t.Context(), e.EventID))(t)); diff != "" {
			r.Errorf("-notifications of the plan +notifications that are there\n%s", diff)
		}
		if !slices.ContainsFunc(c.answers, func(said []string) bool { return slices.Equal(said, users) }) ||
			len(users) != p.Recipients || len(want) != p.Notifications {
			r.Errorf("the plan says %d recipients and %d notifications, and has %v", p.Recipients, p.Notifications, users)
		}
		if state := check.Must(b.stream.Info(t.Context()))(t).State; state.Msgs != state.LastSeq {
			r.Errorf("%d messages were stored and %d are there: something was replaced", state.LastSeq, state.Msgs)
		}
	})
}

func TestANotificationSaysWhatItIs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	check.OK(t, check.Err(b.expander.Expand(t.Context(), b.planned(t, 1))))
	msg := check.Must(b.stream.GetLastMsgForSubject(t.Context(), "notify.send.email.CUSTOMER.=dS8w.e"))(t)
	event, err := contracts.ParseCloudEvent(msg.Header, msg.Data)
	check.That(t, err == nil && event.Type == "io.expediter.notification.requested.v1" && event.ID == "e.email.CUSTOMER.=dS8w",
		"%+v: %v", event, err)
	notification, err := contracts.Decode[contracts.Notification](event.Data)
	check.That(t, err == nil && notification.UserID == "u/0", "%+v: %v", notification, err)
	check.Equal(t, msg.Header.Get(worker.HeaderID), event.ID, "the job")
}

// An expansion that is interrupted, while it reads the plan or while the inbox delivers, or that misses a page, is an error and no end.
func TestAnInterruptedExpansionIsNone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 2000)
	ctx, cancel := context.WithCancel(t.Context())
	b.expander.Direct = &fakeInbox{deliver: func(string) (deliver.Outcome, error) {
		cancel()
		return deliver.Held, fmt.Errorf("interrupted: %w", ctx.Err())
	}}
	for range 2 {
		check.ErrorIs(t, check.Err(b.expander.Expand(ctx, p)), context.Canceled)
	}
	b.expander.Direct = nil
	p.Pages++ // one that is not there
	check.That(t, check.Err(b.expander.Expand(t.Context(), p)) != nil, "a page that is missing was taken for none")
	check.Equal(t, check.Must(b.reader.Event(t.Context(), "e"))(t).State, plan.StatePlanned, "state")
}

// A stream that is full takes no more notifications: the plan is not expanded then, and goes on where it was when there is room. The
// notifications that it took are counted.
func TestANotificationThatIsNotTakenIsNotStored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "notifier"}))(t)
	b.expander.Telemetry = check.Must(natsotel.New(natsotel.Config{MeterProvider: exports.Meters}))(t)
	p := b.planned(t, 500)
	config := b.stream.CachedInfo().Config
	config.MaxMsgs = 600
	check.OK(t, check.Err(b.js.UpdateStream(t.Context(), config)))
	first, err := b.expander.Expand(t.Context(), p)
	check.That(t, err != nil, "%+v", first)
	check.Equal(t, check.Must(b.reader.Event(t.Context(), "e"))(t).State, plan.StatePlanned, "state")
	config.MaxMsgs = -1
	check.OK(t, check.Err(b.js.UpdateStream(t.Context(), config)))
	stored, err := b.expander.Expand(t.Context(), p)
	check.That(t, err == nil && stored.New+stored.Old == 1000 && stored.Old != 0, "%+v: %v", stored, err)
	page := httptest.NewRecorder()
	exports.Metrics.ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	const labels = `messaging_destination_name="NOTIFICATIONS",messaging_operation_name="send",messaging_system="nats"} `
	check.Contains(t, page.Body.String(), fmt.Sprint("messaging_client_sent_messages_total{", labels, first.New+stored.New, "\n"),
		`messaging_client_sent_messages_total{error_type="error",`+labels+"1\n")
	notifications, err := b.notifications(t.Context(), "e")
	check.That(t, err == nil && len(notifications) == 1000, "%d notifications: %v", len(notifications), err)
}

// An event that is cancelled while its notifications are being stored stays cancelled, and its plan is not expanded again.
func TestAnEventThatIsCancelledStaysSo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 3)
	expander := deliver.NewExpander(b.records, func(point string) {
		if point == deliver.PointAllStored {
			check.ErrorIs(t, check.Err(b.reader.Cancel(t.Context(), "e")), nil)
		}
	})
	for _, want := range []deliver.Stored{{New: 6}, {}} {
		stored, err := expander.Expand(t.Context(), p)
		check.That(t, err == nil && stored == want, "%+v, want %+v: %v", stored, want, err)
		check.Equal(t, check.Must(b.reader.Event(t.Context(), "e"))(t).State, plan.StateCancelled, "state")
	}
}

// fakeInbox is an inbox that does as the test says.
type fakeInbox struct {
	deliver func(user string) (deliver.Outcome, error)

	mu  sync.Mutex
	got map[string]int // how often it was given the notification of each user
}

func (*fakeInbox) Immediate(n *contracts.Notification) bool { return n.Channel == "inapp" }

func (b *fakeInbox) Deliver(_ context.Context, n contracts.Notification, _ json.RawMessage) (deliver.Outcome, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.got == nil {
		b.got = map[string]int{}
	}
	b.got[n.UserID]++
	return b.deliver(n.UserID)
}

// wantStored wants so many notifications of a channel to be stored.
func (b *bench) wantStored(t *testing.T, channel string, want int) {
	t.Helper()
	have := 0
	for subject := range check.Must(b.notifications(t.Context(), "e"))(t) {
		if strings.HasPrefix(subject, "notify.send."+channel+".") {
			have++
		}
	}
	check.Equal(t, have, want, "notifications of "+channel)
}

// A notification that the inbox has delivered, now or before, is not stored, and every other one is. An inbox that does not answer is
// not asked for the rest of the plan. A panic is of one notification, whose worker is to meet it.
func TestNotificationsThatAreDeliveredAreNotStored(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		deliver func(user string) (deliver.Outcome, error)
		users   int
		asked   int // of these users at most
		stored  deliver.Stored
		inapp   int // notifications that are stored
	}{
		"some": {func(user string) (deliver.Outcome, error) {
			return map[byte]deliver.Outcome{'7': deliver.Sent, '8': deliver.Known}[user[len(user)-1]], nil
		}, 1000, 1000, deliver.Stored{Delivered: 100, New: 1900, Old: 100}, 800},
		"no answer": {func(string) (deliver.Outcome, error) { return deliver.Held, errors.New("no answer") }, 2000, 1000, deliver.Stored{New: 4000}, 2000},
		"a panic":   {func(string) (deliver.Outcome, error) { panic("a bad notification") }, 1, 1, deliver.Stored{New: 2}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			in := &fakeInbox{deliver: test.deliver}
			b.expander.Direct = in
			stored, err := b.expander.Expand(t.Context(), b.planned(t, test.users))
			check.That(t, err == nil && stored == test.stored, "%+v: %v", stored, err)
			check.That(t, len(in.got) <= test.asked, "the inbox was asked for %d notifications", len(in.got))
			b.wantStored(t, "inapp", test.inapp)
			b.wantStored(t, "email", test.users)
		})
	}
}
