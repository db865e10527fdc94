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
	"github.com/expediter-io/expediter/services/notifier/internal/fanout"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	rows "github.com/expediter-io/expediter/services/notifier/internal/row"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// box is an inbox that does as the test says.
type box struct {
	deliver func(user string, again bool) (bool, error)

	mu  sync.Mutex
	got map[string]int // how often it was given the row of each user
}

func (*box) Immediate(n *contracts.Notification) bool { return n.Channel == "inapp" }

func (b *box) Deliver(_ context.Context, n contracts.Notification, _ json.RawMessage, again bool) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.got == nil {
		b.got = map[string]int{}
	}
	b.got[n.UserID]++
	return b.deliver(n.UserID, again)
}

// stored returns how many rows of a channel are stored, and how many of these say that their message may have come.
func (b *bench) stored(t *testing.T, channel string) (all, again int) {
	t.Helper()
	there := check.Must(b.rows(t.Context(), "e"))(t)
	for subject := range there {
		if !strings.HasPrefix(subject, "notify.send."+channel+".") {
			continue
		}
		msg := check.Must(b.stream.GetLastMsgForSubject(t.Context(), subject))(t)
		all++
		if rows.IsAgain(msg.Header) {
			again++
		}
	}
	return all, again
}

func (b *bench) wantStored(t *testing.T, channel string, all, again int) {
	t.Helper()
	haveAll, haveAgain := b.stored(t, channel)
	check.That(t, haveAll == all && haveAgain == again, "%d rows of %s, %d may have come: want %d and %d", haveAll, channel, haveAgain, all, again)
}

// A row that the inbox has delivered is not stored, and every other one is.
func TestRowsThatAreDeliveredAreNotStored(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 1000)
	in := &box{deliver: func(user string, again bool) (bool, error) { return strings.HasSuffix(user, "7") && !again, nil }}
	b.expander.Inbox = in
	stored, err := b.expander.Expand(t.Context(), p, false)
	check.That(t, err == nil && stored == fanout.Stored{Delivered: 100, New: 2000}, "%+v: %v", stored, err)
	check.Same(t, "rows given to the inbox", len(in.got), 1000)
	b.wantStored(t, "inapp", 900, 0)
	b.wantStored(t, "email", 1000, 0)
}

// A plan that may have been expanded before, by a process that died or goes on, has the inbox look what has come. Its other rows say that
// their message may come yet.
func TestARepeatedExpansionDeliversNothing(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(t *testing.T, b *bench, p *plan.Plan) bool{
		"delivered again": func(*testing.T, *bench, *plan.Plan) bool { return true },
		"expanded before": func(t *testing.T, b *bench, p *plan.Plan) bool {
			t.Helper()
			check.OK(t, b.reader.Expanded(t.Context(), p))
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			p := b.planned(t, 100)
			b.expander.Inbox = &box{deliver: func(user string, again bool) (bool, error) {
				check.That(t, again, "the row of %s is delivered", user)
				return strings.HasSuffix(user, "7"), nil
			}}
			stored, err := b.expander.Expand(t.Context(), p, before(t, b, p))
			check.That(t, err == nil && stored == fanout.Stored{New: 190, Old: 10}, "%+v: %v", stored, err)
			b.wantStored(t, "inapp", 90, 90)
			b.wantStored(t, "email", 100, 0)
		})
	}
}

// An inbox that does not answer is not asked for the rest of the plan, whose rows are stored: those that it was asked for say that their
// message may have come.
func TestAnInboxThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 2000)
	in := &box{deliver: func(string, bool) (bool, error) { return false, errors.New("no answer") }}
	b.expander.Inbox = in
	stored, err := b.expander.Expand(t.Context(), p, false)
	check.That(t, err == nil && stored == fanout.Stored{New: 4000}, "%+v: %v", stored, err)
	check.That(t, len(in.got) < 1000, "the inbox was asked for %d rows", len(in.got))
	b.wantStored(t, "inapp", 2000, len(in.got))
	b.wantStored(t, "email", 2000, 0)
}

// A panic is of one row, which is stored for its worker to meet it.
func TestAPanicOfTheInbox(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 1)
	b.expander.Inbox = &box{deliver: func(string, bool) (bool, error) { panic("a bad row") }}
	stored, err := b.expander.Expand(t.Context(), p, false)
	check.That(t, err == nil && stored == fanout.Stored{New: 2}, "%+v: %v", stored, err)
	b.wantStored(t, "inapp", 1, 1)
}

// An expansion that is interrupted while the inbox delivers says so, and ends.
func TestAnExpansionThatIsInterruptedAtTheInbox(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.planned(t, 2000)
	ctx, cancel := context.WithCancel(t.Context())
	b.expander.Inbox = &box{deliver: func(string, bool) (bool, error) {
		cancel()
		return false, fmt.Errorf("interrupted: %w", ctx.Err())
	}}
	check.Is(t, check.Err(b.expander.Expand(ctx, p, false)), context.Canceled)
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
	b.expander.Inbox = &box{deliver: func(user string, _ bool) (bool, error) { return user != "u/7", nil }}
	config := b.stream.CachedInfo().Config
	config.MaxMsgs, config.Discard = 1, jetstream.DiscardNew
	check.OK(t, check.Err(b.js.UpdateStream(t.Context(), config)))
	stored, err := b.expander.Expand(t.Context(), p, false)
	check.That(t, errors.Is(err, kvrecord.ErrFull), "%+v: %v", stored, err)
	kept, err := b.reader.Event(t.Context(), "e")
	check.That(t, err == nil && kept.State == plan.StatePlanned, "%+v: %v", kept, err)
}
