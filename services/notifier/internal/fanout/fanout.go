package fanout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsotel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/row"
)

// The points that an expander passes, in order: between any two of them its process may die.
const (
	PointRow      = "fanout.row"      // a row was sent to the stream
	PointRows     = "fanout.rows"     // all rows are stored
	PointExpanded = "fanout.expanded" // the event's record has the state expanded
)

const (
	// window is the number of rows of one plan that are on their way to the stream at a time.
	window = 512

	// atOnce is the number of rows of one plan that the inbox delivers at a time. Their writes share packets.
	atOnce = 128

	// maxPending is never reached, because each plan keeps to its window.
	maxPending = 1 << 20

	// ackTimeout is the time after which a row without an answer is written again.
	ackTimeout = 5 * time.Second
)

// Inbox delivers rows at once that nothing delays, so that they need not be stored. A [deliver.Sender] is one.
type Inbox interface {
	// Immediate reports whether a row, by itself, may be delivered without being stored.
	Immediate(n *contracts.Notification) bool

	// Deliver delivers an immediate row, unless that was done before. After an error the row may have been delivered.
	Deliver(ctx context.Context, n contracts.Notification, payload json.RawMessage) (deliver.Outcome, error)
}

// Expander stores the rows of plans, or delivers them. It is safe for concurrent use, also by several processes.
type Expander struct {
	// Inbox delivers rows that need not be stored. Defaults to none: all are stored.
	Inbox Inbox

	// Telemetry counts the rows that are stored, and links their spans to the span of their expansion. Defaults to none.
	Telemetry *natsotel.Telemetry

	js     jetstream.JetStream // for publishing without waiting
	passed func(point string)
	reader *plan.Reader
	rows   *kvrecord.Stream
}

// New returns an expander. passed is called at each point, in tests; it may be nil. No round trip. The caller closes
// the expander.
func New(nc *nats.Conn, records *kvrecord.Client, passed func(point string)) (*Expander, error) {
	if passed == nil {
		passed = func(string) {}
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(maxPending), jetstream.WithPublishAsyncTimeout(ackTimeout))
	if err != nil {
		return nil, fmt.Errorf("notifier: %w", err)
	}
	return &Expander{js: js, passed: passed, reader: plan.NewReader(records), rows: records.Stream(contracts.StreamNotifications)}, nil
}

// Close ends the publisher. No call may be under way.
func (e *Expander) Close() { e.js.CleanupPublisher() }

// Stored is the result of an expansion.
type Stored struct {
	// Delivered is the number of new rows that were delivered, and not stored.
	Delivered int

	// New is the number of rows that this call stored or delivered.
	New int

	// Old is the number of rows that had been stored or delivered before.
	Old int
}

// Expand delivers the rows of a plan at once or stores them, unless that was done before, and returns when all rows are done. After any
// error and any crash it may be called again: the stream takes a row once, for as long as it keeps the row, and the inbox takes an item
// once. It holds a page of the plan and some hundred rows at a time. For a cancelled event it stores nothing.
func (e *Expander) Expand(ctx context.Context, p *plan.Plan) (Stored, error) {
	kept, err := e.reader.Event(ctx, p.EventID)
	if err != nil && !errors.Is(err, plan.ErrNotFound) {
		return Stored{}, err
	}
	if err == nil && kept.State == plan.StateCancelled {
		return Stored{}, nil
	}
	header, err := row.Header(p.CreatedAt)
	if err != nil {
		return Stored{}, err
	}
	within, sending := e.Telemetry.Send(ctx, contracts.StreamNotifications, header) // once for all rows of the plan, before they are marked
	x := expansion{Expander: e, header: header, plan: p}
	stored, err := x.run(within)
	sending.EndSends(stored.New-stored.Delivered, err)
	if err != nil {
		return stored, err
	}
	e.passed(PointRows)
	if err := e.reader.Expanded(ctx, p); err != nil {
		return stored, err
	}
	e.passed(PointExpanded)
	return stored, nil
}

// expansion is one expansion of a plan.
type expansion struct {
	*Expander

	header nats.Header // of rows
	plan   *plan.Plan

	mu     sync.Mutex
	failed error // the first error for which a row was not stored
	stored Stored
	unsure bool // the inbox did not answer
}

// run stores or delivers all rows, and counts them.
func (x *expansion) run(ctx context.Context) (Stored, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	room := make(chan struct{}, atOnce)
	var delivering sync.WaitGroup
	err := x.store(ctx, func(n contracts.Notification) {
		room <- struct{}{}
		delivering.Go(func() {
			defer func() { <-room }()
			if err := x.deliver(ctx, n); err != nil {
				x.fail(err)
				cancel()
			}
		})
	})
	if err != nil {
		x.fail(err)
		cancel()
	}
	delivering.Wait()
	return x.stored, x.failed
}

func (x *expansion) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.failed == nil {
		x.failed = err
	}
}

// isUnsure reports whether the inbox did not answer in this expansion. Then all further rows are stored.
func (x *expansion) isUnsure() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.unsure
}

// count counts a row.
func (x *expansion) count(isNew bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if isNew {
		x.stored.New++
	} else {
		x.stored.Old++
	}
}

// ask has the inbox deliver a row. A panic is an error of this row alone. The worker of the stored row panics as
// well, and reports it.
func (x *expansion) ask(ctx context.Context, n contracts.Notification) (outcome deliver.Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			outcome, err = deliver.Held, fmt.Errorf("deliver the row of %s/%.80q: panic: %v", n.RecipientType, n.UserID, p)
		}
	}()
	return x.Inbox.Deliver(ctx, n, x.plan.Payload)
}

// deliver has the inbox deliver a row, and stores the row if it is held, or if it is not known whether it was delivered.
func (x *expansion) deliver(ctx context.Context, n contracts.Notification) error {
	outcome, err := x.ask(ctx, n)
	x.mu.Lock()
	switch {
	case err != nil:
		x.unsure = true
	case outcome == deliver.Sent:
		x.stored.New++
		x.stored.Delivered++
	case outcome == deliver.Known:
		x.stored.Old++
	}
	x.mu.Unlock()
	if err == nil && outcome != deliver.Held {
		return nil
	}
	msg, err := new(row.Encoder).Message(n, x.header)
	if err != nil {
		return fmt.Errorf("plan of %.80q: %w", x.plan.EventID, err)
	}
	x.passed(PointRow)
	return x.put(ctx, msg)
}

// store stores the rows of the plan, and calls immediate with the rows that the inbox may deliver.
func (x *expansion) store(ctx context.Context, immediate func(contracts.Notification)) error {
	var encoder row.Encoder
	flight := make([]sent, 0, window)
	settle := func(n int) error {
		for _, s := range flight[:n] {
			if err := x.settle(ctx, s); err != nil {
				return err
			}
		}
		flight = append(flight[:0], flight[n:]...)
		return nil
	}
	for n, err := range x.reader.Rows(ctx, x.plan) {
		if err != nil {
			return err
		}
		if x.Inbox != nil && x.Inbox.Immediate(&n) && !x.isUnsure() {
			immediate(n)
			continue
		}
		if len(flight) == window {
			if err := settle(window / 2); err != nil {
				return err
			}
		}
		s, err := x.send(n, &encoder)
		if err != nil {
			return fmt.Errorf("plan of %.80q: %w", x.plan.EventID, err)
		}
		flight = append(flight, s)
		x.passed(PointRow)
	}
	return settle(len(flight))
}

// sent is a row on its way to the stream.
type sent struct {
	future jetstream.PubAckFuture
	msg    *nats.Msg
}

func (x *expansion) send(n contracts.Notification, encoder *row.Encoder) (sent, error) {
	msg, err := encoder.Message(n, x.header)
	if err != nil {
		return sent{}, err
	}
	s := sent{msg: msg}
	// The option writes into the headers. A second attempt, see settle, replaces its value.
	to := &nats.Msg{Subject: msg.Subject, Data: msg.Data, Header: msg.Header}
	s.future, err = x.js.PublishMsgAsync(to, jetstream.WithExpectLastSequencePerSubject(0))
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return s, fmt.Errorf("publish %s: %w", msg.Subject, err)
	case err != nil:
		return s, fmt.Errorf("%w: publish %s: %w", kvrecord.ErrUnavailable, msg.Subject, err)
	}
	return s, nil
}

// settle waits until a row is in the stream. After a refusal that does not name the existing row, or without an
// answer, the outcome is unknown. Then settle writes the row until the stream has it. A row that exists there can only
// be the same.
func (x *expansion) settle(ctx context.Context, s sent) error {
	select {
	case <-s.future.Ok():
		x.count(true)
		return nil
	case err := <-s.future.Err():
		if at, ok := kvrecord.RefusedAt(err); ok && at > 0 { // the server names the record that is there
			x.count(false)
			return nil
		}
	case <-ctx.Done():
		return fmt.Errorf("%w: store %s: %w", kvrecord.ErrUnavailable, s.msg.Subject, context.Cause(ctx))
	}
	return x.put(ctx, s.msg)
}

// put stores a row, unless it is stored already.
func (x *expansion) put(ctx context.Context, msg *nats.Msg) error {
	_, err := x.rows.Put(ctx, kvrecord.Write{Subject: msg.Subject, Header: msg.Header, Data: msg.Data})
	if err != nil && !errors.Is(err, kvrecord.ErrConflict) {
		return err
	}
	x.count(err == nil)
	return nil
}
