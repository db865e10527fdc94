package contracts

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// maxDigestTimes is the largest number of times of day of a digest.
	maxDigestTimes = 24
	// maxThrottle is the largest number of messages that a throttle may let through in its period.
	maxThrottle = 100
	// maxThrottlePeriod is the longest period of a throttle.
	maxThrottlePeriod = 7 * 24 * time.Hour
)

// Digest has a row sent together with the others of its window. Windows end at the times of day in At, or at each
// multiple of Every minutes since midnight, in the user's time zone.
type Digest struct {
	// At are times of day, such as 09:00. Every is set instead when there are none.
	At []string `json:"at,omitempty" jsonschema:"maxItems=24"`
	// Every is the length of a window in minutes, which divides a day. 0 means that At is set.
	Every int `json:"every,omitempty" jsonschema:"minimum=0,maximum=1440"`
	// Template names the text of the digest. Defaults to the name of the category, or else of the row's template, with
	// .digest appended.
	Template string `json:"template,omitempty" jsonschema:"maxLength=1024"`
}

// Validate checks all fields.
func (d Digest) Validate() error {
	var c checks
	c.Add((len(d.At) == 0) == (d.Every == 0), "/every", "is wanted, or at, but not both")
	c.Add(d.Every < 0 || d.Every > minutesOfDay || d.Every > 0 && minutesOfDay%d.Every != 0,
		"/every", "must be minutes that divide a day")
	c.over("/at", len(d.At), maxDigestTimes, "items")
	for i, clock := range d.At {
		c.wallClock("/at", clock)
		c.Add(slices.Contains(d.At[:i], clock), "/at", "has a time twice")
	}
	c.text("/template", d.Template)
	return c.In("Digest")
}

const minutesOfDay = 24 * 60

// Parse sets d to the digest that a recipient asks for: parts of a day such as 30m or 24h, times of day such as 09:00,17:00, or off, which
// is the zero Digest: each notification is sent at once.
func (d *Digest) Parse(wish string) error {
	*d = Digest{}
	if wish == "off" {
		return nil
	}
	if strings.Contains(wish, ":") {
		d.At = strings.Split(wish, ",")
	} else if every, err := time.ParseDuration(wish); err == nil && every%time.Minute == 0 {
		d.Every = int(every / time.Minute)
	}
	if d.Validate() != nil {
		*d = Digest{}
		return errors.New("must be off, minutes or hours that divide a day such as 30m or 4h, or times of day such as 09:00,17:00")
	}
	return nil
}

// Throttle bounds how often a user is notified, on a channel, about a category.
type Throttle struct {
	// Limit is how many rows may be sent within any period.
	Limit int `json:"limit" jsonschema:"minimum=1,maximum=100"`
	// Per is the period, in seconds.
	Per int64 `json:"per" jsonschema:"minimum=1,maximum=604800"`
	// Suppress reports whether notifications over the limit are dropped instead of sent later.
	Suppress bool `json:"suppress,omitempty"`
}

// Period returns Per as a duration.
func (t Throttle) Period() time.Duration { return time.Duration(t.Per) * time.Second }

// Validate checks all fields.
func (t Throttle) Validate() error {
	var c checks
	if t.Limit < 1 || t.Limit > maxThrottle {
		c.add("/limit", fmt.Sprintf("must be 1 to %d", maxThrottle))
	}
	if t.Per < 1 || t.Per > int64(maxThrottlePeriod/time.Second) {
		c.add("/per", fmt.Sprintf("must be 1 to %d seconds", int64(maxThrottlePeriod/time.Second)))
	}
	return c.In("Throttle")
}
