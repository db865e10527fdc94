package deliver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/digest"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	rows "github.com/expediter-io/expediter/services/notifier/internal/row"
)

// The points that a sender passes, in order: between any two of them its process may die.
const (
	PointClaimed  = "deliver.claimed"  // the attempt is recorded; not for the inbox
	PointSent     = "deliver.sent"     // the channel has answered; for the inbox, the outcome is recorded too
	PointEnded    = "deliver.ended"    // a row has ended, and the row that follows it is not stored yet
	PointFollowed = "deliver.followed" // the row of the next channel is stored
	PointRecorded = "deliver.recorded" // the outcome is recorded; not for the inbox
)

// The points that a sender passes with a row for several addresses, and with the rows of these addresses.
const (
	PointSplit   = "deliver.split"   // the split is recorded
	PointSpread  = "deliver.spread"  // the row of one more address is stored
	PointUnheard = "deliver.unheard" // the row of an address has ended without reaching the user, and the split row does not have that yet
)

// The points that a sender passes with a row that goes into a digest, and with a digest.
const (
	PointNoted  = "deliver.noted"  // the digest of the row is recorded
	PointJoined = "deliver.joined" // the row is in the digest
	PointSealed = "deliver.sealed" // the digest takes no more events
)

// PointUnread is passed when a user has not read the event of a row in the inbox.
const PointUnread = "deliver.unread"

// PointGranted is passed when a throttle has let a row through.
const PointGranted = "deliver.granted"

const (
	// storeSnooze is the pause after the store did not answer. It uses no attempt of the row.
	storeSnooze = time.Second

	// recordTimeout bounds the attempts to record the outcome of a call.
	recordTimeout = 30 * time.Second

	// dropTimeout bounds the attempts to drop an address that is gone. The next message to the address tries again.
	dropTimeout = 5 * time.Second

	// longestBackoff is the longest wait after an error of neither the channel nor the store. The worker also counts deaths of
	// workers as attempts, so the waits must not grow with the attempts.
	longestBackoff = 15 * time.Second

	// crashes is the number of attempts that a job has for the deaths of workers, in addition to those that the record
	// counts.
	crashes = 10
)

// ErrUnknownOutcome is returned for a row that may have been sent and must not be sent twice.
var ErrUnknownOutcome = errors.New("it is not known whether the channel has taken the message, and it must not get it twice")

// errStale is the reason for putting off a replayed row whose record does not have the replay yet.
var errStale = errors.New("the server that answered has not heard of the replay yet")

// Sender sends the rows of one channel. It is safe for concurrent use, also by several processes.
type Sender struct {
	cfg   Config
	inbox Inbox // nil for any other channel
	rows  rows.Decoder

	mu   sync.Mutex
	came map[Standing]int64 // the number of times that rows entered each state
}

// New returns a sender.
func New(cfg Config) (*Sender, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Sender{cfg: cfg, came: map[Standing]int64{}}
	s.inbox, _ = cfg.Channel.(Inbox)
	return s, nil
}

// Policy returns the policy by which the worker runs [Sender.Work].
func (s *Sender) Policy() worker.Policy {
	return worker.Policy{
		Backoff:      worker.Exponential(storeSnooze, longestBackoff),
		OnDeadLetter: s.onDeadLetter,
		MaxAttempts:  len(s.cfg.Retries) + 1 + crashes,
		Timeout:      s.cfg.Timeout + 2*recordTimeout,
		Decode:       s.decode,
	}
}

// row is one row that is being worked.
type row struct {
	contracts.Notification

	call    *health.Call    // admitted by the health of the endpoint, and without an outcome yet
	carried json.RawMessage // the payload in the row itself
	key     string
	late    bool // it has waited: its cancellation may not have reached this process
	profile contracts.Recipient
	to      contracts.Endpoint // the user's address on the channel
	sealed  bool               // the digest takes no more events
	single  *digest.Item       // the only event of a digest
}

// Work sends one row, unless it has ended, or is to wait. It never acts on a read alone: it calls the channel after an attempt has
// been written over exactly the record that was read, and an item of the inbox is itself written over that record.
func (s *Sender) Work(ctx context.Context, job *worker.Job[contracts.Notification]) error {
	n := job.Args
	key, err := keys.Of(&n)
	if err != nil {
		return worker.Cancel(err)
	}
	_, replay, _ := keys.OfSubject(job.Subject)
	late := job.Deliveries > 1 || replay > 0 || n.FallbackOf != "" || n.Address != ""
	r := &row{Notification: n, carried: n.Payload, key: key, late: late}
	d := &deliveries.Delivery{State: deliveries.Pending}
	if r.late {
		if d, err = s.cfg.Deliveries.Get(ctx, key); err != nil {
			return s.later(ctx, r, err)
		}
	}
	if d.Replays < replay { // a replay is recorded before its message is stored, so this record is an old one
		return s.later(ctx, r, errStale)
	}
	for {
		err := s.advance(ctx, r, d)
		taken, ok := errors.AsType[*deliveries.TakenError](err)
		if !ok {
			return err
		}
		d = taken.There
	}
}

// advance takes the next step with a row, by its record.
func (s *Sender) advance(ctx context.Context, r *row, d *deliveries.Delivery) (err error) {
	if d.AtOnce { // the expander got no answer, and stored the row too
		d.AtOnce = false
		if err := s.write(ctx, r, d); err != nil {
			return err
		}
		s.report(ctx, r, d, nil)
	}
	if d.State.Ended() {
		return s.follow(ctx, r, d, nil)
	}
	if d.State == deliveries.Sending {
		if wait := time.Until(d.Until); wait > 0 {
			return worker.Snooze(wait)
		}
		last := &d.Attempts[len(d.Attempts)-1]
		last.Outcome = deliveries.OutcomeUnknown
		s.log(ctx, slog.LevelWarn, r, "caller of the channel died", "worker", last.Worker, "attempt", len(d.Attempts))
		if s.cfg.AtMostOnce {
			return s.end(ctx, r, d, deliveries.Failed, deliveries.ReasonUnknownOutcome, worker.Cancel(ErrUnknownOutcome))
		}
		if d.Tries() > len(s.cfg.Retries) {
			return s.end(ctx, r, d, deliveries.Failed, deliveries.ReasonExhausted, worker.Cancel(ErrUnknownOutcome))
		}
	}
	if !r.Collected { // the cancellation of a digest ends its row; events, and digests of other users, may have the same id
		cancelled, err := s.cfg.Cancelled.Covers(ctx, &r.Notification, r.late)
		if err != nil {
			return s.later(ctx, r, err)
		}
		if cancelled {
			return s.end(ctx, r, d, deliveries.Suppressed, deliveries.ReasonCancelled, nil)
		}
	}
	if !r.giveUpAt(d).After(time.Now()) {
		return s.end(ctx, r, d, deliveries.Failed, deliveries.ReasonFallbackAfter, nil)
	}
	if time.Now().Before(r.NotBefore) { // whatever the channel and the priority
		return s.wait(ctx, r, d, r.NotBefore, deliveries.ReasonNotBefore)
	}
	if r.Collected {
		if err = s.recall(ctx, r); err != nil {
			return s.later(ctx, r, err)
		}
	}
	// The order matters. hold and choose need the profile that unknown reads. A row is held as one, so choose splits it for its addresses
	// after that. unreachable takes a slot for the call, so nothing may hold the row after it.
	type look = func(context.Context, *row, *deliveries.Delivery) (held bool, err error)
	for _, holds := range []look{s.unknown, s.seen, s.hold, s.choose, s.unreachable} {
		if held, err := holds(ctx, r, d); held {
			return err
		}
	}
	defer s.left(r)
	if r.Collected {
		return s.sendDigest(ctx, r, d)
	}
	if r.Payload == nil {
		if r.Payload, err = s.cfg.Payload(ctx, r.EventID); err != nil {
			return s.later(ctx, r, err)
		}
	}
	return s.send(ctx, r, d)
}

// send records the attempt, calls the channel, and records the outcome.
func (s *Sender) send(ctx context.Context, r *row, d *deliveries.Delivery) error {
	if s.inbox != nil {
		return s.sendItem(ctx, r, d)
	}
	begun := time.Now().UTC()
	d.Attempts = append(d.Attempts, deliveries.Attempt{At: begun, Worker: s.cfg.Worker})
	d.State, d.Reason, d.Until = deliveries.Sending, "", begun.Add(s.timeout(r))
	if err := s.write(ctx, r, d); err != nil {
		return err
	}
	s.cfg.Passed(PointClaimed)
	call, cancel := context.WithDeadline(ctx, d.Until)
	call, measured := s.cfg.Telemetry.Call(call, r.Channel)
	sent := s.message(r, d)
	dialled := time.Now()
	receipt, err := s.cfg.Channel.Send(call, sent)
	took := time.Since(dialled)
	interrupted := context.Cause(ctx)
	cancel()
	s.cfg.Passed(PointSent)

	var failure *channel.Error
	if err != nil {
		failure = channel.Of(r.Channel, err)
		if interrupted != nil && failure.Unsure() {
			failure = &channel.Error{Channel: r.Channel, Kind: channel.KindInterrupted, Cause: err}
		}
		measured.End(string(failure.Kind), failure)
	} else {
		measured.End(natsotel.OutcomeOK, nil)
	}
	verdict := s.setOutcome(r, d, receipt, failure)
	ended := d.State.Ended()
	d.Attempts[len(d.Attempts)-1].TookMS = time.Since(begun).Milliseconds()
	err = s.settle(ctx, r, d)
	if call := r.call; call != nil {
		r.call, call.Took = nil, took
		s.cfg.Health.Called(ctx, call, sent, failure)
	}
	if err != nil { // the next worker of the row will count this attempt as dead
		return s.later(ctx, r, fmt.Errorf("the outcome of a call could not be written down: %w", err))
	}
	s.cfg.Passed(PointRecorded)
	if failure != nil && failure.Kind == channel.KindGone {
		s.drop(ctx, r)
	}
	if ended && !d.State.Ended() { // another worker has taken this one for dead, and its state of the row stays, even if it dies
		return &deliveries.TakenError{There: d}
	}
	s.report(ctx, r, d, failure)
	return s.follow(ctx, r, d, verdict)
}

func (s *Sender) message(r *row, d *deliveries.Delivery) channel.Message {
	m := channel.Message{
		Address: r.to.Address, Attempt: len(d.Attempts), Category: r.Category, CreatedAt: r.CreatedAt,
		Endpoint: r.to, EndpointID: cmp.Or(r.Address, d.Endpoint),
		EventID: r.EventID, EventType: r.EventType, FirstAttempt: d.Attempts[0].At,
		ID: deliveries.MessageID(r.key), Locale: cmp.Or(r.Locale, r.profile.Locale),
		Payload: r.Payload, Preferences: s.cfg.Preferences(r.RecipientType, r.UserID), Priority: r.Priority,
		RecipientType: r.RecipientType, Template: r.Template, TimeZone: r.profile.TimeZone, UserID: r.UserID,
	}
	if r.single != nil {
		m.CreatedAt, m.EventID, m.EventType, m.Template = r.single.CreatedAt, r.single.EventID, r.single.EventType, r.single.Template
	}
	return m
}

// later puts off a row after the store or the directory did not answer.
func (s *Sender) later(ctx context.Context, r *row, err error) error {
	if errors.Is(context.Cause(ctx), worker.ErrShutdown) || errors.Is(err, plan.ErrNotFound) {
		return err
	}
	s.log(ctx, slog.LevelWarn, r, "row is put off", "error", err)
	return worker.Snooze(storeSnooze)
}

func (s *Sender) log(ctx context.Context, level slog.Level, r *row, text string, attrs ...any) {
	if !s.cfg.Logger.Enabled(ctx, level) {
		return // so that nothing is formatted in vain
	}
	s.cfg.Logger.Log(ctx, level, "notifier: "+text, append([]any{
		"event_id", r.EventID, "channel", r.Channel, "recipient_type", r.RecipientType, "user_id", r.UserID,
	}, attrs...)...)
}

func (s *Sender) decode(_ nats.Header, payload []byte, args any) error {
	n, err := s.rows.Decode(payload)
	if err == nil {
		*args.(*contracts.Notification) = n //nolint:forcetypeassert // registered with this type
	}
	return err
}
