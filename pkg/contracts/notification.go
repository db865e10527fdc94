package contracts

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// RecipientType is a kind of recipient of notifications, such as RESTAURANT_USER, CUSTOMER, AGENCY_USER or ADMIN. Readers accept types they
// do not know. BROADCAST is every user that an event concerns, of any kind.
type RecipientType string

// broadcast is no kind of recipient.
const broadcast RecipientType = "BROADCAST"

// Notification is one row of a plan: one event, one user, one channel.
type Notification struct {
	// EventID is the id of the event that the user is notified of.
	EventID string `json:"event_id" jsonschema:"minLength=1,maxLength=320"`
	// UserID is the user.
	UserID string `json:"user_id" jsonschema:"minLength=1,maxLength=320" wire:"private"`
	// RecipientType is the kind of recipient that the user is.
	RecipientType RecipientType `json:"recipient_type" jsonschema:"minLength=1,maxLength=64,pattern=^[A-Za-z0-9_-]+$"`
	// Address is the id of the one address that the row is for, of several that the user has on the channel; optional.
	Address string `json:"address,omitempty" jsonschema:"pattern=^([A-Za-z][A-Za-z0-9_-]{0\\,63})?$"`
	// Channel is the channel that notifies the user, such as inapp, email, webhook or push.
	Channel string `json:"channel" jsonschema:"minLength=1,maxLength=64,pattern=^[A-Za-z0-9_-]+$"`
	// EventType names the kind of event.
	EventType string `json:"event_type" jsonschema:"minLength=1,maxLength=320"`
	// Category groups notifications that a user can switch off together; optional.
	Category string `json:"category,omitempty" jsonschema:"maxLength=64,pattern=^[A-Za-z0-9_-]*$"`
	// Priority is how urgent it is: critical, high, normal or low. Readers treat any other as normal. Defaults to normal.
	Priority string `json:"priority,omitempty" jsonschema:"maxLength=64,pattern=^[A-Za-z0-9_-]*$"`
	// Template names the text. Defaults to the template of the event type.
	Template string `json:"template,omitempty" jsonschema:"maxLength=1024"`
	// Locale is a BCP 47 tag; optional.
	Locale string `json:"locale,omitempty" jsonschema:"maxLength=64,pattern=^[A-Za-z0-9_-]*$"`
	// CreatedAt is when the plan was made.
	CreatedAt time.Time `json:"created_at"`
	// NotBefore defers the row; optional.
	NotBefore time.Time `json:"not_before,omitzero"`
	// Fallback are the channels that are tried in order when this one has not reached the user; optional.
	Fallback []string `json:"fallback,omitempty"`
	// FallbackAfter is for how many seconds the row is tried before the next channel takes its place. Defaults to 0:
	// until the attempts of its channel are used up.
	FallbackAfter int64 `json:"fallback_after,omitempty" jsonschema:"minimum=0"`
	// FallbackOf is the channel that has not reached the user, for a row that has taken its place; optional.
	FallbackOf string `json:"fallback_of,omitempty" jsonschema:"maxLength=64,pattern=^[A-Za-z0-9_-]*$"`
	// Payload is the event's payload; a large one is in the plan only.
	Payload json.RawMessage `json:"payload,omitempty"`
	// Recipient is the user's data that the plan has in addition to the directory; optional.
	Recipient *Recipient `json:"recipient,omitempty" wire:"private"`
	// Digest is set for a row that is sent together with others; optional.
	Digest *Digest `json:"digest,omitempty"`
	// Collected reports whether the row is itself a digest, of the rows that are stored under its event_id.
	Collected bool `json:"collected,omitempty"`
	// Throttle bounds how often the user is notified; optional.
	Throttle *Throttle `json:"throttle,omitempty"`
	// Unread spares a user who has read the event in the inbox before the row is sent.
	Unread bool `json:"unread,omitempty"`
}

// Validate checks all fields.
func (n Notification) Validate() error {
	var c checks
	c.id("/event_id", n.EventID)
	c.id("/user_id", n.UserID)
	c.name("/recipient_type", string(n.RecipientType))
	c.Add(n.RecipientType == broadcast, "/recipient_type", "must be a kind of recipient, a row is for one user")
	if n.Address != "" {
		c.endpointID("/address", n.Address)
	}
	c.name("/channel", n.Channel)
	c.id("/event_type", n.EventType)
	c.optionalName("/category", n.Category)
	c.optionalName("/priority", n.Priority)
	c.text("/template", n.Template)
	c.optionalName("/locale", n.Locale)
	c.requiredTime("/created_at", n.CreatedAt)
	c.timestamp("/not_before", n.NotBefore)
	for _, channel := range n.Fallback {
		c.name("/fallback", channel)
	}
	c.Add(n.FallbackAfter < 0, "/fallback_after", "must not be negative")
	c.optionalName("/fallback_of", n.FallbackOf)
	c.opaque("/payload", n.Payload)
	if n.Recipient != nil {
		c.nest("/recipient", n.Recipient.Validate())
	}
	if n.Digest != nil {
		c.nest("/digest", n.Digest.Validate())
	}
	if n.Throttle != nil {
		c.nest("/throttle", n.Throttle.Validate())
	}
	return c.In("Notification")
}

// Anything is the wildcard of Recipient.OptOut: every category, or every channel.
const Anything = "*"

// maxRecipients is the largest number of recipients of an event.
const maxRecipients = 10_000

// Recipient is a person who is notified of events, with addresses and preferences. The directory keeps recipients,
// resolvers return them, and events may have their own.
type Recipient struct {
	// UserID is the user, within the kind.
	UserID string `json:"user_id" jsonschema:"minLength=1,maxLength=320" wire:"private"`
	// RecipientType is the kind of recipient that the user is.
	RecipientType RecipientType `json:"recipient_type" jsonschema:"minLength=1,maxLength=64,pattern=^[A-Za-z0-9_-]+$"`
	// Addresses are the user's addresses by channel, such as "email": "ada@example.com"; optional.
	Addresses map[string]string `json:"addresses,omitempty" wire:"private"`
	// Endpoints are further addresses of the user, and the settings of addresses, by channel and by a name for each; main is the
	// name of the one in Addresses; optional.
	Endpoints map[string]map[string]Endpoint `json:"endpoints,omitempty" wire:"private"`
	// Locale is a BCP 47 tag; optional.
	Locale string `json:"locale,omitempty" jsonschema:"maxLength=64,pattern=^[A-Za-z0-9_-]*$"`
	// OptOut names, by category, the channels on which the user does not want to be notified. "*" is every category, or
	// every channel. Critical notifications are sent all the same; optional.
	OptOut map[string][]string `json:"opt_out,omitempty"`
	// Mute says, by category, until when the user is not to be disturbed at all. "*" is every category; optional.
	Mute map[string]time.Time `json:"mute,omitempty"`
	// Digest says, by category, when the user wants notifications in one message: each 30m or 4h, at 09:00,17:00, or off for at
	// once. It goes before the rules. "*" is every category that is not named; optional.
	Digest map[string]string `json:"digest,omitempty"`
	// QuietHours are the hours in which the user is not to be disturbed; optional.
	QuietHours *QuietHours `json:"quiet_hours,omitempty"`
	// TimeZone is the user's zone by its IANA name, such as Asia/Jerusalem. Defaults to UTC.
	TimeZone string `json:"time_zone,omitempty" jsonschema:"maxLength=64"`
}

// QuietHours are a part of each day in the user's time zone. The end may be on the next day.
type QuietHours struct {
	// From is when they begin, such as 22:00.
	From string `json:"from" jsonschema:"pattern=^[0-2][0-9]:[0-5][0-9]$"`
	// To is when they end, such as 07:00. The same time as From means no quiet hours.
	To string `json:"to" jsonschema:"pattern=^[0-2][0-9]:[0-5][0-9]$"`
}

// Validate checks all fields.
func (r Recipient) Validate() error {
	var c checks
	c.id("/user_id", r.UserID)
	c.name("/recipient_type", string(r.RecipientType))
	c.Add(r.RecipientType == broadcast, "/recipient_type", "must be a kind of recipient, this is one user")
	for _, channel := range slices.Sorted(maps.Keys(r.Addresses)) {
		c.name("/addresses/"+clip(channel), channel)
		c.address("/addresses/"+clip(channel), r.Addresses[channel])
	}
	for _, channel := range slices.Sorted(maps.Keys(r.Endpoints)) {
		path := "/endpoints/" + clip(channel)
		c.name(path, channel)
		c.Add(channel == "inapp", path, "is a channel without addresses")
		c.endpoints(path, r.Endpoints[channel])
	}
	c.optionalName("/locale", r.Locale)
	for _, category := range slices.Sorted(maps.Keys(r.OptOut)) {
		for _, name := range append([]string{category}, r.OptOut[category]...) {
			c.category("/opt_out/"+clip(category), name)
		}
	}
	c.preferences(r)
	if r.QuietHours != nil {
		c.wallClock("/quiet_hours/from", r.QuietHours.From)
		c.wallClock("/quiet_hours/to", r.QuietHours.To)
	}
	c.Add(!isZone(r.TimeZone), "/time_zone", "must be the IANA name of a time zone, such as Asia/Jerusalem")
	return c.In("Recipient")
}

// address checks an address. Half a character has become U+FFFD, and the address another one.
func (c *checks) address(path, address string) {
	c.attribute(path, address)
	c.Add(strings.ContainsRune(address, utf8.RuneError), path, "is not valid Unicode")
}

// isZone reports whether a name is "" or that of a time zone of IANA. Files next to those of zones, such as localtime and right/UTC, mean
// something else on each machine, and begin with a small letter.
func isZone(name string) bool {
	_, err := time.LoadLocation(name)
	return name == "" || err == nil && name != "Local" && name != "Factory" && name[0] >= 'A' && name[0] <= 'Z'
}

// preferences checks the categories and times that a recipient has chosen.
func (c *checks) preferences(r Recipient) {
	for _, category := range slices.Sorted(maps.Keys(r.Mute)) {
		c.category("/mute/"+clip(category), category)
		c.requiredTime("/mute/"+clip(category), r.Mute[category])
	}
	for _, category := range slices.Sorted(maps.Keys(r.Digest)) {
		c.category("/digest/"+clip(category), category)
		if err := new(Digest).Parse(r.Digest[category]); err != nil {
			c.add("/digest/"+clip(category), err.Error())
		}
	}
}

// category checks the name of a category, or the name "*" of all categories.
func (c *checks) category(path, name string) {
	if name != Anything {
		c.name(path, name)
	}
}

// wallClock checks a time of day.
func (c *checks) wallClock(path, clock string) {
	_, err := time.Parse("15:04", clock)
	c.Add(err != nil || len(clock) != len("15:04"), path, "must be a time of day such as 22:00")
}
