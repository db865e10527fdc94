package deliver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/schedule"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// The points that a sender passes, in order: between any two of them its process may die.
const (
	PointClaimed  = "deliver.claimed"  // the attempt is recorded; not for the inbox
	PointSent     = "deliver.sent"     // the channel has answered; for the inbox, the outcome is recorded too
	PointEnded    = "deliver.ended"    // a notification has ended, and the notification that follows it is not stored yet
	PointFollowed = "deliver.followed" // the notification of the next channel is stored
	PointRecorded = "deliver.recorded" // the outcome is recorded; not for the inbox
)

// The points that a sender passes with a notification for several addresses, and with the notifications of these addresses.
const (
	PointSplit   = "deliver.split"   // the split is recorded
	PointSpread  = "deliver.spread"  // the notification of one more address is stored
	PointUnheard = "deliver.unheard" // the one of an address has not reached the user, and the split one does not have that yet
)

// The points that a sender passes with a notification that goes into a digest, and with a digest.
const (
	PointNoted  = "deliver.noted"  // the digest of the notification is recorded
	PointJoined = "deliver.joined" // the notification is in the digest
	PointSealed = "deliver.sealed" // the digest takes no more events
)

// PointGranted is passed when a throttle has let a notification through.
const PointGranted = "deliver.granted"

const (
	// storeSnooze is the pause after the store did not answer. It uses no attempt of the notification.
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

// ErrUnknownOutcome is returned for a notification that may have been sent and must not be sent twice.
var ErrUnknownOutcome = errors.New("it is not known whether the channel has taken the message, and it must not get it twice")

// errStale is the reason for putting off a replayed notification whose record does not have the replay yet.
var errStale = errors.New("the server that answered has not heard of the replay yet")

// Sender sends the notifications of one channel. It is safe for concurrent use, also by several processes.
type Sender struct {
	// Set by New, and safe for concurrent use.
	cfg     Config
	inbox   Inbox // nil for any other channel
	decoder deliveries.Decoder

	mu   sync.Mutex         // guards came
	came map[Standing]int64 // the number of times that notifications entered each state
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
		Decode:       s.decoder.DecodeArgs,
	}
}

// notification is one that a worker is sending.
type notification struct {
	// From the message of the stream. Payload and Recipient are completed later, the others never change.
	contracts.Notification

	carried json.RawMessage // the payload in the message itself
	key     string
	late    bool // it has waited: its cancellation may not have reached this process

	// Set on the way to the channel, by the goroutine that sends it.
	profile contracts.Recipient
	to      contracts.Endpoint // the user's address on the channel
	call    *health.Call       // admitted by the health of the endpoint, and without an outcome yet

	// Of a digest.
	sealed bool       // it takes no more events
	single *hold.Item // its only event
}

// Work sends one notification, unless it has ended, or is to wait. It never acts on a read alone: it calls the channel after an attempt
// has been written over exactly the record that was read, and an item of the inbox is itself written over that record.
func (s *Sender) Work(ctx context.Context, job *worker.Job[contracts.Notification]) error {
	// The subject is the unique constraint over notifications, so the record's key comes from there, with the number of the replay.
	key, replay, ok := keys.OfSubject(job.Subject)
	if !ok {
		return worker.Discard(fmt.Errorf("%.200q is no subject of a notification", job.Subject))
	}
	n := &notification{Notification: job.Args, carried: job.Args.Payload, key: key}
	n.late = job.Deliveries > 1 || replay > 0 || n.FallbackOf != "" || n.Address != ""
	d := &deliveries.Delivery{State: deliveries.Pending}
	if n.late {
		// Of any other notification nobody can have written a record: one round trip less.
		var err error
		if d, err = s.cfg.Deliveries.Get(ctx, n.key); err != nil {
			return s.later(ctx, n, err)
		}
	}
	if d.Replays < replay {
		// A replay is recorded before its message is stored, so this record is an old one.
		return s.later(ctx, n, errStale)
	}
	for {
		err := s.advance(ctx, n, d)
		taken, ok := errors.AsType[*deliveries.TakenError](err)
		if !ok {
			return err
		}
		// Another process has written the record, which decides where to go on.
		d = taken.There
	}
}

// advance takes the next step with a notification, by its record.
func (s *Sender) advance(ctx context.Context, n *notification, d *deliveries.Delivery) (err error) {
	if d.AtOnce {
		// The expander got no answer, and stored the notification too. From now on the record shows that it is in the stream.
		d.AtOnce = false
		if err := s.write(ctx, n, d); err != nil {
			return err
		}
		s.report(ctx, n, d, nil)
	}
	if d.State.Ended() {
		// Its worker may have died between the end and the notification that follows it.
		return s.follow(ctx, n, d, nil)
	}
	if d.State == deliveries.Sending {
		if held, err := s.takeOver(ctx, n, d); held {
			return err
		}
	}
	if !n.Collected {
		// The cancellation of a digest ends it; events, and digests of other users, may have the same id.
		cancelled, err := s.cfg.Cancelled.Covers(ctx, &n.Notification, n.late)
		if err != nil {
			return s.later(ctx, n, err)
		}
		if cancelled {
			return s.end(ctx, n, d, deliveries.Suppressed, deliveries.ReasonCancelled, nil)
		}
	}
	if n.FallbackAfter > 0 && !n.giveUpAt(d).After(time.Now()) {
		return s.end(ctx, n, d, deliveries.Failed, deliveries.ReasonFallbackAfter, nil)
	}
	// The event's time holds on every channel and for every priority. It costs no read, so it comes before the checks.
	if time.Now().Before(n.NotBefore) {
		return s.wait(ctx, n, d, n.NotBefore, deliveries.ReasonNotBefore)
	}
	for _, check := range [...]check{
		s.unknown,     // reads the profile of the user, which unwanted and choose need
		s.seen,        // before unwanted: what the user has read is neither put into a digest nor counted by a throttle
		s.unwanted,    // defers a notification as one, whatever the number of its addresses
		s.choose,      // splits it for its addresses, after unwanted
		s.unreachable, // takes a slot for the call, so nothing may defer the notification after it
	} {
		if held, err := check(ctx, n, d); held {
			return err
		}
	}
	defer func() {
		// The call was not made: another process wrote the record in the meantime, or the store did not answer.
		if n.call != nil {
			s.cfg.Health.Left(n.call)
		}
	}()
	if n.Collected {
		return s.sendDigest(ctx, n, d)
	}
	if n.Payload == nil {
		if n.Payload, err = s.cfg.Payload(ctx, n.EventID); err != nil {
			return s.later(ctx, n, err)
		}
	}
	return s.send(ctx, n, d)
}

// takeOver waits for the caller of the channel, and counts it as dead after its time. A notification that it may have sent is given up if
// it must not be sent twice, or if no attempts are left.
func (s *Sender) takeOver(ctx context.Context, n *notification, d *deliveries.Delivery) (held bool, err error) {
	if wait := time.Until(d.Until); wait > 0 {
		return true, worker.Snooze(wait)
	}
	last := &d.Attempts[len(d.Attempts)-1]
	last.Outcome = deliveries.OutcomeUnknown
	s.log(ctx, slog.LevelWarn, n, "caller of the channel died", "worker", last.Worker, "attempt", len(d.Attempts))
	switch {
	case s.cfg.AtMostOnce:
		return true, s.end(ctx, n, d, deliveries.Failed, deliveries.ReasonUnknownOutcome, worker.Discard(ErrUnknownOutcome))
	case d.Tries() > len(s.cfg.Retries):
		return true, s.end(ctx, n, d, deliveries.Failed, deliveries.ReasonExhausted, worker.Discard(ErrUnknownOutcome))
	}
	return false, nil
}

// check reports whether a notification is not sent now. Then it has recorded why, and err is the error for the worker. advance has all
// checks in order, and the reason for the order.
type check = func(ctx context.Context, n *notification, d *deliveries.Delivery) (held bool, err error)

// unknown reads the profile of a notification's user, and reports whether the notification is not sent now, because the user was erased
// or the profile cannot be read. Then err is the error for the worker.
func (s *Sender) unknown(ctx context.Context, n *notification, d *deliveries.Delivery) (held bool, err error) {
	if n.Collected {
		if err = s.recall(ctx, n); err != nil {
			return true, s.later(ctx, n, err)
		}
	}
	n.profile, _, err = s.cfg.Profiles.Get(ctx, n.RecipientType, n.UserID)
	if err == nil && n.Recipient != nil {
		n.profile = withPlanned(n.profile, *n.Recipient)
	}
	unreadable, ok := errors.AsType[*recipient.Error](err)
	switch {
	case errors.Is(err, recipient.ErrForgotten) && d.UpdatedAt.IsZero():
		// Nothing is recorded: a record would be data about the user.
		return true, nil
	case errors.Is(err, recipient.ErrForgotten):
		// A record exists, and says that the notification waits.
		return true, s.end(ctx, n, d, deliveries.Suppressed, deliveries.ReasonErased, nil)
	case ok && unreadable.Permanent:
		// No retry reads this profile, so the notification fails where an operator sees it.
		d.Detail = redact.Clip(err.Error(), maxDetail)
		return true, s.end(ctx, n, d, deliveries.Failed, deliveries.ReasonRecipient, worker.Discard(err))
	case err != nil:
		return true, s.later(ctx, n, err)
	}
	return false, nil
}

// withPlanned merges the fields that the plan has of a user into those of the directory. Opt-outs and mutes of both count.
func withPlanned(known, planned contracts.Recipient) contracts.Recipient {
	merged := contracts.Recipient{
		Addresses: merge(known.Addresses, planned.Addresses), Digest: merge(known.Digest, planned.Digest),
		Endpoints: merge(known.Endpoints, planned.Endpoints), Locale: known.Locale, Mute: merge(known.Mute, nil),
		OptOut: map[string][]string{}, QuietHours: cmp.Or(planned.QuietHours, known.QuietHours),
		TimeZone: cmp.Or(planned.TimeZone, known.TimeZone),
	}
	for name := range planned.Addresses { // the event names the address
		if _, named := planned.Endpoints[name]; !named {
			delete(merged.Endpoints, name)
		}
	}
	for category, until := range planned.Mute {
		if until.After(merged.Mute[category]) {
			merged.Mute[category] = until
		}
	}
	for _, optOut := range []map[string][]string{known.OptOut, planned.OptOut} {
		for category, channels := range optOut {
			merged.OptOut[category] = append(merged.OptOut[category], channels...)
		}
	}
	return merged
}

func merge[T any](under, over map[string]T) map[string]T {
	merged := maps.Clone(under)
	if merged == nil {
		merged = map[string]T{}
	}
	maps.Copy(merged, over)
	return merged
}

// seen reports whether the notification has ended because the user has read its event in the inbox. Then err is the error for the
// worker. It checks the inbox before each attempt of a notification with this condition. One round trip, two when the event is not in
// the inbox.
func (s *Sender) seen(ctx context.Context, n *notification, d *deliveries.Delivery) (seen bool, err error) {
	// Only notifications with this condition pay the round trip.
	if !n.Unread {
		return false, nil
	}
	if seen, err = s.cfg.Read(ctx, &n.Notification); err != nil {
		return true, s.later(ctx, n, err)
	}
	if seen {
		return true, s.end(ctx, n, d, deliveries.Suppressed, deliveries.ReasonRead, nil)
	}
	return false, nil
}

// unwanted suppresses a notification, or defers it, when its user's preferences or its rule require it, and reports whether it did.
// Then err is the error for the worker. A critical notification is never deferred.
func (s *Sender) unwanted(ctx context.Context, n *notification, d *deliveries.Delivery) (held bool, err error) {
	if n.Priority == channel.UrgencyCritical {
		return false, nil
	}
	if recipient.OptedOut(n.profile.OptOut, n.Category, n.Channel) {
		return true, s.end(ctx, n, d, deliveries.Suppressed, deliveries.ReasonOptOut, nil)
	}
	now := time.Now()
	// The inbox disturbs nobody, so mutes, quiet hours and throttles do not apply to it.
	if s.inbox == nil && (now.Before(n.profile.Mute[contracts.Anything]) || n.Category != "" && now.Before(n.profile.Mute[n.Category])) {
		return true, s.end(ctx, n, d, deliveries.Suppressed, deliveries.ReasonMuted, nil)
	}
	// A notification whose record names a digest may be in it already, whatever the preferences are now.
	when, noted := s.digestOf(n, d), d.State == deliveries.Deferred && d.Reason == deliveries.ReasonDigest
	if when != nil || noted {
		if held, err := s.joinDigest(ctx, n, d, when, noted); held {
			return true, err
		}
	}
	if s.inbox == nil && n.profile.QuietHours != nil {
		until, err := schedule.QuietUntil(time.Now(), n.profile.QuietHours, n.profile.TimeZone)
		if err != nil {
			// This machine does not know the zone: delivering is better than not delivering.
			s.log(ctx, slog.LevelWarn, n, "quiet hours are not kept", "error", err)
		}
		if !until.IsZero() {
			return true, s.wait(ctx, n, d, until, deliveries.ReasonQuietHours)
		}
	}
	// Last, because a throttle counts what it lets through: nothing above may defer the notification after that.
	if n.Throttle != nil && s.inbox == nil {
		return s.throttle(ctx, n, d)
	}
	return false, nil
}

// digestOf returns the digest for a notification, by its user's preferences or else its rule, nil when the notification is delivered by
// itself. A notification that was tried, or that is for one address, is always delivered by itself. So are notifications with a
// fallback, fallbacks, notifications for users who have not read the event, and notifications of the inbox, unless the user or the rule
// asks for a digest.
func (s *Sender) digestOf(n *notification, d *deliveries.Delivery) *contracts.Digest {
	// The channel may have taken a message that was tried, and the notifications of addresses were split after the digest.
	if d.Tries() > 0 || n.Address != "" {
		return nil
	}
	wish, named := n.profile.Digest[n.Category]
	if !named || n.Category == "" {
		wish, named = n.profile.Digest[contracts.Anything]
	}
	alone := s.inbox != nil || len(n.Fallback) > 0 || n.FallbackOf != "" || n.Unread
	// A digest is not collected into another one. Unless the rule has a digest, the user's wish delays neither the inbox nor a
	// notification that another one follows.
	if !named || n.Collected || n.Digest == nil && alone {
		return n.Digest
	}
	var wanted contracts.Digest
	switch err := wanted.Parse(wish); {
	case err != nil:
		// A wish that cannot be read counts as none: the rule decides.
		return n.Digest
	case wish == "off":
		return nil
	case n.Digest != nil:
		wanted.Template = n.Digest.Template
	}
	return &wanted
}

// choose sets the address of a notification. It splits a notification for several addresses that was not tried yet, and ends a
// notification without an address. held reports that, and err is then the error for the worker. A notification that was tried keeps its
// address, because the message id is known there.
func (s *Sender) choose(ctx context.Context, n *notification, d *deliveries.Delivery) (held bool, err error) {
	all := n.profile.Endpoints[n.Channel]
	if s.inbox != nil || n.Address == "" && len(all) == 0 {
		n.to = n.profile.Endpoint(n.Channel, "")
		return false, nil
	}
	ids := []string{n.Address}
	if n.Address == "" {
		ids = slices.DeleteFunc(n.profile.EndpointIDs(n.Channel), func(id string) bool { return !all[id].Takes(n.EventType) })
	}
	// Neither a disabled address nor an empty one gets anything, but the record says which it was: only the first can be enabled again.
	disabled := false
	ids = slices.DeleteFunc(ids, func(id string) bool {
		disabled = disabled || all[id].Disabled
		return all[id].Disabled || n.profile.Endpoint(n.Channel, id).Address == ""
	})
	// The provider knows the message id together with the address of the first attempt.
	tried := n.Address == "" && len(d.Attempts) > 0
	if by := cmp.Or(d.Endpoint, contracts.MainEndpoint); tried && slices.Contains(ids, by) {
		ids, tried = []string{by}, false
	}
	switch {
	case len(ids) == 0 && disabled:
		return true, s.end(ctx, n, d, deliveries.Suppressed, deliveries.ReasonEndpointDisabled, nil)
	case len(ids) == 0:
		return true, s.end(ctx, n, d, deliveries.Suppressed, string(channel.KindNoAddress), nil)
	case len(ids) > 1, tried:
		// No address gets a message under the id of another address.
		return true, s.split(ctx, n, d, ids)
	}
	n.to = n.profile.Endpoint(n.Channel, ids[0])
	if d.Endpoint = ids[0]; d.Endpoint == contracts.MainEndpoint {
		d.Endpoint = ""
	}
	return false, nil
}

// Health knows the endpoints that do not answer. A [health.Store] is one.
type Health interface {
	// Admit returns whether an endpoint may be called, and the wait before its caller asks again. It may shorten c.Timeout.
	Admit(c *health.Call) (verdict health.Verdict, wait time.Duration)

	// Called reports the outcome of a call that Admit let through, nil for a success.
	Called(ctx context.Context, c *health.Call, m channel.Message, failure *channel.Error)

	// Left reports that a call that Admit let through was not made.
	Left(c *health.Call)
}

var _ Health = (*health.Store)(nil)

// unreachable ends a notification whose endpoint is disabled, and puts off a notification whose endpoint is down or has no free slot,
// without using an attempt. It writes the record once for an endpoint that is down, and not for a wait for a slot. held is false when
// the endpoint is to be called.
func (s *Sender) unreachable(ctx context.Context, n *notification, d *deliveries.Delivery) (held bool, err error) {
	address := n.to.Address
	if s.cfg.Health == nil || address == "" {
		return false, nil
	}
	call := &health.Call{
		Address: address, Channel: n.Channel, RecipientType: n.RecipientType, UserID: n.UserID, Again: d.Failures() > 0,
		Slots: s.cfg.Slots, Timeout: s.cfg.Timeout,
	}
	verdict, wait := s.cfg.Health.Admit(call)
	switch verdict {
	case health.Free:
		n.call = call
		return false, nil
	case health.Busy:
		// A slot is soon free again, so the wait is not worth a write.
		return true, worker.Snooze(wait)
	case health.Off:
		return true, s.end(ctx, n, d, deliveries.Suppressed, deliveries.ReasonEndpointDisabled, nil)
	case health.Down:
	}
	// Recorded once: an endpoint may be down for days, with a wait every few minutes.
	if d.State != deliveries.Pending || d.Reason != deliveries.ReasonEndpointDown {
		d.State, d.Reason, d.Until = deliveries.Pending, deliveries.ReasonEndpointDown, time.Time{}
		if err := s.write(ctx, n, d); err != nil {
			return true, err
		}
		s.report(ctx, n, d, nil)
	}
	return true, worker.Snooze(wait)
}

// send records the attempt, calls the channel, and records the outcome.
func (s *Sender) send(ctx context.Context, n *notification, d *deliveries.Delivery) error {
	if s.inbox != nil {
		return s.sendItem(ctx, n, d)
	}
	begun := time.Now().UTC()
	d.Attempts = append(d.Attempts, deliveries.Attempt{At: begun, Worker: s.cfg.Worker})
	limit := s.cfg.Timeout
	// Calls to an endpoint that has not answered may be shorter. A call that is never repeated gets the whole time.
	if n.call != nil && !s.cfg.AtMostOnce {
		limit = cmp.Or(n.call.Timeout, limit)
	}
	// The attempt is recorded before the call: if this process dies in it, the next one finds that a message may be on its way.
	d.State, d.Reason, d.Until = deliveries.Sending, "", begun.Add(limit)
	if err := s.write(ctx, n, d); err != nil {
		return err
	}
	s.cfg.Passed(PointClaimed)
	call, cancel := context.WithDeadline(ctx, d.Until)
	call, measured := s.cfg.Telemetry.Call(call, n.Channel)
	m := s.message(n, d)
	dialled := time.Now()
	receipt, err := s.cfg.Channel.Send(call, m)
	took := time.Since(dialled)
	interrupted := context.Cause(ctx)
	cancel()
	s.cfg.Passed(PointSent)

	var failure *channel.Error
	if err != nil {
		failure = channel.Of(n.Channel, err)
		if interrupted != nil && failure.Unsure() {
			// This process stopped the call, so it says nothing about the provider.
			failure = &channel.Error{Channel: n.Channel, Kind: channel.KindInterrupted, Cause: err}
		}
		measured.End(string(failure.Kind), failure)
	} else {
		measured.End(natsotel.OutcomeOK, nil)
	}
	verdict := s.setOutcome(n, d, receipt, failure)
	ended := d.State.Ended()
	d.Attempts[len(d.Attempts)-1].TookMS = time.Since(begun).Milliseconds()
	err = s.settle(ctx, n, d)
	if call := n.call; call != nil {
		n.call, call.Took = nil, took
		s.cfg.Health.Called(ctx, call, m, failure)
	}
	if err != nil {
		// The next worker of the notification will count this attempt as dead.
		return s.later(ctx, n, fmt.Errorf("the outcome of a call could not be written down: %w", err))
	}
	s.cfg.Passed(PointRecorded)
	if failure != nil && failure.Kind == channel.KindGone {
		s.drop(ctx, n)
	}
	if ended && !d.State.Ended() {
		// Another worker has taken this one for dead, and its state of the notification stays, even if it dies.
		return &deliveries.TakenError{There: d}
	}
	s.report(ctx, n, d, failure)
	return s.follow(ctx, n, d, verdict)
}

func (s *Sender) message(n *notification, d *deliveries.Delivery) channel.Message {
	m := channel.Message{
		Address: n.to.Address, Attempt: len(d.Attempts), Category: n.Category, CreatedAt: n.CreatedAt,
		Endpoint: n.to, EndpointID: cmp.Or(n.Address, d.Endpoint),
		EventID: n.EventID, EventType: n.EventType, FirstAttempt: d.Attempts[0].At,
		ID: deliveries.MessageID(n.key), Locale: cmp.Or(n.Locale, n.profile.Locale),
		Payload: n.Payload, Preferences: s.cfg.Preferences(n.RecipientType, n.UserID), Priority: n.Priority,
		RecipientType: n.RecipientType, Template: n.Template, TimeZone: n.profile.TimeZone, UserID: n.UserID,
	}
	// A digest of one event reads like the event.
	if n.single != nil {
		m.CreatedAt, m.EventID, m.EventType, m.Template = n.single.CreatedAt, n.single.EventID, n.single.EventType, n.single.Template
	}
	return m
}

// maxDetail bounds the text of a channel's error that is kept, in bytes.
const maxDetail = 1024

// setOutcome sets the outcome of a call in the record, and returns the error for the worker.
func (s *Sender) setOutcome(n *notification, d *deliveries.Delivery, receipt channel.Receipt, failure *channel.Error) error {
	attempt := &d.Attempts[len(d.Attempts)-1]
	d.Until = time.Time{}
	if failure == nil {
		attempt.Outcome, d.State, d.ProviderID = deliveries.OutcomeSent, deliveries.Sent, receipt.ID
		if receipt.Delivered {
			d.State = deliveries.Delivered
		}
		return nil
	}
	defer func() { n.fallBack(d) }()
	attempt.Outcome, attempt.Detail = string(failure.Kind), redact.Clip(failure.Error(), maxDetail)
	d.Reason = string(failure.Kind)
	// The order decides: a message that must not be sent twice is given up before its retries are counted.
	switch {
	case failure.Kind == channel.KindNoAddress:
		d.State = deliveries.Suppressed
		return nil
	case failure.Kind == channel.KindBounced, failure.Kind == channel.KindGone:
		d.State = deliveries.Bounced
		return nil
	case failure.Unsure() && s.cfg.AtMostOnce:
		d.State, d.Reason = deliveries.Failed, deliveries.ReasonUnknownOutcome
		return worker.Discard(errors.Join(ErrUnknownOutcome, failure))
	case !failure.Temporary():
		d.State = deliveries.Failed
		return worker.Discard(failure)
	case d.Tries() > len(s.cfg.Retries):
		d.State, d.Reason = deliveries.Failed, deliveries.ReasonExhausted
		return worker.Discard(failure)
	case failure.Kind == channel.KindInterrupted:
		// The worker gives the job back, and another continues at once.
		d.State = deliveries.Pending
		return failure
	}
	d.State = deliveries.Pending
	wait := s.cfg.Retries[d.Failures()-1]
	// Many notifications fail in the same moment, and must not all come back in one.
	wait += time.Duration((rand.Float64() - 0.5) * 0.4 * float64(wait))
	return worker.Retry(min(max(wait, failure.RetryAfter), time.Until(n.giveUpAt(d))), failure)
}

// settle records the outcome of a call. Only the caller knows the outcome, so settle merges it into any record:
// another worker may have taken the caller for dead and written one.
func (s *Sender) settle(ctx context.Context, n *notification, d *deliveries.Delivery) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	made, mine := *d, d.Attempts[len(d.Attempts)-1]
	for {
		err := s.cfg.Deliveries.Put(ctx, n.key, d)
		if err == nil {
			return nil
		}
		taken, ok := errors.AsType[*deliveries.TakenError](err)
		switch {
		case isUnanswered(err) && ctx.Err() == nil:
			// The write may have happened. Put finds that out when it is repeated over the same record.
			continue
		case !ok:
			return err
		}
		there := taken.There
		sent := made.State == deliveries.Sent || made.State == deliveries.Delivered
		known := false // whether the record has this attempt
		last := false  // whether it is the record's present attempt: then only late callers of earlier attempts have written
		for i, attempt := range there.Attempts {
			switch {
			case attempt.At.Equal(mine.At) && attempt.Worker == mine.Worker:
				there.Attempts[i], known = mine, true
				last = i == len(there.Attempts)-1 && there.State == deliveries.Sending
			case sent && attempt.Outcome == "":
				// The caller of the attempt may be dead; if not, it writes the outcome itself.
				there.Attempts[i].Outcome = deliveries.OutcomeUnknown
			}
		}
		if !known {
			// The record was removed: with its user, or by its TTL.
			there.Attempts, last = append(there.Attempts, mine), true
		}
		switch {
		case sent && there.State != deliveries.Delivered:
			// The message was sent: that replaces any state that another worker inferred from the silence.
			there.State, there.Reason, there.Until, there.ProviderID = made.State, "", time.Time{}, made.ProviderID
		case last:
			there.State, there.Reason, there.Until, there.FellBackTo = made.State, made.Reason, made.Until, made.FellBackTo
		}
		*d = *there
	}
}

// isUnanswered reports whether the store did not answer in time. It may answer a later request.
func isUnanswered(err error) bool {
	return errors.Is(err, kvrecord.ErrUnavailable) && !errors.Is(err, kvrecord.ErrFull) && !errors.Is(err, nats.ErrConnectionClosed)
}

// write stores the record of a notification before the next step with the notification. When the store is full or not there, the
// notification is put off and its attempt does not count. The error is a [*deliveries.TakenError] when another process has written the
// record.
func (s *Sender) write(ctx context.Context, n *notification, d *deliveries.Delivery) error {
	err := s.cfg.Deliveries.Put(ctx, n.key, d)
	if _, taken := errors.AsType[*deliveries.TakenError](err); err == nil || taken {
		return err
	}
	return s.later(ctx, n, err)
}

// end writes the final state of a notification, and returns the error for the worker after that. It seals a digest first, so that no
// later event is lost in it.
func (s *Sender) end(
	ctx context.Context, n *notification, d *deliveries.Delivery, state deliveries.State, reason string, verdict error,
) error {
	if n.Collected && !n.sealed {
		if _, err := s.seal(ctx, &n.Notification); err != nil {
			return s.later(ctx, n, err)
		}
	}
	d.State, d.Reason, d.Until = state, reason, time.Time{}
	n.fallBack(d)
	if err := s.write(ctx, n, d); err != nil {
		return err
	}
	s.report(ctx, n, d, nil)
	return s.follow(ctx, n, d, verdict)
}

// wait defers a notification without using an attempt. It writes the record once for each reason and time.
func (s *Sender) wait(ctx context.Context, n *notification, d *deliveries.Delivery, until time.Time, reason string) error {
	if d.State != deliveries.Deferred || d.Reason != reason || !d.Until.Equal(until) {
		d.State, d.Reason, d.Until = deliveries.Deferred, reason, until.UTC()
		if err := s.write(ctx, n, d); err != nil {
			return err
		}
		s.report(ctx, n, d, nil)
	}
	return worker.Snooze(time.Until(until))
}

// later puts off a notification after the store or the directory did not answer.
func (s *Sender) later(ctx context.Context, n *notification, err error) error {
	if errors.Is(context.Cause(ctx), worker.ErrShutdown) || errors.Is(err, plan.ErrNotFound) {
		return err
	}
	s.log(ctx, slog.LevelWarn, n, "notification is put off", "error", err)
	return worker.Snooze(storeSnooze)
}

// Standing is a state of notifications, with its reason.
type Standing struct {
	State  deliveries.State
	Reason string
}

// Channel returns the name of the channel.
func (s *Sender) Channel() string { return s.cfg.Channel.Name() }

// Came returns the number of times that notifications entered each state, for each reason, in this process.
func (s *Sender) Came() map[Standing]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.came)
}

// report counts and logs the new state of a notification.
func (s *Sender) report(ctx context.Context, n *notification, d *deliveries.Delivery, failure *channel.Error) {
	s.mu.Lock()
	s.came[Standing{d.State, d.Reason}]++
	s.mu.Unlock()
	level := slog.LevelDebug
	if failure != nil || d.State == deliveries.Failed {
		level = slog.LevelWarn
	}
	// Usually nobody reads the debug line of a notification that was sent, so its attributes are not built.
	if !s.cfg.Logger.Enabled(ctx, level) {
		return
	}
	attrs := []any{"state", d.State, "attempt", len(d.Attempts)}
	if d.Reason != "" {
		attrs = append(attrs, "reason", d.Reason)
	}
	if d.FellBackTo != "" {
		attrs = append(attrs, "fell_back_to", d.FellBackTo)
	}
	if failure != nil {
		attrs = append(attrs, "error", failure)
	}
	s.log(ctx, level, n, "notification is "+string(d.State), attrs...)
}

func (s *Sender) log(ctx context.Context, level slog.Level, n *notification, text string, attrs ...any) {
	if !s.cfg.Logger.Enabled(ctx, level) {
		return // so that nothing is formatted in vain
	}
	s.cfg.Logger.Log(ctx, level, "notifier: "+text, append([]any{
		"event_id", n.EventID, "channel", n.Channel, "recipient_type", n.RecipientType, "user_id", n.UserID,
	}, attrs...)...)
}
