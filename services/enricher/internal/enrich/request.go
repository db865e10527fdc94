package enrich

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/services/enricher/match"
)

// ErrUnknownRequest is returned for a request that was never made, is too old, or had no pending place: then it is not
// recorded.
var ErrUnknownRequest = errors.New("enricher: unknown request")

// ErrRequestTaken is returned for a request under the id of one that another caller has made and that is still recorded.
var ErrRequestTaken = errors.New("enricher: the requestId belongs to another caller")

// ErrRequestFull is returned for a request under an id whose record has room for no more places.
var ErrRequestFull = errors.New("enricher: the record of the requestId is full")

// maxRecorded bounds the places of one record, each provider counted; maxRecordBytes its size.
const (
	maxRecorded    = 2000
	maxRecordBytes = contracts.MaxBody - 1<<10 // the server counts the headers, too
)

// requestRecord is the stored form of a request: enough to look up the states of its places, and to queue them again. Places
// are only ever appended, so that a position in it means the same for as long as the record lives.
type requestRecord struct {
	// Nonce distinguishes this record from an earlier or later one under the same id.
	Nonce string `json:"nonce"`

	// Owner is the name of the caller that made the request. Only this caller can add places. Owner is "" for callers without a
	// name: then any caller can add places.
	Owner string `json:"owner,omitempty"`

	// Jobs are the places, without their claims.
	Jobs []contracts.EnrichJob `json:"jobs"`
}

// saveTries bounds the attempts to merge a record when several requests with one id are made at the same moment.
const saveTries = 10

// save records the lookups of a request, under its id, for Subscribe. A second request of the same caller with the same id adds
// its places. The errors are [ErrRequestTaken], [ErrRequestFull], and those of the store. One round trip for a new id, two otherwise.
func (s *Service) save(ctx context.Context, requestID string, lookups []*lookup) error {
	key, err := contracts.RequestKey(requestID)
	if err != nil {
		return err
	}
	caller := access.From(ctx).Name
	fresh := requestRecord{Nonce: uuid.NewString()[:8], Owner: caller}
	fresh.add(lookups)
	record, over, header := fresh, kvrecord.Record{}, nats.Header{}
	s.cfg.Telemetry.Inject(ctx, header) // the spans of subscriptions to the request link to it
	for range saveTries {
		data, err := json.Marshal(record)
		if err != nil {
			return fmt.Errorf("enricher: encode request record: %w", err)
		}
		if len(record.Jobs) > maxRecorded || len(data) > maxRecordBytes {
			return fmt.Errorf("%w: %q with %d places in %d bytes, at most %d in %d: use another requestId",
				ErrRequestFull, requestID, len(record.Jobs), len(data), maxRecorded, maxRecordBytes)
		}
		_, err = s.requests.Put(ctx, kvrecord.Write{
			Subject: s.requests.Key(key), Data: data, Header: header, Over: over, TTL: s.cfg.RequestTTL,
		})
		conflict, taken := errors.AsType[*kvrecord.ConflictError](err)
		if err == nil {
			return nil
		}
		if !taken {
			return fmt.Errorf("enricher: save request %q: %w", requestID, err)
		}
		if over = conflict.Found; over.Revision == 0 || over.Deleted() { // the record was removed meanwhile
			record = fresh
			continue
		}
		record = requestRecord{}
		if err := json.Unmarshal(over.Data, &record); err != nil {
			return fmt.Errorf("enricher: request record %q is not JSON: %w", key, err)
		}
		if record.Owner != "" && record.Owner != caller {
			return fmt.Errorf("%w: %q: use another one", ErrRequestTaken, requestID)
		}
		if !record.add(lookups) {
			return nil
		}
	}
	return fmt.Errorf("enricher: save request %q: it changed %d times meanwhile", requestID, saveTries)
}

// add appends the lookups that the record does not have, and reports whether it has appended any.
func (r *requestRecord) add(lookups []*lookup) bool {
	before := len(r.Jobs)
	for _, t := range lookups {
		known := slices.ContainsFunc(r.Jobs, func(j contracts.EnrichJob) bool {
			return j.PlaceID == t.job.PlaceID && j.Provider == t.job.Provider && fingerprint(j) == t.fingerprint
		})
		if !known {
			r.Jobs = append(r.Jobs, t.job)
		}
	}
	return len(r.Jobs) > before
}

// load reads the record of a request, and links the span of ctx to it. One round trip, two for an unknown request.
func (s *Service) load(ctx context.Context, requestID string) (requestRecord, error) {
	key, err := contracts.RequestKey(requestID)
	if err != nil {
		return requestRecord{}, fmt.Errorf("%w: %w", ErrUnknownRequest, err)
	}
	stored, err := s.requests.Get(ctx, s.requests.Key(key))
	if err == nil && stored.Revision == 0 { // a replica may lack a record that was written a moment ago
		stored, err = s.requests.Latest(ctx, s.requests.Key(key))
	}
	switch {
	case err != nil:
		return requestRecord{}, fmt.Errorf("enricher: read request %q: %w", requestID, err)
	case len(stored.Data) == 0:
		return requestRecord{}, fmt.Errorf("%w %q: it had nothing pending, is over, or was never made", ErrUnknownRequest, requestID)
	}
	s.cfg.Telemetry.Link(ctx, stored.Header)
	var record requestRecord
	if err := json.Unmarshal(stored.Data, &record); err != nil {
		s.logger.LogAttrs(ctx, slog.LevelError, "enricher: request record is not JSON",
			slog.String("requestId", requestID), slog.Any("error", err))
		return requestRecord{}, fmt.Errorf("%w %q: its record is unreadable", ErrUnknownRequest, requestID)
	}
	return record, nil
}

// maxFingerprint is the longest fingerprint that is stored as it is, in bytes.
const maxFingerprint = 1 << 10

// fingerprint returns the description by which a job looks a place up, in the form that its entry keeps: name, address, city,
// telephone number and location, one a line, in lower case with single spaces. A long description is hashed: it is compared for
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

// sameFields reports whether two places have the same fields, with any values.
func sameFields(a, b match.Place) bool {
	return (a.Address == "") == (b.Address == "") && (a.City == "") == (b.City == "") && (a.Phone == "") == (b.Phone == "") &&
		(a.Location == nil) == (b.Location == nil)
}

// variantOf returns the number, from 1, of the entry for a name that the first entry of its place does not fit.
func variantOf(name string) int {
	hash := fnv.New32a()
	_, _ = hash.Write(appendPlain(make([]byte, 0, 64), name))
	return 1 + int(hash.Sum32()%contracts.EnrichVariants)
}

// fits reports whether an entry is about the place as the lookup describes it, so that its value answers the lookup. An entry
// with the same description fits. An entry with another description fits when the two do not contradict each other, and the
// answer does not rest on a field that only one has: a found venue must not contradict the lookup, and NOT_FOUND counts only
// for a description with the same fields. An entry without a description is that of a job that was given up and had
// no claim; it fits, so that its place rests for unresolvedTTL.
func (t *lookup) fits(entry *flight.Entry) bool {
	switch {
	case entry.State == flight.Absent:
		return false
	case entry.Fingerprint == t.fingerprint, entry.Fingerprint == "":
		return true
	}
	if t.prepared == nil {
		t.prepared = match.Prepare(placeOf(t.job))
	}
	place, ok := describedBy(entry.Fingerprint)
	if !ok || match.Contradict(match.Prepare(place), t.prepared) {
		return false
	}
	if entry.State != flight.Done {
		return true
	}
	found, venue := venueIn(entry.Value)
	if venue != nil {
		return !match.Contradict(match.Prepare(*venue), t.prepared)
	}
	return found || sameFields(place, t.prepared.Place)
}

// venueIn reports whether a result is FOUND, and returns its venue, nil when it has none.
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
