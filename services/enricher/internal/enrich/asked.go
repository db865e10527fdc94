package enrich

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/services/enricher/match"
)

// maxFingerprint is the longest fingerprint that is stored as it is, in bytes.
const maxFingerprint = 1 << 10

// fingerprint returns the description by which a job looks a place up, in the form that its slot keeps: name, address, city,
// telephone number and location, one a line, without what has no meaning. A long description is hashed: it is compared for
// equality only. Location is rounded to some ten metres.
func fingerprint(job contracts.EnrichJob) string {
	var room [256]byte
	text := room[:0]
	for _, part := range []string{job.Name, job.Address, job.CityText, job.Phone} {
		text = append(appendPlain(text, part), '\n')
	}
	if l := job.Location; l != nil {
		text = append(strconv.AppendFloat(text, l.Lat, 'f', 4, 64), ',')
		text = strconv.AppendFloat(text, l.Lng, 'f', 4, 64)
	}
	if len(text) > maxFingerprint {
		sum := sha256.Sum256(text)
		return "sha256:" + hex.EncodeToString(sum[:])
	}
	return string(text)
}

// appendPlain appends text in lower case with single spaces.
func appendPlain(dst []byte, text string) []byte {
	begin := len(dst)
	for word := range strings.FieldsSeq(text) {
		if len(dst) > begin {
			dst = append(dst, ' ')
		}
		for _, r := range word {
			dst = utf8.AppendRune(dst, unicode.ToLower(r))
		}
	}
	return dst
}

// describedBy returns the place that a fingerprint describes, and false for one that was hashed.
func describedBy(fingerprint string) (match.Place, bool) {
	lines := strings.Split(fingerprint, "\n")
	if len(lines) != 5 {
		return match.Place{}, false
	}
	place := match.Place{Name: lines[0], Address: lines[1], City: lines[2], Phone: lines[3]}
	if lat, lng, found := strings.Cut(lines[4], ","); found {
		y, errLat := strconv.ParseFloat(lat, 64)
		x, errLng := strconv.ParseFloat(lng, 64)
		if errLat != nil || errLng != nil {
			return match.Place{}, false
		}
		place.Location = &match.Point{Lat: y, Lng: x}
	}
	return place, true
}

// placeOf is the place of a job as the provider and the matcher take it.
func placeOf(job contracts.EnrichJob) match.Place {
	place := match.Place{Name: job.Name, Address: job.Address, City: job.CityText, Phone: job.Phone}
	if l := job.Location; l != nil {
		place.Location = &match.Point{Lat: l.Lat, Lng: l.Lng}
	}
	return place
}

// sameFields reports whether two places have the same fields, whatever is in them.
func sameFields(a, b match.Place) bool {
	return (a.Address == "") == (b.Address == "") && (a.City == "") == (b.City == "") && (a.Phone == "") == (b.Phone == "") &&
		(a.Location == nil) == (b.Location == nil)
}

// variantOf numbers the slot that a name has beside the first one of its place, from 1.
func variantOf(name string) int {
	hash := fnv.New32a()
	_, _ = hash.Write(appendPlain(make([]byte, 0, 64), name))
	return 1 + int(hash.Sum32()%contracts.EnrichVariants)
}

// fits reports whether a slot is about the place as the target describes it, so that what it holds answers the target. A slot
// with the same description does. One with another does when neither contradicts the other, and the answer does not rest on
// what only one of them says: a venue that was found must not contradict the target, and that nothing was found counts only
// for descriptions with the same fields. Slots of earlier versions have no description, only their venue.
func (t *target) fits(slot flight.Slot) bool {
	switch {
	case slot.State == flight.Absent:
		return false
	case slot.Fingerprint == t.fingerprint:
		return true
	}
	if t.prepared == nil {
		t.prepared = match.Prepare(placeOf(t.job))
	}
	place, ok := describedBy(slot.Fingerprint)
	if slot.Fingerprint != "" && (!ok || match.Contradict(match.Prepare(place), t.prepared)) {
		return false
	}
	if slot.State != flight.Done {
		return true
	}
	found, venue := venueIn(slot.Value)
	if venue != nil {
		return !match.Contradict(match.Prepare(*venue), t.prepared)
	}
	return found || slot.Fingerprint == "" || sameFields(place, t.prepared.Place)
}

// venueIn returns the venue of a result that is FOUND, nil when there is none, and whether the result is FOUND.
func venueIn(value []byte) (found bool, venue *match.Place) {
	var r struct {
		Status contracts.ProviderStatus `json:"status"`
		Venue  *contracts.Venue         `json:"venue"`
	}
	if json.Unmarshal(value, &r) != nil || r.Status != contracts.StatusFound || r.Venue == nil {
		return r.Status == contracts.StatusFound, nil
	}
	return true, &match.Place{Name: r.Venue.Name, Address: r.Venue.Address, City: r.Venue.City}
}
