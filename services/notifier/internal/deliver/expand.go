package deliver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
)

// The points that an expander passes, in order: between any two of them its process may die.
const (
	PointNotificationStored = "expand.notification" // a notification was sent to the stream
	PointAllStored          = "expand.stored"       // all notifications are stored
	PointExpanded           = "expand.expanded"     // the event's record has the state expanded
)

// atOnce is the number of notifications of one plan that are stored or delivered at a time. Their writes share packets.
const atOnce = 256

// Direct delivers notifications at once that nothing delays, so that they need not be stored. The [Sender] of the inbox is one.
type Direct interface {
	// Immediate reports whether a notification, by itself, may be delivered without being stored.
	Immediate(n *contracts.Notification) bool

	// Deliver delivers an immediate notification, unless that was done before. After an error the notification may have been delivered.
	Deliver(ctx context.Context, n contracts.Notification, payload json.RawMessage) (Outcome, error)
}

// Expander stores the notifications of plans, or delivers them. It is safe for concurrent use, also by several processes.
type Expander struct {
	// Direct delivers notifications that need not be stored. Defaults to none: all are stored.
	Direct Direct

	// Telemetry counts the notifications that are stored, and links their spans to the span of their expansion. Defaults to none.
	Telemetry *natsotel.Telemetry

	passed func(point string)
	reader *plan.Reader
	rows   *kvrecord.Stream
}

// NewExpander returns an expander. passed is called at each point, in tests; it may be nil. No round trip.
func NewExpander(records *kvrecord.Client, passed func(point string)) *Expander {
	if passed == nil {
		passed = func(string) {}
	}
	return &Expander{passed: passed, reader: plan.NewReader(records), rows: records.Stream(contracts.StreamNotifications)}
}

// Stored is the result of an expansion.
type Stored struct {
	// Delivered is the number of new notifications that were delivered, and not stored.
	Delivered int

	// New is the number of notifications that this call stored or delivered.
	New int

	// Old is the number of notifications that had been stored or delivered before.
	Old int
}

// Expand delivers the notifications of a plan at once or stores them, unless that was done before, and returns when all notifications
// are done. After any error and any crash it may be called again: the stream takes a notification once, for as long as it keeps the
// notification, and the inbox takes an item once. It holds a page of the plan and some hundred notifications at a time. For a cancelled
// event it stores nothing.
func (e *Expander) Expand(ctx context.Context, p *plan.Plan) (Stored, error) {
	kept, err := e.reader.Event(ctx, p.EventID)
	if err != nil && !errors.Is(err, plan.ErrNotFound) {
		return Stored{}, err
	}
	if err == nil && kept.State == plan.StateCancelled {
		return Stored{}, nil
	}
	header, err := deliveries.Header(p.CreatedAt)
	if err != nil {
		return Stored{}, err
	}
	within, sending := e.Telemetry.Send(ctx, contracts.StreamNotifications, header) // once for all of the plan, before they are marked
	x := expansion{Expander: e, header: header, plan: p}
	stored, err := x.run(within)
	sending.EndSends(stored.New-stored.Delivered, err)
	if err != nil {
		return stored, err
	}
	e.passed(PointAllStored)
	if err := e.reader.Expanded(ctx, p); err != nil {
		return stored, err
	}
	e.passed(PointExpanded)
	return stored, nil
}

// expansion is one expansion of a plan.
type expansion struct {
	*Expander

	header nats.Header // of notifications
	plan   *plan.Plan

	unsure atomic.Bool // the inbox did not answer: all further notifications are stored

	mu     sync.Mutex
	stored Stored
}

// run stores or delivers all notifications, some at a time, and counts them.
func (x *expansion) run(ctx context.Context) (Stored, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	var encoder deliveries.Encoder
	var failed error
	for n, err := range x.reader.Notifications(ctx, x.plan) {
		if err == nil && ctx.Err() != nil {
			err = fmt.Errorf("%w: plan of %.80q: %w", kvrecord.ErrUnavailable, x.plan.EventID, context.Cause(ctx))
		}
		var w *kvrecord.Write // nil for a notification that the inbox may deliver
		if err == nil && (x.Direct == nil || x.unsure.Load() || !x.Direct.Immediate(&n)) {
			w, err = x.encode(&encoder, n)
		}
		if failed = err; err != nil {
			break
		}
		group.Go(func() error { return x.one(ctx, n, w) })
		if w != nil {
			x.passed(PointNotificationStored)
		}
	}
	err := group.Wait()
	return x.stored, cmp.Or(err, failed)
}

func (x *expansion) count(one Stored) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stored = Stored{Delivered: x.stored.Delivered + one.Delivered, New: x.stored.New + one.New, Old: x.stored.Old + one.Old}
}

func (x *expansion) encode(encoder *deliveries.Encoder, n contracts.Notification) (*kvrecord.Write, error) {
	w, err := encoder.Write(n, x.header)
	if err != nil {
		return nil, fmt.Errorf("plan of %.80q: %w", x.plan.EventID, err)
	}
	return &w, nil
}

// one stores a notification by w, unless it is stored already. Without w it has the inbox deliver the notification, and stores a
// notification that the inbox holds, or of which it is not known whether it was delivered.
func (x *expansion) one(ctx context.Context, n contracts.Notification, w *kvrecord.Write) error {
	if w == nil {
		switch outcome, err := x.ask(ctx, n); {
		case err != nil:
			x.unsure.Store(true)
		case outcome == Sent:
			x.count(Stored{Delivered: 1, New: 1})
			return nil
		case outcome == Known:
			x.count(Stored{Old: 1})
			return nil
		}
		var err error
		if w, err = x.encode(new(deliveries.Encoder), n); err != nil {
			return err
		}
		x.passed(PointNotificationStored)
	}
	switch _, err := x.rows.Put(ctx, *w); {
	case errors.Is(err, kvrecord.ErrConflict):
		x.count(Stored{Old: 1})
	case err != nil:
		return err
	default:
		x.count(Stored{New: 1})
	}
	return nil
}

// ask has the inbox deliver a notification. A panic is an error of this notification alone. The worker of the stored notification
// panics as well, and reports it.
func (x *expansion) ask(ctx context.Context, n contracts.Notification) (outcome Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			outcome, err = Held, fmt.Errorf("deliver the notification of %s/%.80q: panic: %v", n.RecipientType, n.UserID, p)
		}
	}()
	return x.Direct.Deliver(ctx, n, x.plan.Payload)
}
