package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// AddressRequest is a request about one of a user's addresses on a channel.
type AddressRequest struct {
	// RecipientType is the kind of recipient.
	RecipientType contracts.RecipientType `example:"CUSTOMER" json:"recipient_type" path:"type"`

	// UserID is the id of the user. That of the query precedes that of the path.
	UserID string `example:"carla" json:"user_id" jsonschema:"maxLength=320" path:"user" query:"user"`

	// Channel is the name of the channel.
	Channel string `example:"webhook" json:"channel" path:"channel"`

	// ID is the id of the address, main for the plain one.
	ID string `example:"main" json:"id" path:"id"`

	// Cursor is the next of the replay before.
	Cursor string `json:"cursor,omitempty" query:"cursor"`

	// Since is the time from which on the notifications of a replay have failed.
	Since time.Time `json:"since,omitzero" query:"since"`

	// Template is the text of a test, for a channel that has texts.
	Template string `json:"template,omitempty" query:"template"`
}

// AddressSecrets are the secrets that sign the messages to an address.
type AddressSecrets struct {
	// Also has other secrets that sign for a while: the secret before the last rotation, and secrets derived from the
	// service's old secrets.
	Also []string `json:"also,omitempty"`

	// RotatedAt is the time of the last rotation, zero without one.
	RotatedAt time.Time `json:"rotated_at,omitzero"`

	// Secret is the secret to check signatures with.
	Secret string `json:"secret"`
}

// signer is a channel that signs its messages.
type signer interface {
	Secrets(kind contracts.RecipientType, userID, id string, e contracts.Endpoint) []string
}

// address returns the endpoint that a request names, and its user.
func (a *API) address(ctx context.Context, r AddressRequest) (contracts.Recipient, contracts.Endpoint, error) {
	if err := (contracts.Recipient{RecipientType: r.RecipientType, UserID: r.UserID}).Validate(); err != nil {
		return contracts.Recipient{}, contracts.Endpoint{}, err
	}
	of, _, err := a.cfg.Directory.Get(ctx, r.RecipientType, r.UserID)
	e := of.Endpoint(r.Channel, r.ID)
	if err == nil && (e.Address == "" || r.ID == "") {
		err = errNoAddress
	}
	return of, e, err
}

// errNoAddress is returned for an address that the user does not have.
var errNoAddress = errors.New("the user has no such address on the channel: the document of the user shows all")

// wantChannel returns a text that names the channels with addresses, or with texts.
func wantChannel(with string, there map[string]channel.Channel) string {
	if len(there) == 0 {
		return "is none: the notifier has no channel with " + with
	}
	return "must be one with " + with + " that the notifier has: " + strings.Join(slices.Sorted(maps.Keys(there)), ", ")
}

// Secret returns the secrets of an address. One round trip.
func (a *API) Secret(ctx context.Context, r AddressRequest) (AddressSecrets, error) {
	_, e, err := a.address(ctx, r)
	if err != nil {
		return AddressSecrets{}, err
	}
	return a.secrets(r, e)
}

func (a *API) secrets(r AddressRequest, e contracts.Endpoint) (AddressSecrets, error) {
	by, ok := a.cfg.Channels[r.Channel].(signer)
	if !ok {
		return AddressSecrets{}, contracts.Mistake("request", "/channel",
			"must be webhook, which NOTIFIER_WEBHOOK_SECRETS sets up: nothing else is signed")
	}
	all := by.Secrets(r.RecipientType, r.UserID, r.ID, e)
	return AddressSecrets{Also: all[1:], RotatedAt: e.RotatedAt, Secret: all[0]}, nil
}

// Rotate replaces the secret of an address, and returns the new secret. The previous secret signs for another day.
// Four round trips, and two to count the request.
func (a *API) Rotate(ctx context.Context, r AddressRequest) (s AddressSecrets, err error) {
	_, e, err := a.address(ctx, r)
	if err == nil {
		_, err = a.secrets(r, e)
	}
	if err == nil {
		err = a.within(ctx, "rotate", r.target(), bound{"rotations of secrets of the user", r.UserID, maxRotations})
	}
	if err != nil {
		return AddressSecrets{}, err
	}
	err = a.cfg.Audit.Do(ctx, "rotate", r.target(), func(ctx context.Context) (int, error) {
		if e, err = a.cfg.Directory.Rotate(ctx, r.RecipientType, r.UserID, r.Channel, r.ID); err != nil {
			return 0, err
		}
		s, err = a.secrets(r, e)
		return 1, err
	})
	return s, err
}

// Test sends a message of the type TEST to an address now, also to one that is disabled, and returns the provider's answer. One
// round trip, up to six to count the request, and the call of the channel.
func (a *API) Test(ctx context.Context, r AddressRequest) (TestSent, error) {
	of, e, err := a.address(ctx, r)
	by := a.cfg.Channels[r.Channel]
	if err == nil && by == nil {
		err = contracts.Mistake("request", "/channel", wantChannel("addresses", a.cfg.Channels))
	}
	if err == nil {
		err = a.mayTest(ctx, r, e)
	}
	if err != nil {
		return TestSent{}, err
	}
	return a.sendTest(ctx, r.target(), by, channel.Message{
		Address: e.Address, Endpoint: e, EndpointID: r.ID, EventType: "TEST", Locale: of.Locale, RecipientType: r.RecipientType,
		Template: cmp.Or(r.Template, "TEST"), TimeZone: of.TimeZone, UserID: r.UserID,
	})
}

// ReplayAddress sends the notifications of an address again that have failed since a time, as [API.Replay] does.
func (a *API) ReplayAddress(ctx context.Context, r AddressRequest) (Replayed, error) {
	_, _, err := a.address(ctx, r)
	if err == nil {
		err = a.within(ctx, "replay", r.target(), bound{"replays for the user", r.UserID, maxReplays})
	}
	if err != nil {
		return Replayed{}, err
	}
	return a.Replay(ctx, Query{
		Address: r.ID, Channel: r.Channel, Cursor: r.Cursor, RecipientType: r.RecipientType, Since: r.Since, UserID: r.UserID,
	})
}

// target names the address of a request in a record of the audit.
func (r AddressRequest) target() string {
	return fmt.Sprintf("address=%q channel=%q user=%q type=%q", r.ID, r.Channel, audit.User(r.UserID), r.RecipientType)
}
