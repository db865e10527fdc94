package enrich

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/services/enricher/match"
)

// lookup is one place of a request at one provider. A place that a request names more than once is one lookup.
type lookup struct {
	job         contracts.EnrichJob // without its claim
	fingerprint string              // of job
	prepared    *match.Prepared     // of job, nil until it is needed
	results     []int               // the indexes of the place's restaurants in the request
	result      [1]int              // holds results, as long as there is one

	first   string           // the key of the first entry of its place
	entries [2]*flight.Entry // as last read, nil before that; never written to
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
	*t = lookup{job: job, fingerprint: fingerprint(job), first: key, state: contracts.PendingState()}
	return err
}

// key returns the key of the entry that answers the lookup.
func (t *lookup) key() string { return contracts.EnrichVariant(t.first, t.variant()) }

// claim returns a name for the claim of the lookup's entry by the lookup's description.
func (t *lookup) claim() string { return t.key() + "\n" + t.fingerprint }

// unread stands for an entry that was not read.
var unread flight.Entry

// seen returns the entry that answers the lookup, as last read.
func (t *lookup) seen() *flight.Entry { return cmp.Or(t.entries[t.at], &unread) }

// variant returns the number of the entry that answers the lookup.
func (t *lookup) variant() int {
	if t.at == 0 {
		return 0
	}
	return t.other()
}

// other returns the number of the entry for a description that the first entry does not fit.
func (t *lookup) other() int { return variantOf(t.job.Name) }

// foreign reports whether the entry that is to answer the lookup has another description.
func (t *lookup) foreign() bool { return t.seen().State != flight.Absent && !t.fit[t.at] }

// record takes over the state of one of the entries. The first entry answers the lookup when it fits. Otherwise the other entry does
// when it fits, or when the first is not free. record returns an error for a result that cannot be read; then the lookup stays
// pending.
func (t *lookup) record(entry *flight.Entry) error {
	of := 0
	if entry.Key != t.first {
		of = 1
	}
	t.entries[of], t.fit[of] = entry, t.fits(entry)
	t.at = 0
	if !t.fit[0] && (t.fit[1] || cmp.Or(t.entries[0], &unread).State != flight.Absent) {
		t.at = 1
	}
	entry = t.seen()
	done := entry.State == flight.Done && t.fit[t.at]
	if done && t.settled && bytes.Equal(entry.Value, t.value) {
		return nil // entries are read repeatedly, and each value is parsed once
	}
	t.state, t.settled = contracts.PendingState(), false
	if !done {
		return nil
	}
	state, err := contracts.ReadState(entry.Value)
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
		for n := range contracts.EnrichVariants + 1 {
			keys, known = append(keys, contracts.EnrichVariant(first, n)), append(known, Lookup{Provider: p.Name(), Variant: n})
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
		if t.settled && json.Unmarshal(t.seen().Value, &result) == nil {
			results[t.job.PlaceID] = result
		}
	}
	return results, nil
}
