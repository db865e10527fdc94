package deliver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// planned returns the plan of an event for n customers, each notified on two channels.
func (b *bench) planned(t *testing.T, n int) *plan.Plan {
	t.Helper()
	e := recipient.Event{EventID: "e", EventType: "X", AggregateType: "Y"}
	for i := range n {
		e.Recipients = append(e.Recipients, contracts.Recipient{RecipientType: "CUSTOMER", UserID: fmt.Sprint("u/", i)})
	}
	check.OK(t, check.Err(b.plan(t.Context(), e, recipient.Carried(nil), 0)))
	return check.Must(b.reader.Get(t.Context(), "e"))(t)
}

// Two expand the same plan at the same time, and one does afterwards: each notification is stored once.
func TestRowsAreStoredOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 2000)
	var all sync.WaitGroup
	var mu sync.Mutex
	var sum deliver.Stored
	expand := func(e *deliver.Expander) {
		stored, err := e.Expand(t.Context(), p)
		check.ErrorIs(t, err, nil)
		mu.Lock()
		defer mu.Unlock()
		sum.New, sum.Old = sum.New+stored.New, sum.Old+stored.Old
	}
	another := deliver.NewExpander(b.records, nil)
	all.Go(func() { expand(another) })
	all.Go(func() { expand(b.expander) })
	all.Wait()
	expand(another)
	rows, err := b.rows(t.Context(), "e")
	check.That(t, err == nil && len(rows) == 4000 && sum.New == 4000 && sum.Old == 8000, "%d rows, %+v: %v", len(rows), sum, err)
}

func TestARowSaysWhatItIs(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	check.OK(t, check.Err(b.expander.Expand(t.Context(), b.planned(t, 1))))
	msg := check.Must(b.stream.GetLastMsgForSubject(t.Context(), "notify.send.email.CUSTOMER.=dS8w.e"))(t)
	event, err := contracts.ParseCloudEvent(msg.Header, msg.Data)
	check.That(t, err == nil && event.Type == "io.expediter.notification.requested.v1" && event.ID == "e.email.CUSTOMER.=dS8w",
		"%+v: %v", event, err)
	row, err := contracts.Decode[contracts.Notification](event.Data)
	check.That(t, err == nil && row.UserID == "u/0", "%+v: %v", row, err)
	check.Equal(t, msg.Header.Get(worker.HeaderID), event.ID, "the job")
}

// An expansion that is interrupted says so, and does not say that the notifications are there.
func TestAnInterruptedExpansionIsNone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 100)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.ErrorIs(t, check.Err(b.expander.Expand(ctx, p)), context.Canceled)
	kept, err := b.reader.Event(t.Context(), "e")
	check.That(t, err == nil && kept.State == plan.StatePlanned, "%+v: %v", kept, err)
	p.Pages++ // one that is not there
	check.That(t, check.Err(b.expander.Expand(t.Context(), p)) != nil, "a page that is missing was taken for none")
	kept, err = b.reader.Event(t.Context(), "e")
	check.That(t, err == nil && kept.State == plan.StatePlanned, "%+v: %v", kept, err)
}

// A stream that is full takes no more notifications: the plan is not expanded then, and goes on where it was when there is room. The
// notifications that it took are counted.
func TestARowThatIsNotTakenIsNotStored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	exports, err := export.Start(t.Context(), export.Config{Service: "notifier"})
	check.OK(t, err)
	b.expander.Telemetry = check.Must(natsotel.New(natsotel.Config{MeterProvider: exports.Meters}))(t)
	p := b.planned(t, 500)
	config := b.stream.CachedInfo().Config
	config.MaxMsgs = 600
	check.OK(t, check.Err(b.js.UpdateStream(t.Context(), config)))
	first, err := b.expander.Expand(t.Context(), p)
	check.That(t, err != nil, "%+v", first)
	kept, err := b.reader.Event(t.Context(), "e")
	check.That(t, err == nil && kept.State == plan.StatePlanned, "%+v: %v", kept, err)
	config.MaxMsgs = -1
	check.OK(t, check.Err(b.js.UpdateStream(t.Context(), config)))
	stored, err := b.expander.Expand(t.Context(), p)
	check.That(t, err == nil && stored.New+stored.Old == 1000 && stored.Old != 0, "%+v: %v", stored, err)
	page := httptest.NewRecorder()
	exports.Metrics.ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	const labels = `messaging_destination_name="NOTIFICATIONS",messaging_operation_name="send",messaging_system="nats"} `
	check.Contains(t, page.Body.String(), fmt.Sprint("messaging_client_sent_messages_total{", labels, first.New+stored.New, "\n"))
	check.Contains(t, page.Body.String(), `messaging_client_sent_messages_total{error_type="error",`+labels+"1\n")
	rows, err := b.rows(t.Context(), "e")
	check.That(t, err == nil && len(rows) == 1000, "%d rows: %v", len(rows), err)
}

// The server restarts in the middle: notifications whose answers are lost are written again, until each is there.
func TestAnExpansionSurvivesARestartOfTheServer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 1000)
	sent := 0
	b.expander.Passing(func(point string) {
		if sent++; point == deliver.PointRow && sent == 700 { //nolint:gocritic // counts the notifications
			check.ErrorIs(t, b.srv.Restart(t.Context()), nil)
		}
	})
	stored, err := b.expander.Expand(t.Context(), p)
	check.That(t, err == nil && stored.New+stored.Old == 2000, "%+v: %v", stored, err)
	rows, err := b.rows(t.Context(), "e")
	check.That(t, err == nil && len(rows) == 2000, "%d rows: %v", len(rows), err)
}

// An event that is cancelled while its notifications are being stored stays cancelled, and its plan is not expanded again.
func TestAnEventThatIsCancelledStaysSo(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 3)
	b.expander.Passing(func(point string) {
		if point == deliver.PointRows {
			check.ErrorIs(t, check.Err(b.reader.Cancel(t.Context(), "e")), nil)
		}
	})
	for _, want := range []deliver.Stored{{New: 6}, {}} {
		stored, err := b.expander.Expand(t.Context(), p)
		check.That(t, err == nil && stored == want, "%+v, want %+v: %v", stored, want, err)
		kept, err := b.reader.Event(t.Context(), "e")
		check.That(t, err == nil && kept.State == plan.StateCancelled, "%+v: %v", kept, err)
	}
}

// box is an inbox that does as the test says.
type box struct {
	deliver func(user string) (deliver.Outcome, error)

	mu  sync.Mutex
	got map[string]int // how often it was given the notification of each user
}

func (*box) Immediate(n *contracts.Notification) bool { return n.Channel == "inapp" }

func (b *box) Deliver(_ context.Context, n contracts.Notification, _ json.RawMessage) (deliver.Outcome, error) {
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
	for subject := range check.Must(b.rows(t.Context(), "e"))(t) {
		if strings.HasPrefix(subject, "notify.send."+channel+".") {
			have++
		}
	}
	check.Equal(t, have, want, "rows of "+channel)
}

// A notification that the inbox has delivered, now or before, is not stored, and every other one is.
func TestRowsThatAreDeliveredAreNotStored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 1000)
	in := &box{deliver: func(user string) (deliver.Outcome, error) {
		return map[byte]deliver.Outcome{'7': deliver.Sent, '8': deliver.Known}[user[len(user)-1]], nil
	}}
	b.expander.Direct = in
	stored, err := b.expander.Expand(t.Context(), p)
	check.That(t, err == nil && stored == deliver.Stored{Delivered: 100, New: 1900, Old: 100}, "%+v: %v", stored, err)
	check.Equal(t, len(in.got), 1000, "rows given to the inbox")
	b.wantStored(t, "inapp", 800)
	b.wantStored(t, "email", 1000)
}

// An inbox that does not answer is not asked for the rest of the plan, whose notifications are stored.
func TestADirectDeliveryWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 2000)
	in := &box{deliver: func(string) (deliver.Outcome, error) { return deliver.Held, errors.New("no answer") }}
	b.expander.Direct = in
	stored, err := b.expander.Expand(t.Context(), p)
	check.That(t, err == nil && stored == deliver.Stored{New: 4000}, "%+v: %v", stored, err)
	check.That(t, len(in.got) < 1000, "the inbox was asked for %d rows", len(in.got))
	b.wantStored(t, "inapp", 2000)
	b.wantStored(t, "email", 2000)
}

// A panic is of one notification, which is stored for its worker to meet it.
func TestAPanicOfTheInbox(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 1)
	b.expander.Direct = &box{deliver: func(string) (deliver.Outcome, error) { panic("a bad notification") }}
	stored, err := b.expander.Expand(t.Context(), p)
	check.That(t, err == nil && stored == deliver.Stored{New: 2}, "%+v: %v", stored, err)
	b.wantStored(t, "inapp", 1)
}

// An expansion that is interrupted while the inbox delivers says so, and ends.
func TestAnExpansionThatIsInterruptedAtTheInbox(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 2000)
	ctx, cancel := context.WithCancel(t.Context())
	b.expander.Direct = &box{deliver: func(string) (deliver.Outcome, error) {
		cancel()
		return deliver.Held, fmt.Errorf("interrupted: %w", ctx.Err())
	}}
	check.ErrorIs(t, check.Err(b.expander.Expand(ctx, p)), context.Canceled)
	kept, err := b.reader.Event(t.Context(), "e")
	check.That(t, err == nil && kept.State == plan.StatePlanned, "%+v: %v", kept, err)
}

// A notification that is neither delivered nor stored is an error, and the plan is not expanded then.
func TestARowThatNeitherTakes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := recipient.Event{EventID: "e", EventType: "X", AggregateType: "Y"} // for one channel
	for i := range 10 {
		e.Recipients = append(e.Recipients, contracts.Recipient{RecipientType: "ADMIN", UserID: fmt.Sprint("u/", i)})
	}
	check.OK(t, check.Err(b.plan(t.Context(), e, recipient.Carried(nil), 0)))
	p := check.Must(b.reader.Get(t.Context(), "e"))(t)
	b.expander.Direct = &box{deliver: func(user string) (deliver.Outcome, error) {
		return map[bool]deliver.Outcome{true: deliver.Held, false: deliver.Sent}[user == "u/7"], nil
	}}
	config := b.stream.CachedInfo().Config
	config.MaxMsgs, config.Discard = 1, jetstream.DiscardNew
	check.OK(t, check.Err(b.js.UpdateStream(t.Context(), config)))
	stored, err := b.expander.Expand(t.Context(), p)
	check.That(t, errors.Is(err, kvrecord.ErrFull), "%+v: %v", stored, err)
	kept, err := b.reader.Event(t.Context(), "e")
	check.That(t, err == nil && kept.State == plan.StatePlanned, "%+v: %v", kept, err)
}
