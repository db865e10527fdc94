package channel

import (
	"context"
	"encoding/json"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Channel sends messages to users in one way.
type Channel interface {
	// Name is the channel's name in rules, subjects, keys, logs and metrics, such as "email": letters, digits, '_' and
	// '-'. It never changes.
	Name() string

	// Send sends one message to one user, once. A message with the same ID is the same message: when the first may have
	// arrived already, the provider is to be given the means to drop the second.
	//
	// A nil error means that the provider has accepted the message. Whatever kept it from doing so is an [*Error], also the
	// end of ctx; an error of another type counts as one that passes, with the message perhaps taken.
	//
	// Send is called from many goroutines at once.
	Send(ctx context.Context, m Message) (Receipt, error)
}

// Message is one notification on its way to one user.
type Message struct {
	// Address is where the channel reaches the user, "" when nothing is known.
	Address string

	// Attempt counts the tries to send the message, from 1.
	Attempt int

	// Category is what the user can switch off. "" is none.
	Category string

	// CreatedAt is when the row was planned.
	CreatedAt time.Time

	// Endpoint is what is known of the address, and EndpointID its id, "" for the plain one of the channel.
	Endpoint   contracts.Endpoint
	EndpointID string

	// EventID is the event that the message is about.
	EventID string

	// EventType is what happened.
	EventType string

	// FirstAttempt is when the first attempt to send the message began: the same in every attempt.
	FirstAttempt time.Time

	// ID identifies the message: the same in every try, and another for each user, channel and event. It is safe in
	// headers, file names and URLs.
	ID string

	// Locale is the user's language, a BCP 47 tag. "" when nothing is known.
	Locale string

	// Payload is the event's, JSON or nothing.
	Payload json.RawMessage

	// Preferences is where the user chooses what to get, a URL. "" is nowhere.
	Preferences string

	// Priority is how urgent it is.
	Priority contracts.Urgency

	// RecipientType is the kind of recipient that the user is.
	RecipientType contracts.RecipientType

	// Template names the text.
	Template string

	// Test marks a message that shows a template, and is not for a user: its text says so.
	Test bool

	// TimeZone is the user's zone by its IANA name. "" when nothing is known.
	TimeZone string

	// UserID is the user.
	UserID string
}

// Receipt is the provider's answer to an accepted message.
type Receipt struct {
	// Delivered reports whether the user has the message, and not only a provider that forwards it.
	Delivered bool

	// ID is the provider's id of the message. "" when it does not say.
	ID string
}
