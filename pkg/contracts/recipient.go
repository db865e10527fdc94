package contracts

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Anything is the wildcard of Recipient.OptOut: every category, or every channel.
const Anything = "*"

// MaxRecipients is how many recipients an event may have.
const MaxRecipients = 10_000

// Recipient is a person who is notified of events, with addresses and preferences. The directory keeps recipients,
// resolvers return them, and events may have their own.
type Recipient struct {
	// UserID is the user, within the kind.
	UserID string `json:"user_id" jsonschema:"minLength=1,maxLength=320"`
	// RecipientType is the kind of recipient that the user is.
	RecipientType RecipientType `json:"recipient_type" jsonschema:"minLength=1,maxLength=64,pattern=^[A-Za-z0-9_-]+$"`
	// Addresses are the user's addresses by channel, such as "email": "ada@example.com"; optional.
	Addresses map[string]string `json:"addresses,omitempty"`
	// Locale is a BCP 47 tag; optional.
	Locale string `json:"locale,omitempty" jsonschema:"maxLength=64,pattern=^[A-Za-z0-9_-]*$"`
	// OptOut names, by category, the channels on which the user does not want to be notified. "*" is every category, or
	// every channel. Critical notifications are sent all the same; optional.
	OptOut map[string][]string `json:"opt_out,omitempty"`
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
	if r.RecipientType == RecipientBroadcast {
		c.add("/recipient_type", "must be a kind of recipient, this is one user")
	}
	for _, channel := range slices.Sorted(maps.Keys(r.Addresses)) {
		c.name("/addresses", channel)
		c.attribute("/addresses/"+clip(channel), r.Addresses[channel])
	}
	c.optionalName("/locale", r.Locale)
	for _, category := range slices.Sorted(maps.Keys(r.OptOut)) {
		for _, name := range append([]string{category}, r.OptOut[category]...) {
			if name != Anything {
				c.name("/opt_out", name)
			}
		}
	}
	if r.QuietHours != nil {
		c.wallClock("/quiet_hours/from", r.QuietHours.From)
		c.wallClock("/quiet_hours/to", r.QuietHours.To)
	}
	if _, err := time.LoadLocation(r.TimeZone); err != nil || r.TimeZone == "Local" {
		c.add("/time_zone", "must be the IANA name of a time zone, such as Asia/Jerusalem")
	}
	return c.err("Recipient")
}

// wallClock checks a time of day.
func (c *checks) wallClock(path, clock string) {
	if _, err := time.Parse("15:04", clock); err != nil || len(clock) != len("15:04") {
		c.add(path, "must be a time of day such as 22:00")
	}
}

// recipients checks the recipients of an event.
func (c *checks) recipients(path string, list []Recipient) {
	if len(list) > MaxRecipients {
		c.add(path, fmt.Sprintf("has %d items, at most %d", len(list), MaxRecipients))
		return
	}
	for i, r := range list {
		c.nest(fmt.Sprintf("%s/%d", path, i), r.Validate())
	}
}
