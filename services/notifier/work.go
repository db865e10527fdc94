package notifier

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

const (
	// expansions is the number of plans that are expanded at a time. Each keeps hundreds of notifications under way.
	expansions = 4

	// planTimeout bounds one attempt to find the recipients of an event and to store its plan; expandTimeout bounds one
	// attempt to store the notifications.
	planTimeout   = 10 * time.Minute
	expandTimeout = 30 * time.Minute

	// attempts is the number of attempts at a plan, and at an expansion. Plans fail because of the source of recipients, and
	// such failures pass. Failures of the store use no attempt.
	attempts = 50

	// storeSnooze is the pause after the store did not answer.
	storeSnooze = time.Second

	// planBackoff bounds the wait after a failure of the source of recipients, and expandBackoff the wait after any other error
	// except the store's. The worker counts deaths of workers as attempts too, so only failures of the source wait for long.
	planBackoff, expandBackoff = 5 * time.Minute, 15 * time.Second
)

// undecoded is a message that its handler decodes, because decoding needs the subject too.
type undecoded struct{}

func leave(nats.Header, []byte, any) error { return nil }

func (n *Notifier) planPolicy() worker.Policy {
	return worker.Policy{
		Backoff: worker.Exponential(time.Second, planBackoff), Decode: leave, MaxAttempts: attempts, OnDeadLetter: n.refuse, Timeout: planTimeout,
	}
}

func expandPolicy() worker.Policy {
	return worker.Policy{Backoff: worker.Exponential(time.Second, expandBackoff), Decode: leave, MaxAttempts: attempts, Timeout: expandTimeout}
}

// planEvent is the handler of events.
func (n *Notifier) planEvent(ctx context.Context, job *worker.Job[undecoded]) error {
	event, err := api.Read(job.Subject, job.Header, job.Data)
	if err != nil {
		n.counters.refused.Add(1)
		return worker.Discard(err)
	}
	outcome, err := n.planner.Plan(ctx, event)
	if err != nil {
		return n.planFailed(ctx, err)
	}
	switch outcome {
	case plan.Planned:
		n.counters.planned.Add(1)
	case plan.Duplicate:
		n.counters.duplicates.Add(1)
		n.cfg.Logger.DebugContext(ctx, "notifier: event already processed, skipping", "event_id", event.EventID)
	case plan.Ignored:
		n.counters.ignored.Add(1)
		n.cfg.Logger.DebugContext(ctx, "notifier: no rule is for the event", "event_id", event.EventID, "event_type", event.EventType)
	}
	return nil
}

// unplannable are the errors that every attempt to plan an event would end in.
var unplannable = []error{contracts.ErrInvalid, kvrecord.ErrTooLarge, plan.ErrMismatch, plan.ErrTooFar, plan.ErrTooLarge}

// planFailed returns the error for the worker after a failure to plan: whether the event is tried again.
func (n *Notifier) planFailed(ctx context.Context, err error) error {
	source, ok := errors.AsType[*recipient.Error](err)
	_, badRoute := errors.AsType[*rules.Error](err)
	switch {
	case errors.Is(err, kvrecord.ErrUnavailable):
		return n.later(ctx, err)
	case ok && source.Permanent, badRoute, slices.ContainsFunc(unplannable, func(final error) bool { return errors.Is(err, final) }):
		n.counters.refused.Add(1)
		return worker.Discard(err)
	}
	return err
}

// later puts off a job after the store did not answer, without using an attempt. A worker that stops gives the job back. A job
// that has run out of time may be too much work, so it uses an attempt.
func (n *Notifier) later(ctx context.Context, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), worker.ErrShutdown):
		return err
	case ctx.Err() != nil:
		return worker.Retry(storeSnooze, err)
	}
	n.cfg.Logger.WarnContext(ctx, "notifier: a job is put off", "error", err)
	return worker.Snooze(storeSnooze)
}

// refuse records in an event that it is dead-lettered, so that its waiters learn of it. Only the store's silence delays the dead letter:
// whatever else prevents the record is the fault of the event, and the dead letter has the reason.
func (n *Notifier) refuse(ctx context.Context, letter worker.DeadLetter) error {
	event, err := api.Read(letter.Subject, letter.Header, letter.Payload)
	if err == nil {
		err = n.planner.Refuse(ctx, event, letter.Error)
	}
	if errors.Is(err, kvrecord.ErrUnavailable) || errors.Is(err, kvrecord.ErrClosed) {
		return err
	}
	if err != nil {
		n.cfg.Logger.WarnContext(ctx, "notifier: an event is refused without a record", "error", err)
	}
	return nil
}

// expandPlan is the handler of plans.
func (n *Notifier) expandPlan(ctx context.Context, job *worker.Job[undecoded]) error {
	p, err := plan.Decode(job.Data)
	if err != nil {
		return worker.Discard(err)
	}
	stored, err := n.expander.Expand(ctx, p)
	n.counters.rows.Add(int64(stored.New))
	n.counters.repeated.Add(int64(stored.Old))
	if errors.Is(err, kvrecord.ErrUnavailable) {
		return n.later(ctx, err)
	}
	return err
}

// payload returns the payload of an event, from its plan.
func (n *Notifier) payload(ctx context.Context, eventID string) (json.RawMessage, error) {
	if payload, ok := n.payloads.get(eventID); ok {
		return payload, nil
	}
	p, err := n.reader.Get(ctx, eventID)
	if err != nil {
		return nil, err
	}
	n.payloads.put(eventID, p.Payload)
	return p.Payload, nil
}

// maxPayloads is the number of payloads that are kept in memory. The notifications of one event are delivered together.
const maxPayloads = 16

// payloads has the payloads of the events whose notifications were delivered last.
type payloads struct {
	mu   sync.Mutex
	byID map[string]json.RawMessage
}

func (c *payloads) get(eventID string) (json.RawMessage, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	payload, ok := c.byID[eventID]
	return payload, ok
}

func (c *payloads) put(eventID string, payload json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.byID[eventID]; known {
		return // the notifications of a new event may miss it at the same moment
	}
	if c.byID == nil || len(c.byID) >= maxPayloads {
		c.byID = map[string]json.RawMessage{} // those of the events of now come again
	}
	c.byID[eventID] = payload
}

type counters struct{ duplicates, ignored, planned, refused, repeated, rows atomic.Int64 }

// Stats counts the work of a notifier since it started.
type Stats struct {
	// Duplicates is the number of events that had a plan already.
	Duplicates int64 `json:"duplicates"`

	// Ignored is the number of events to which no rule applies.
	Ignored int64 `json:"ignored"`

	// Planned is the number of events that this notifier has planned.
	Planned int64 `json:"planned"`

	// Refused is the number of events that went to the dead letters.
	Refused int64 `json:"refused"`

	// Repeated is the number of notifications that were stored, or delivered, before.
	Repeated int64 `json:"repeated"`

	// Notifications is the number of notifications that were stored, or delivered without being stored.
	Notifications int64 `json:"notifications"`

	// Rules is the state of the rules.
	Rules RulesStats `json:"rules"`

	// States is the number of times that notifications entered each state.
	States map[string]int64 `json:"states"`
}

// Stats returns the counts of the notifier since it started.
func (n *Notifier) Stats() Stats {
	stats := Stats{
		Duplicates: n.counters.duplicates.Load(), Ignored: n.counters.ignored.Load(), Planned: n.counters.planned.Load(),
		Refused: n.counters.refused.Load(), Repeated: n.counters.repeated.Load(), Notifications: n.counters.rows.Load(),
		Rules: n.rules.Stats(), States: map[string]int64{},
	}
	for _, s := range n.senders {
		for came, times := range s.Came() {
			stats.States[string(came.State)] += times
		}
	}
	return stats
}

// State is the state of a notification, see [Delivery].
type State = deliveries.State

// Delivery is the record of one notification: its state, the reason for it, and every attempt to send it.
type Delivery = deliveries.Delivery

// Accepted is the outcome of publishing an event.
type Accepted = api.Accepted

// Event is the state of an event.
type Event = api.Event

// Cancellation names an event or a digest that is no longer to be delivered.
type Cancellation = api.Cancellation

// Cancelled counts the outcomes of the notifications of a cancellation.
type Cancelled = api.Cancelled

// Replayed is the result of a replay.
type Replayed = api.Replayed

// Notification is one notification: one event, one user, one channel, with its outcome.
type Notification = api.Notification

// Query selects notifications.
type Query = api.Query

// Page is a page of the notifications that a query selects.
type Page = api.Page

// ReadEvent reads an event as the APIs do. The error is a *contracts.ValidationError.
func ReadEvent(data []byte) (recipient.Event, error) { return api.Read(api.Direct, nil, data) }

// UserRequest is a request about a user.
type UserRequest = api.UserRequest

// User is the document of a user.
type User = api.User

// MembersRequest is a request about the aggregates whose events concern a user.
type MembersRequest = api.MembersRequest

// Members has the aggregates whose events concern a user.
type Members = api.Members

// UserQuery selects users.
type UserQuery = api.UserQuery

// UserPage is a page of the users that a query selects.
type UserPage = api.UserPage

// ImportedUser is the outcome of a line of an import.
type ImportedUser = api.Imported

// TestMessage is a message that shows the text of a template. It belongs to no user, and leaves no notification.
type TestMessage = api.TestMessage

// TestSent is the outcome of a test message.
type TestSent = api.TestSent

// AddressRequest is a request about one of a user's addresses on a channel.
type AddressRequest = api.AddressRequest
