package enrich

import (
	"bytes"
	"cmp"
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
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvrecord"
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
	key, err := subject.Join("", subject.ID("requestId", requestID))
	if err != nil {
		return err
	}
	caller := access.From(ctx).Name
	fresh := requestRecord{Nonce: uuid.NewString()[:8], Owner: caller}
	fresh.add(lookups)
	// The first try takes the id to be new, which saves the read in nearly all cases.
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
		if over = conflict.Found; over.Revision == 0 || over.Deleted() {
			// The record was removed in the meantime.
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
		// A repeated request adds nothing, and its record needs no write.
		if !record.add(lookups) {
			return nil
		}
	}
	return fmt.Errorf("enricher: save request %q: it changed %d times in the meantime", requestID, saveTries)
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
	key, err := subject.Join("", subject.ID("requestId", requestID))
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
		return requestRecord{}, fmt.Errorf("%w %q: its first answer was complete, so nothing is stored of it "+
			"(send it again for the same results), or it is over, or was never made", ErrUnknownRequest, requestID)
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
	// Room on the stack: this runs for each place of each request.
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
	if len(lines) != 5 { // a hash has one line
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

// variants is the number of descriptions of one place, in addition to the first, that have a separate entry at a provider.
const variants = 15

// variantOf returns the number, from 1, of the entry for a name that the first entry of its place does not fit.
func variantOf(name string) int {
	hash := fnv.New32a()
	_, _ = hash.Write(appendPlain(make([]byte, 0, 64), name))
	return 1 + int(hash.Sum32()%variants)
}

// lookup is one place of a request at one provider. A place that a request names more than once is one lookup.
type lookup struct {
	job         contracts.EnrichJob // without its claim
	fingerprint string              // of job
	prepared    *match.Prepared     // of job, nil until it is needed
	results     []int               // the indexes of the place's restaurants in the request
	result      [1]int              // holds results, as long as there is one

	first   string           // the key of the first entry of its place
	entries [2]*flight.Entry // as last read, &unread before that; never written to
	fit     [2]bool          // by entry, see [lookup.fits]
	at      int              // the index in entries of the one that answers the lookup

	state contracts.ProviderState
	// settled: the look-up has ended with this state, with or without an answer.
	settled bool
	value   []byte // the entry's value from which a settled state was read

	// published: the subscriber of the place has received its outcome, so the place need not be looked up again.
	published bool
	// unclaimed: no process works on the place, because it could not be claimed or queued.
	unclaimed bool
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
	// Most entries have the lookup's own description, so few lookups need to be prepared for comparison.
	if t.prepared == nil {
		t.prepared = match.Prepare(placeOf(t.job))
	}
	place, ok := describedBy(entry.Fingerprint)
	if !ok || match.Contradict(match.Prepare(place), t.prepared) {
		return false
	}
	// While there is no answer yet, the two descriptions share the lookup. The answer is compared when it comes.
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

// lookups lists the places and providers of a request, in its order.
func lookups(req contracts.EnrichRequest, requestID string, providers []string) ([]*lookup, error) {
	room := make([]lookup, len(req.Results)*len(providers))
	list := make([]*lookup, 0, len(room))
	known := make(map[[2]string]*lookup, cap(list)) // by the key of the first entry and the description
	for i, r := range req.Results {
		for _, name := range providers {
			t := &room[len(list)]
			err := t.init(contracts.EnrichJob{
				Provider: name, PlaceID: r.PlaceID, RequestID: requestID, Name: r.Name, Address: r.Address,
				CityText: cmp.Or(r.CityText, req.CityText), Location: r.Location, Phone: r.Phone,
			})
			if err != nil {
				return nil, fmt.Errorf("enricher: results/%d: %w", i, err)
			}
			// A place that is named twice with the same description has one claim, one job and one answer.
			id := [2]string{t.first, t.fingerprint}
			if known[id] == nil {
				known[id] = t
				list = append(list, t)
				t.results = t.result[:0]
			}
			known[id].results = append(known[id].results, i)
		}
	}
	return list, nil
}

// init makes t the lookup of a job.
func (t *lookup) init(job contracts.EnrichJob) error {
	key, err := contracts.EnrichEntryKey(job.Provider, job.PlaceID)
	*t = lookup{
		job: job, fingerprint: fingerprint(job), first: key, entries: [2]*flight.Entry{&unread, &unread},
		state: contracts.ProviderState{Status: contracts.StatusPending},
	}
	return err
}

// key returns the key of the entry that answers the lookup.
func (t *lookup) key() string {
	if t.at == 0 {
		return t.first
	}
	return variantKey(t.first, t.other())
}

// variantKey returns the key or subject of the n-th variant of a place: a description that differs from that of the first
// entry. 0 is the first entry itself.
func variantKey(key string, n int) string {
	if n == 0 {
		return key
	}
	return key + "." + strconv.Itoa(n)
}

// unread stands for an entry that was not read.
var unread flight.Entry

// other returns the number of the entry for a description that the first entry does not fit.
func (t *lookup) other() int { return variantOf(t.job.Name) }

// foreign reports whether the entry that is to answer the lookup has another description.
func (t *lookup) foreign() bool { return t.entries[t.at].State != flight.Absent && !t.fit[t.at] }

// learn takes over the state of one of the entries. The first entry answers the lookup when it fits. Otherwise the other entry does
// when it fits, or when the first is not free. learn returns an error for a result that cannot be read; then the lookup stays
// pending.
func (t *lookup) learn(entry *flight.Entry) error {
	of := 0
	if entry.Key != t.first {
		of = 1
	}
	t.entries[of], t.fit[of] = entry, t.fits(entry)
	// The first entry is preferred even when both fit, so all requests for a place agree on one.
	t.at = 0
	if !t.fit[0] && (t.fit[1] || t.entries[0].State != flight.Absent) {
		t.at = 1
	}
	entry = t.entries[t.at]
	done := entry.State == flight.Done && t.fit[t.at]
	if done && t.settled && bytes.Equal(entry.Value, t.value) {
		// Entries are read repeatedly, and each value is parsed once.
		return nil
	}
	t.state, t.settled = contracts.ProviderState{Status: contracts.StatusPending}, false
	if !done {
		return nil
	}
	state, err := readState(entry.Value)
	if err != nil {
		return fmt.Errorf("enricher: entry %q at revision %d: %w", entry.Key, entry.Revision, err)
	}
	t.state, t.settled, t.value = state, true, entry.Value
	return nil
}

// answered reports whether the look-up has an answer: FOUND or NOT_FOUND.
func (t *lookup) answered() bool { return t.settled && t.state.Status != contracts.StatusPending }

// Lookup is the result for a place at a provider, by one description of it.
type Lookup struct {
	Attempt  int             `json:"attempt,omitempty"`
	Provider string          `json:"provider"`
	Reason   string          `json:"reason,omitempty"` // of a failure
	Result   json.RawMessage `json:"result,omitempty"` // an EnrichResult
	Since    time.Time       `json:"since"`
	State    string          `json:"state"` // pending, done or failed
	Variant  int             `json:"variant,omitempty"`
}

// Place returns the results for a place at all providers, by all descriptions of it. One round trip for 32 providers.
func (s *Service) Place(ctx context.Context, placeID string) ([]Lookup, error) {
	var keys []string
	known := []Lookup{}
	for _, p := range s.cfg.Providers {
		first, err := contracts.EnrichEntryKey(p.Name(), placeID)
		if err != nil {
			return nil, err
		}
		for n := range variants + 1 {
			keys, known = append(keys, variantKey(first, n)), append(known, Lookup{Provider: p.Name(), Variant: n})
		}
	}
	entries, err := s.flight.GetMany(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("enricher: read place %.80q: %w", placeID, err)
	}
	there := known[:0]
	for i, entry := range entries {
		if entry.State == flight.Absent {
			continue
		}
		l := known[i]
		l.Attempt, l.Reason, l.Since, l.State = entry.Attempt, entry.Reason, entry.Created, entry.State.String()
		if json.Valid(entry.Value) {
			l.Result = entry.Value
		}
		there = append(there, l)
	}
	return there, nil
}

// Results returns the results of look-ups for the places of a request, with score and evidence, by place id. Places without a
// result, or with one that cannot be read, are left out. One round trip for each 512 places, and one more for each 512 whose
// first entry has another description.
func (s *Service) Results(ctx context.Context, provider string, req contracts.EnrichRequest) (map[string]contracts.EnrichResult, error) {
	all, err := lookups(req, "", []string{provider})
	if err == nil {
		err = s.read(ctx, all)
	}
	if err != nil {
		return nil, fmt.Errorf("enricher: read results: %w", err)
	}
	results := make(map[string]contracts.EnrichResult, len(all))
	for _, t := range all {
		var result contracts.EnrichResult
		if t.settled && json.Unmarshal(t.entries[t.at].Value, &result) == nil {
			results[t.job.PlaceID] = result
		}
	}
	return results, nil
}
