package enrich

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// errStaleEventID is returned for an event id of another request, of an earlier one under the same id, or one that was never
// issued.
var errStaleEventID = errors.New("event id does not belong to this request")

// told is what a subscriber has received about one place: nothing, that it has no answer for now, or the answer. It only
// grows.
type told uint8

const (
	toldNothing told = iota
	toldUnresolved
	toldAnswer
)

// progress is what a subscriber has received about each place of a request. Event ids carry it: two bits for each place, in
// the order of the request's record, behind the record's nonce. So any process can continue exactly where another one
// stopped, in whatever order the answers came, and no state is kept for subscribers that may come back.
type progress struct {
	nonce string
	told  []told
}

// eventID returns the progress as the id of the event that brought it about.
func (p progress) eventID() string {
	bits := make([]byte, (len(p.told)+3)/4)
	for i, t := range p.told {
		bits[i/4] |= byte(t) << (i % 4 * 2)
	}
	return p.nonce + "." + base64.RawURLEncoding.EncodeToString(bits)
}

// resume applies the progress in an event id. The record may have grown since: the subscriber has received nothing about the
// added places.
func (p progress) resume(eventID string) error {
	nonce, encoded, found := strings.Cut(eventID, ".")
	if !found || nonce != p.nonce {
		return fmt.Errorf("%w: %.40q", errStaleEventID, eventID)
	}
	bits, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(bits) > (len(p.told)+3)/4 {
		return fmt.Errorf("%w: %.40q", errStaleEventID, eventID)
	}
	for i := range p.told {
		if i/4 < len(bits) {
			p.told[i] = min(told(bits[i/4]>>(i%4*2)&3), toldAnswer)
		}
	}
	return nil
}

// complete reports whether the subscriber has received something about every place.
func (p progress) complete() bool {
	return !slices.Contains(p.told, toldNothing)
}
