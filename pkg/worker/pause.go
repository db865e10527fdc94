package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/consumer"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
)

const (
	// maxPauses bounds the record, which every worker reads at each heartbeat.
	maxPauses = 256

	// A job that is delivered although its handler is paused goes back for as long as the pause has lasted, within these bounds. So its cost
	// grows with the logarithm of the pause, and after a short pause it starts soon. A job that is delivered to a drained worker goes back
	// for the shortest time.
	shortestPause = 5 * time.Second
	longestPause  = 10 * time.Minute

	maxPaused = 32 // the largest number of pauses that an inspector gets
)

// Pause keeps jobs from starting.
type Pause struct {
	// By is a text for people, such as a name or the reason, of at most 256 bytes. Defaults to none.
	By string `json:"by,omitempty"`

	// Pattern is the pattern of a handler, or any other pattern of subjects. Required.
	Pattern string `json:"pattern"`

	// Since is the time at which the pause began. Client.Pause sets it.
	Since time.Time `json:"since"`

	// Until is the time at which the pause ends by itself, at most ten years ahead. Defaults to never: Client.Resume ends it.
	Until time.Time `json:"until,omitzero"`
}

// isOver reports whether a pause has ended by itself.
func (p Pause) isOver(now time.Time) bool { return !p.Until.IsZero() && !now.Before(p.Until) }

// Pause keeps jobs whose subjects match a pattern from starting, in all workers of the stream that have the client's bucket. It replaces
// another pause of the same pattern. A worker follows within AckWait/3, 5/3 seconds by default; a worker that starts later follows before
// its first job. A worker that cannot read the bucket goes on as before, or waits with its start. Running jobs end as usual.
//
// Paused jobs wait and use no attempt. If a pause covers all handlers of a consumer, those of one Policy.Priority, the worker leaves the
// jobs in the stream. Otherwise it gets jobs of paused handlers among the others, and hands each back for as long as the pause has lasted,
// between 5 seconds and 10 minutes. That costs a delivery, a read and a write each time, and the job starts up to that time after the end
// of the pause. If a handler with many jobs is to be paused, give it its own priority.
//
// The error is an [*UntakenError] when the stream has consumers and the pattern overlaps no filter of them. Three round trips.
func (c *Client) Pause(ctx context.Context, p Pause) error {
	p.Since = time.Now().UTC()
	err := subject.CheckPattern(p.Pattern)
	switch {
	case err != nil:
		return fmt.Errorf("worker: pause %s: not a subject filter: %w", redact.Quote(p.Pattern), err)
	case len(p.Pattern) > jobmsg.MaxSubject, len(p.By) > maxShort: // every worker reads them at each heartbeat
		return fmt.Errorf("worker: pause %s by %s: use at most %d bytes and %d",
			redact.Quote(p.Pattern), redact.Quote(p.By), jobmsg.MaxSubject, maxShort)
	case p.isOver(p.Since), p.Until.Sub(p.Since) > maxAhead:
		return fmt.Errorf("worker: pause %q until %s: use a time from now to %s ahead, or none", p.Pattern, p.Until, maxAhead)
	}
	known, err := jobmsg.ListTakers(ctx, c.api, c.cfg.Stream)
	overlaps := func(filter string) bool { return subject.Overlap(filter, p.Pattern) }
	if err == nil && len(known.Filters) > 0 && !slices.ContainsFunc(known.Filters, overlaps) {
		return &UntakenError{Filters: known.Filters[:min(len(known.Filters), maxFilters)], Stream: c.cfg.Stream, Subject: p.Pattern}
	}
	_, err = c.changePauses(ctx, p.Pattern, &p)
	return err
}

// Resume ends the pause of a pattern, and reports whether there was one. Workers follow within AckWait/3. Two round trips.
func (c *Client) Resume(ctx context.Context, pattern string) (paused bool, err error) {
	return c.changePauses(ctx, pattern, nil)
}

// Pauses returns the pauses in force, by pattern. One round trip.
func (c *Client) Pauses(ctx context.Context) ([]Pause, error) {
	var msg jsapi.Message
	err := jsapi.Retry(ctx, c.cfg.SettleTimeout, func(ctx context.Context) (err error) {
		msg, _, err = c.api.Get(ctx, "KV_"+c.cfg.Bucket, jsapi.Query{LastBySubject: pausesSubject(c.cfg.Bucket, c.cfg.Stream)})
		return err
	})
	if err != nil {
		return nil, c.pausesError("read", err)
	}
	return decodePauses(msg.Data, time.Now())
}

// pausesError explains an error about the record of the pauses.
func (c *Client) pausesError(doing string, err error) error {
	if cause, ok := errors.AsType[*jetstream.APIError](err); ok && jsapi.IsNoStream(err) {
		return &MissingError{Asset: "bucket " + c.cfg.Bucket, Cause: cause, maker: "worker.CreateBucket", mends: true}
	}
	return fmt.Errorf("worker: %s the pauses: %w", doing, err)
}

// changePauses sets the pause of a pattern, or removes it when p is nil, and reports whether there was one.
func (c *Client) changePauses(ctx context.Context, pattern string, p *Pause) (was bool, err error) {
	records, err := kvrecord.New(kvrecord.Config{
		JetStream: c.js, Try: c.cfg.RequestTimeout, Timeout: max(c.cfg.SettleTimeout, c.cfg.RequestTimeout),
	})
	if err != nil {
		return false, fmt.Errorf("worker: %w", err)
	}
	defer records.Close()
	bucket, to := records.Bucket(c.cfg.Bucket), pausesSubject(c.cfg.Bucket, c.cfg.Stream)
	over, err := bucket.Latest(ctx, to)
	for err == nil {
		var all []Pause
		if all, err = decodePauses(over.Data, time.Now()); err != nil {
			break
		}
		before := len(all)
		all = slices.DeleteFunc(all, func(other Pause) bool { return other.Pattern == pattern })
		if was = len(all) < before; p != nil {
			all = append(all, *p)
		} else if !was {
			return false, nil
		}
		if len(all) > maxPauses {
			return was, fmt.Errorf("worker: pause %q: %d patterns are paused already", pattern, maxPauses)
		}
		var data []byte
		if data, err = json.Marshal(all); err != nil {
			break
		}
		_, err = bucket.Put(ctx, kvrecord.Write{Subject: to, Data: data, Over: over})
		conflict, taken := errors.AsType[*kvrecord.ConflictError](err)
		if !taken {
			break
		}
		over, err = conflict.Found, nil
	}
	if err != nil {
		return was, c.pausesError("change", err)
	}
	return was, nil
}

func pausesSubject(bucket, stream string) string { return "$KV." + bucket + ".paused." + stream }

// decodePauses returns the pauses of a record that have not ended, by pattern. No record has none.
func decodePauses(data []byte, now time.Time) (all []Pause, err error) {
	if len(data) > 0 {
		if err = json.Unmarshal(data, &all); err != nil {
			return nil, fmt.Errorf("worker: the record of the pauses: %w", err)
		}
	}
	all = slices.DeleteFunc(all, func(p Pause) bool { return p.isOver(now) })
	slices.SortFunc(all, func(a, b Pause) int { return cmp.Compare(a.Pattern, b.Pattern) })
	return all, nil
}

const paused = "worker: the handler is paused"

// readPauses reads the pauses. It is called before the worker pulls, and at each heartbeat.
func (w *Worker) readPauses(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.RequestTimeout)
	defer cancel()
	msg, _, err := w.api.Get(ctx, "KV_"+w.cfg.Bucket, jsapi.Query{LastBySubject: pausesSubject(w.cfg.Bucket, w.cfg.Stream)})
	if err != nil {
		return fmt.Errorf("worker: read the pauses: %w", err)
	}
	all, err := decodePauses(msg.Data, time.Now())
	if err != nil {
		return err
	}
	if was := w.pauses.Swap(&all); w.cfg.Hooks.Paused != nil && (was == nil || len(*was) != len(all)) {
		w.apart("Hooks.Paused", func() { w.cfg.Hooks.Paused(len(all)) })
	}
	return nil
}

// pausesNow returns the pauses in force.
func (w *Worker) pausesNow() []Pause {
	all := w.pauses.Load()
	if all == nil || len(*all) == 0 {
		return nil
	}
	now := time.Now()
	return slices.DeleteFunc(slices.Clone(*all), func(p Pause) bool { return p.isOver(now) })
}

// checkPaused returns the error of a job that may not start now.
func (w *Worker) checkPaused(d *delivery) error {
	if w.draining.Load() {
		return refused(OutcomePaused, shortestPause, paused)
	}
	all := w.pauses.Load()
	if all == nil || len(*all) == 0 {
		return nil
	}
	now := time.Now()
	for _, p := range *all {
		if p.isOver(now) || !subject.Matches(p.Pattern, d.info.Subject) {
			continue
		}
		// The wait grows with the pause, so a long pause costs few deliveries, and after a short one the job starts soon.
		delay := min(max(now.Sub(p.Since), shortestPause), longestPause)
		if !p.Until.IsZero() {
			delay = min(delay, p.Until.Sub(now))
		}
		return refused(OutcomePaused, delay, paused)
	}
	return nil
}

// Paused reports whether jobs of a subject do not start in this worker now, because a known [Client.Pause] covers them, the worker is
// drained, or it has not started. It is for a caller that does the work of a job without the stream. No round trip.
func (w *Worker) Paused(of string) bool {
	return w.draining.Load() || w.pauses.Load() == nil ||
		slices.ContainsFunc(w.pausesNow(), func(p Pause) bool { return subject.Matches(p.Pattern, of) })
}

// isPaused reports whether all handlers of a consumer are paused, or the worker is drained.
func (w *Worker) isPaused(c *class) bool {
	if w.draining.Load() {
		return true
	}
	all := w.pausesNow()
	patterns := make([]string, len(all))
	for i, p := range all {
		patterns[i] = p.Pattern
	}
	return len(patterns) > 0 && consumer.Covers(patterns, c.patterns)
}
