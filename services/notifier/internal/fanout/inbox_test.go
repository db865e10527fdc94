package fanout_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/fanout"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// box is an inbox that does as the test says.
type box struct {
	deliver func(user string) (deliver.Outcome, error)

	mu  sync.Mutex
	got map[string]int // how often it was given the row of each user
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

// wantStored wants so many rows of a channel to be stored.
func (b *bench) wantStored(t *testing.T, channel string, want int) {
	t.Helper()
	have := 0
	for subject := range check.Must(b.rows(t.Context(), "e"))(t) {
		if strings.HasPrefix(subject, "notify.send."+channel+".") {
			have++
		}
	}
	check.Same(t, "rows of "+channel, have, want)
}

// A row that the inbox has delivered, now or before, is not stored, and every other one is.
func TestRowsThatAreDeliveredAreNotStored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 1000)
	in := &box{deliver: func(user string) (deliver.Outcome, error) {
		return map[byte]deliver.Outcome{'7': deliver.Sent, '8': deliver.Known}[user[len(user)-1]], nil
	}}
	b.expander.Inbox = in
	stored, err := b.expander.Expand(t.Context(), p)
	check.That(t, err == nil && stored == fanout.Stored{Delivered: 100, New: 1900, Old: 100}, "%+v: %v", stored, err)
	check.Same(t, "rows given to the inbox", len(in.got), 1000)
	b.wantStored(t, "inapp", 800)
	b.wantStored(t, "email", 1000)
}

// An inbox that does not answer is not asked for the rest of the plan, whose rows are stored.
func TestAnInboxThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 2000)
	in := &box{deliver: func(string) (deliver.Outcome, error) { return deliver.Held, errors.New("no answer") }}
	b.expander.Inbox = in
	stored, err := b.expander.Expand(t.Context(), p)
	check.That(t, err == nil && stored == fanout.Stored{New: 4000}, "%+v: %v", stored, err)
	check.That(t, len(in.got) < 1000, "the inbox was asked for %d rows", len(in.got))
	b.wantStored(t, "inapp", 2000)
	b.wantStored(t, "email", 2000)
}

// A panic is of one row, which is stored for its worker to meet it.
func TestAPanicOfTheInbox(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 1)
	b.expander.Inbox = &box{deliver: func(string) (deliver.Outcome, error) { panic("a bad row") }}
	stored, err := b.expander.Expand(t.Context(), p)
	check.That(t, err == nil && stored == fanout.Stored{New: 2}, "%+v: %v", stored, err)
	b.wantStored(t, "inapp", 1)
}

// An expansion that is interrupted while the inbox delivers says so, and ends.
func TestAnExpansionThatIsInterruptedAtTheInbox(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 2000)
	ctx, cancel := context.WithCancel(t.Context())
	b.expander.Inbox = &box{deliver: func(string) (deliver.Outcome, error) {
		cancel()
		return deliver.Held, fmt.Errorf("interrupted: %w", ctx.Err())
	}}
	check.Is(t, check.Err(b.expander.Expand(ctx, p)), context.Canceled)
	kept, err := b.reader.Event(t.Context(), "e")
	check.That(t, err == nil && kept.State == plan.StatePlanned, "%+v: %v", kept, err)
}

// A row that is neither delivered nor stored is an error, and the plan is not expanded then.
func TestARowThatNeitherTakes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	e := contracts.Event{EventID: "e", EventType: "X", AggregateType: "Y"} // for one channel
	for i := range 10 {
		e.Recipients = append(e.Recipients, contracts.Recipient{RecipientType: contracts.RecipientAdmin, UserID: fmt.Sprint("u/", i)})
	}
	check.OK(t, check.Err(b.plan(t.Context(), e, recipient.Carried(nil), 0)))
	p := check.Must(b.reader.Get(t.Context(), "e"))(t)
	b.expander.Inbox = &box{deliver: func(user string) (deliver.Outcome, error) {
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
