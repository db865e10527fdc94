// Package deliver takes a plan to messages. The [Expander] stores one notification for each recipient and channel of the plan, which the
// stream takes once; those of the inbox that nothing delays it has delivered instead. The [Sender] sends one: it reads the user's
// preferences, waits for the end of quiet hours, records the attempt, calls the channel, and records the outcome.
//
// A notification is sent once. It is sent again, under the same message id, only when the channel reported that it had not taken
// the message, or when the outcome is unknown because the caller died or got no answer. A channel that is set to
// at-most-once gives up a notification with an unknown outcome.
//
// A notification may have to wait for a time that its event names, on every channel, and may be cancelled. When a notification has
// ended without notifying its user, and its rule has an order of channels, the notification of the next channel follows. That
// notification is stored after the end is recorded and before the ended notification is acknowledged, so a crash can neither lose nor
// repeat it. A failed notification may be sent again on request, with all its attempts.
package deliver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
)

// Profiles has the profiles of users.
type Profiles interface {
	// Get returns a user of the directory. Nothing is sent to a user for whom the error matches [recipient.ErrForgotten].
	Get(ctx context.Context, kind contracts.RecipientType, userID string) (r contracts.Recipient, found bool, err error)

	// Drop removes an address of a channel that is never to be used again, if it is still the user's, and reports
	// whether it was.
	Drop(ctx context.Context, kind contracts.RecipientType, userID, channel, address string) (dropped bool, err error)
}

// Cancellations knows the cancelled notifications. A [hold.Cancelled] is one.
type Cancellations interface {
	// Covers reports whether a notification is cancelled. With sure it asks the server instead of answering from memory.
	Covers(ctx context.Context, n *contracts.Notification, sure bool) (bool, error)

	// For returns a function that reports, by an event's mark, whether the event was cancelled for a user when For was
	// called.
	For(ctx context.Context, kind contracts.RecipientType, userID string) (func(hold.Mark) bool, error)
}

var _ Cancellations = (*hold.Cancelled)(nil)

// Inbox is a channel whose messages are stored in the records of their notifications: one conditional write delivers a message and
// records that. It disturbs nobody, so quiet hours, mutes and throttles do not hold its notifications, and its users have no addresses.
// An [inapp.Inbox] is one.
type Inbox interface {
	// Item returns a message as it is stored, in JSON. The error is a *channel.Error.
	Item(m channel.Message) (json.RawMessage, error)
}

// Config configures a [Sender].
type Config struct {
	// AtMostOnce gives up a notification when it is not known whether the channel has taken the message. Defaults to false: the
	// message is sent again, under the same id.
	AtMostOnce bool

	// Cancelled knows the cancelled notifications. Required.
	Cancelled Cancellations

	// Channel sends the messages. Required. The messages of an [Inbox] are stored in the records of their notifications.
	Channel channel.Channel

	// Digests keeps the events that are delivered together. Required.
	Digests *hold.Digests

	// Read reports whether a user has read an event in the inbox. Required.
	Read func(ctx context.Context, n *contracts.Notification) (bool, error)

	// Health knows the addresses that do not answer. Defaults to none: all are called.
	Health Health

	// Deliveries keep the outcomes of notifications. Required.
	Deliveries *deliveries.Store

	// Logger gets the log. Defaults to slog.Default().
	Logger *slog.Logger

	// Passed is called at each point, in tests. Defaults to nothing.
	Passed func(point string)

	// Paused reports whether notifications of a subject are not to be sent now. Required.
	Paused func(subject string) bool

	// Payload returns the payload of an event whose notifications do not carry it. Required.
	Payload func(ctx context.Context, eventID string) (json.RawMessage, error)

	// Preferences returns the URL at which a user chooses what to get, or "". Required.
	Preferences func(kind contracts.RecipientType, userID string) string

	// Profiles are the users' profiles and preferences. Required.
	Profiles Profiles

	// Retries are the waits after the first, second, ... failure of a notification, ±20 %. A notification has one attempt more than
	// there are waits. An attempt whose caller died counts, but is no failure. Defaults to 5 s, 1 min, 5 min, 30 min, 2 h.
	Retries []time.Duration

	// Notifications is the stream of the notifications. Required.
	Notifications *kvrecord.Stream

	// Slots is the number of notifications that this process sends at a time. Health gives endpoints shares of the slots.
	// Defaults to 1,024.
	Slots int

	// Telemetry measures and traces the calls of the channel. Defaults to none.
	Telemetry *natsotel.Telemetry

	// Throttles counts the notifications of users. Required.
	Throttles *hold.Throttles

	// Timeout bounds one call of the channel. After this time another worker may take over a notification whose caller died.
	// Defaults to 15 seconds.
	Timeout time.Duration

	// Worker names this process in the records. Required.
	Worker string
}

func (cfg Config) withDefaults() Config {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.Passed == nil {
		cfg.Passed = func(string) {}
	}
	if cfg.Retries == nil {
		cfg.Retries = []time.Duration{5 * time.Second, time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour}
	}
	cfg.Slots = cmp.Or(cfg.Slots, 1024)
	cfg.Timeout = cmp.Or(cfg.Timeout, 15*time.Second)
	return cfg
}

func (cfg Config) validate() error {
	var errs []error
	if _, err := contracts.NotifySendSubject(cfg.Channel.Name(), "ADMIN", "u", "e"); err != nil {
		errs = append(errs, fmt.Errorf("notifier: channel %q: its name must be made of letters, digits, '_' and '-'", cfg.Channel.Name()))
	}
	if cfg.Timeout < 0 {
		errs = append(errs, fmt.Errorf("notifier: channel %s: Timeout is %s: want a positive duration", cfg.Channel.Name(), cfg.Timeout))
	}
	for _, wait := range cfg.Retries {
		if wait <= 0 {
			errs = append(errs, fmt.Errorf("notifier: channel %s: Retries has %s: want positive durations", cfg.Channel.Name(), wait))
		}
	}
	return errors.Join(errs...)
}
