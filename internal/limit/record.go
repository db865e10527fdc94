package limit

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/expediter-io/expediter/pkg/kvrecord"
)

const (
	version = 1

	// maxLease is the longest lease of a worker.
	maxLease = 24 * time.Hour

	// maxQueue is the largest number of workers in line. Further workers read the record from time to time.
	maxQueue = 64

	// horizon is the time ahead within which starts are granted. Without it, a worker that writes only when a start is due would fall behind
	// the rate.
	horizon = 10 * time.Millisecond

	// apart is the largest difference between clocks. A time that is further ahead was written by a worker whose clock was wrong.
	apart = time.Minute
)

// record is the stored state of a key.
type record struct {
	// Holders are the workers with permits.
	Holders []holder `json:"holders,omitempty"`

	// Next is the time at which the next start would be due if none was early, in Unix nanoseconds: the theoretical arrival time.
	Next int64 `json:"next,omitempty"`

	// Queue are the workers that want permits, the first in line first.
	Queue []string `json:"queue,omitempty"`

	// Version is the version of the encoding.
	Version int `json:"v"`
}

// holder is a worker with permits.
type holder struct {
	ID string `json:"id"`
	N  int    `json:"n"`

	// TTL is the TTL of its lease, in nanoseconds.
	TTL time.Duration `json:"ttl"`
}

// decode reads a record. No data is an empty record.
func decode(data []byte) (record, error) {
	if len(data) == 0 {
		return record{Version: version}, nil
	}
	var rec record
	if err := json.Unmarshal(data, &rec); err != nil {
		return record{}, err
	}
	if rec.Version != version {
		return record{}, fmt.Errorf("a version that is not known here: %d", rec.Version)
	}
	for _, h := range rec.Holders {
		if h.ID == "" || h.N < 1 || h.TTL <= 0 || h.TTL > maxLease {
			return record{}, errors.New("a holder without permits, name or lease")
		}
	}
	if len(rec.Queue) > maxQueue {
		return record{}, fmt.Errorf("more than %d in line", maxQueue)
	}
	return rec, nil
}

func (r record) clone() record {
	r.Holders, r.Queue = slices.Clone(r.Holders), slices.Clone(r.Queue)
	return r
}

// of returns the number of permits that a worker has.
func (r record) of(id string) int {
	for _, h := range r.Holders {
		if h.ID == id {
			return h.N
		}
	}
	return 0
}

// total returns the number of taken permits.
func (r record) total() int {
	n := 0
	for _, h := range r.Holders {
		n += h.N
	}
	return n
}

// set sets the number of permits that a worker has.
func (r *record) set(id string, n int, ttl time.Duration) {
	at := slices.IndexFunc(r.Holders, func(h holder) bool { return h.ID == id })
	switch {
	case n == 0 && at >= 0:
		r.Holders = slices.Delete(r.Holders, at, at+1)
	case n == 0:
	case at >= 0:
		r.Holders[at] = holder{ID: id, N: n, TTL: ttl}
	default:
		r.Holders = append(r.Holders, holder{ID: id, N: n, TTL: ttl})
	}
}

// without removes the workers for which gone is true, and reports whether there were any.
func (r *record) without(gone func(id string) bool) bool {
	before := len(r.Holders) + len(r.Queue)
	r.Holders = slices.DeleteFunc(r.Holders, func(h holder) bool { return gone(h.ID) })
	r.Queue = slices.DeleteFunc(r.Queue, gone)
	return len(r.Holders)+len(r.Queue) < before
}

// share returns the number of permits that each worker that has or wants some may keep.
func (r record) share(limit int, id string) int {
	n := len(r.Holders)
	if r.of(id) == 0 {
		n++
	}
	for _, other := range r.Queue {
		if other != id && r.of(other) == 0 {
			n++
		}
	}
	return limit / n
}

// owed returns the number of permits that are to be left to other workers in line: one for each that has less than its share, or stands
// before this worker.
func (r record) owed(limit int, id string) int {
	share, n := r.share(limit, id), 0
	before := true
	for _, other := range r.Queue {
		switch {
		case other == id:
			before = false
		case before, r.of(other) < share:
			n++
		}
	}
	return n
}

// most returns the number of permits that a worker may have. The permits that it owes to others are taken only from those above its share.
func (r record) most(limit int, id string, owes bool) int {
	there := limit - r.total() + r.of(id)
	if !owes {
		return there
	}
	return max(min(there, r.share(limit, id)), there-r.owed(limit, id))
}

// stand puts a worker in line or removes it, and reports whether the record has to be written for that. A worker that got a permit and
// wants more goes to the end of the line.
func (r *record) stand(id string, wants, got bool) bool {
	at := slices.Index(r.Queue, id)
	switch {
	case !wants && at >= 0:
		r.Queue = slices.Delete(r.Queue, at, at+1)
	case wants && at < 0 && len(r.Queue) < maxQueue:
		r.Queue = append(r.Queue, id)
	case wants && at >= 0 && got:
		r.Queue = append(slices.Delete(r.Queue, at, at+1), id)
		return false // no reason to write
	default:
		return false
	}
	return true
}

// due returns the time at which the next start is due if none is early.
func (r record) due(spec Spec, now time.Time) time.Time {
	due := time.Unix(0, r.Next)
	if due.After(now.Add(spec.burst() + 2*spec.Per + apart)) {
		return now // its writer's clock was wrong
	}
	return due
}

// next returns the earliest time of the next start.
func (r record) next(spec Spec, now time.Time) time.Time {
	return laterOf(r.due(spec, now).Add(-spec.burst()), now)
}

// take takes at most n starts that are due soon.
func (r *record) take(spec Spec, now time.Time, n int) []time.Time {
	var starts []time.Time
	for len(starts) < n {
		start := r.next(spec, now)
		if start.After(now.Add(horizon)) {
			break
		}
		r.Next = laterOf(r.due(spec, now), start).Add(spec.gap()).UnixNano()
		starts = append(starts, start)
	}
	return starts
}

// kept returns the time for which the server has to keep the record.
func (r record) kept(now time.Time) time.Duration {
	if len(r.Holders)+len(r.Queue) > 0 {
		return heldFor
	}
	return max(time.Unix(0, r.Next).Sub(now), 0).Truncate(time.Second) + emptyFor
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// subject returns the subject of a record.
func (s *Set) subject(of string) string { return s.cfg.Records.Key(s.cfg.Prefix + of) }

// get reads a record from the leader of the bucket's stream. The revision is 0 when there is none.
func (s *Set) get(subject string) (kvrecord.Record, error) {
	found, err := s.cfg.Records.Latest(s.ctx, subject)
	if err != nil {
		return found, fmt.Errorf("limit: %w", err)
	}
	return found, nil
}

// put writes a record, once, if the subject still holds over. Workers of versions before kvrecord write the same content under the same
// condition, and the writes of put wake them.
func (s *Set) put(subject string, value any, over kvrecord.Record, ttl time.Duration) (kvrecord.Record, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return kvrecord.Record{}, fmt.Errorf("limit: %w", err)
	}
	stored, err := s.cfg.Records.PutOnce(s.ctx, kvrecord.Write{Subject: subject, Data: data, Over: over, TTL: ttl.Truncate(time.Second)})
	if err != nil {
		return stored, fmt.Errorf("limit: %w", err)
	}
	return stored, nil
}
