package deliver

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/schedule"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// profile merges the user's fields of the plan into the fields of the directory. Opt-outs and mutes of both count.
func (s *Sender) profile(ctx context.Context, n *contracts.Notification) (contracts.Recipient, error) {
	known, _, err := s.cfg.Profiles.Get(ctx, n.RecipientType, n.UserID)
	if err != nil || n.Recipient == nil {
		return known, err
	}
	planned := *n.Recipient
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
	return merged, nil
}

// unknown reads the profile of a row's user, and reports whether the row is not sent now, because the user was erased or the
// profile cannot be read. Then err is the error for the worker.
func (s *Sender) unknown(ctx context.Context, r *row, d *deliveries.Delivery) (held bool, err error) {
	r.profile, err = s.profile(ctx, &r.Notification)
	unreadable, ok := errors.AsType[*recipient.Error](err)
	switch {
	case errors.Is(err, recipient.ErrForgotten) && d.UpdatedAt.IsZero():
		return true, nil // a record would be data about the user
	case errors.Is(err, recipient.ErrForgotten): // there is a record, which says that the row waits
		return true, s.end(ctx, r, d, deliveries.Suppressed, deliveries.ReasonErased, nil)
	case ok && unreadable.Permanent:
		d.Detail = redact.Clip(err.Error(), maxDetail)
		return true, s.end(ctx, r, d, deliveries.Failed, deliveries.ReasonRecipient, worker.Discard(err))
	case err != nil:
		return true, s.later(ctx, r, err)
	}
	return false, nil
}

// seen reports whether the row has ended because the user has read its event in the inbox. Then err is the error for the worker. It
// checks the inbox before each attempt of a row with this condition. One round trip, two when the event is not in the inbox.
func (s *Sender) seen(ctx context.Context, r *row, d *deliveries.Delivery) (seen bool, err error) {
	if !r.Unread {
		return false, nil
	}
	if seen, err = s.cfg.Read(ctx, &r.Notification); err != nil {
		return true, s.later(ctx, r, err)
	}
	if seen {
		return true, s.end(ctx, r, d, deliveries.Suppressed, deliveries.ReasonRead, nil)
	}
	s.cfg.Passed(PointUnread)
	return false, nil
}

func merge[T any](under, over map[string]T) map[string]T {
	merged := maps.Clone(under)
	if merged == nil {
		merged = map[string]T{}
	}
	maps.Copy(merged, over)
	return merged
}

// hold suppresses a row, or puts it off, when its user's preferences or its rule require it, and reports whether it did.
// Then err is the error for the worker. A critical row is never held.
func (s *Sender) hold(ctx context.Context, r *row, d *deliveries.Delivery) (held bool, err error) {
	if r.Priority == contracts.UrgencyCritical {
		return false, nil
	}
	if recipient.OptedOut(r.profile.OptOut, r.Category, r.Channel) {
		return true, s.end(ctx, r, d, deliveries.Suppressed, deliveries.ReasonOptOut, nil)
	}
	if s.muted(r) {
		return true, s.end(ctx, r, d, deliveries.Suppressed, deliveries.ReasonMuted, nil)
	}
	if held, err := s.joinDigest(ctx, r, d, s.digestOf(r, d)); held {
		return true, err
	}
	if until := s.quietUntil(ctx, r); !until.IsZero() {
		return true, s.wait(ctx, r, d, until, deliveries.ReasonQuietHours)
	}
	if r.Throttle != nil && s.inbox == nil {
		return s.throttle(ctx, r, d)
	}
	return false, nil
}

// muted reports whether a user has muted all notifications, or the row's category, for now.
func (s *Sender) muted(r *row) bool {
	now := time.Now()
	return s.inbox == nil && (now.Before(r.profile.Mute[contracts.Anything]) || r.Category != "" && now.Before(r.profile.Mute[r.Category]))
}

// digestOf returns the digest for a row, by its user's preferences or else its rule, nil when the row is delivered by itself. A row
// that was tried, or that is for one address, is always delivered by itself. So are rows with a fallback, fallbacks, rows for users
// who have not read the event, and rows of the inbox, unless the user or the rule asks for a digest.
func (s *Sender) digestOf(r *row, d *deliveries.Delivery) *contracts.Digest {
	if d.Tries() > 0 || r.Address != "" {
		return nil
	}
	wish, named := r.profile.Digest[r.Category]
	if !named || r.Category == "" {
		wish, named = r.profile.Digest[contracts.Anything]
	}
	alone := s.inbox != nil || len(r.Fallback) > 0 || r.FallbackOf != "" || r.Unread
	if !named || r.Collected || r.Digest == nil && alone {
		return r.Digest
	}
	wanted, err := contracts.ParseDigest(wish)
	switch {
	case err != nil:
		return r.Digest
	case wish == contracts.DigestOff:
		return nil
	case r.Digest != nil:
		wanted.Template = r.Digest.Template
	}
	return &wanted
}

// quietUntil returns the end of the user's quiet hours, and the zero time outside quiet hours.
func (s *Sender) quietUntil(ctx context.Context, r *row) time.Time {
	if s.inbox != nil {
		return time.Time{}
	}
	until, err := schedule.QuietUntil(time.Now(), r.profile.QuietHours, r.profile.TimeZone)
	if err != nil { // a zone that this machine does not know: delivering is better than not delivering
		s.log(ctx, slog.LevelWarn, r, "quiet hours are not kept", "error", err)
	}
	return until
}

// drop removes an address that is gone. When that fails, the next message to the address tries again.
func (s *Sender) drop(ctx context.Context, r *row) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	dropped, err := s.cfg.Profiles.Drop(ctx, r.RecipientType, r.UserID, r.Channel, r.to.Address)
	switch {
	case err != nil:
		s.log(ctx, slog.LevelWarn, r, "an address that is gone stays in the directory", "error", err)
	case dropped:
		s.log(ctx, slog.LevelInfo, r, "an address is gone")
	}
}

// Standing is a state of rows, with its reason.
type Standing struct {
	State  deliveries.State
	Reason string
}

// Channel returns the name of the channel.
func (s *Sender) Channel() string { return s.cfg.Channel.Name() }

// Came returns the number of times that rows entered each state, for each reason, in this process.
func (s *Sender) Came() map[Standing]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.came)
}

// never is the time after which a row without a FallbackAfter is given up: longer than all its attempts take.
const never = 10 * 365 * 24 * time.Hour

// giveUpAt returns the time at which a row is given up for the next channel: its FallbackAfter after its first
// attempt.
func (r *row) giveUpAt(d *deliveries.Delivery) time.Time {
	if len(r.Fallback) == 0 || r.FallbackAfter == 0 || d.Tries() == 0 {
		return time.Now().Add(never)
	}
	return d.Attempts[d.AttemptsBefore].At.Add(time.Duration(r.FallbackAfter) * time.Second)
}

// fallBack records the next channel in the record of a row that has ended. A row that the user does not want on this channel is
// followed too, because the user's preferences for the next channel may differ. A row that is not to be delivered at all is not
// followed.
func (r *row) fallBack(d *deliveries.Delivery) {
	if len(r.Fallback) > 0 && r.Address == "" && unheard(d) {
		d.FellBackTo = r.Fallback[0]
	}
}

// unheard reports whether a row has ended so that the user is to be notified on another channel.
func unheard(d *deliveries.Delivery) bool {
	switch d.State {
	case deliveries.Failed, deliveries.Bounced:
		return true
	case deliveries.Suppressed:
		return d.Reason == string(channel.KindNoAddress) || d.Reason == deliveries.ReasonOptOut || d.Reason == deliveries.ReasonMuted ||
			d.Reason == deliveries.ReasonEndpointDisabled
	case deliveries.Pending, deliveries.Deferred, deliveries.Sending, deliveries.Sent,
		deliveries.Delivered, deliveries.Split, deliveries.Unreadable:
	}
	return false
}

// follow stores the rows of the addresses of a split row, or the row of the next channel after a row that has ended without being
// sent, and returns the error for the worker. It is called after the end is recorded and before the row is acknowledged, and again
// when the row is delivered again. So a crash in between loses nothing, and the stream takes the new row once. A row that is
// followed becomes no dead letter. One round trip.
func (s *Sender) follow(ctx context.Context, r *row, d *deliveries.Delivery, verdict error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	if r.Address == "" && len(d.Addresses) > 0 {
		return s.spread(ctx, r, d, verdict)
	}
	if len(r.Fallback) == 0 || !unheard(d) {
		return verdict
	}
	fellBackTo := d.FellBackTo
	if r.Address != "" {
		var err error
		if fellBackTo, err = s.siblings(ctx, r, d); err != nil {
			return s.later(ctx, r, err)
		}
	}
	if fellBackTo != r.Fallback[0] {
		return verdict
	}
	s.cfg.Passed(PointEnded)
	next := r.Notification
	next.Address, next.Channel, next.Fallback, next.FallbackOf = "", r.Fallback[0], r.Fallback[1:], r.Channel
	if err := s.put(ctx, r, next); err != nil {
		return err
	}
	s.cfg.Passed(PointFollowed)
	return nil
}

// put stores a row that follows another, once, and returns the error for the worker if that
// fails.
func (s *Sender) put(ctx context.Context, r *row, next contracts.Notification) error {
	next.Payload = r.carried
	w, err := deliveries.Write(next)
	if err != nil {
		return worker.Discard(err)
	}
	_, err = s.cfg.Rows.Put(ctx, w)
	if err != nil && !errors.Is(err, kvrecord.ErrConflict) {
		s.log(ctx, slog.LevelWarn, r, "the row that follows is not stored yet", "next", next.Channel, "address", next.Address, "error", err)
		return worker.Snooze(storeSnooze) // when it is delivered again, it has ended, and follow is called again
	}
	return nil
}
