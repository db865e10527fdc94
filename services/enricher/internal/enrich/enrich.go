// Package enrich attaches delivery links to restaurants: from the entries of a bucket when they are known, and by one job
// for each place when they are not.
//
// An entry is that of one place at one provider, kept by a flight.Flight. A request reads all its entries in one round
// trip. It claims the absent ones, queues a job for each claim, and is answered: places without a result are PENDING. A
// worker resumes the claim, asks the provider, and turns the claim into the result. A [Subscription] delivers the results to
// the client, whichever processes took the request and did the work.
package enrich

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// Enrich answers a request that [contracts.Decode] or Validate has accepted. It waits for a provider only if req.WaitMS asks
// for that: a place without a result is PENDING, Enrich queues a job for it, and [Service.Subscribe] delivers the result.
// When the store is down, or does not answer within StoreTimeout, every place is PENDING. When the request could not be recorded,
// Skipped reports that, because Subscribe does not find the request then. The errors are [ErrUnknownProvider], and
// [ErrRequestTaken] and [ErrRequestFull] when a place is pending.
//
// When a place has waited for the worker of its job for some seconds, the process that claimed it may have died before it
// queued the job. So Enrich queues the job again in the background, once for each claim and process; the stream refuses it
// if it is queued.
//
// The result of a place answers a request whose description does not contradict it. A description that contradicts it has a separate
// entry: a place has one entry for its first description, and variants entries for the others, which replace
// each other.
//
// No round trip when this process has all places in memory (see Config.MemoryBytes for how old that can be), one for each 512
// when all are known. Otherwise three: read, claim, queue; the claims go out together, and so do the jobs. One or two more for
// a place that had another description before. The round trips are finished although ctx ends in the meantime: a claim without a job
// would block its place until it expires.
func (s *Service) Enrich(ctx context.Context, req contracts.EnrichRequest) (contracts.EnrichResponse, error) {
	s.count(func(c *Stats) { c.Requests++ })
	resp := contracts.EnrichResponse{RequestID: cmp.Or(req.RequestID, uuid.NewString()), Results: req.Results}
	// An unknown provider is the caller's mistake, so it is reported even while enrichment is switched off.
	names, err := s.pick(req.Providers)
	if err != nil {
		return resp, err
	}
	switch {
	case !s.cfg.Enabled:
		return s.unenriched(ctx, resp, names, SkipFlagDisabled), nil
	case len(req.Results) == 0:
		return s.unenriched(ctx, resp, names, SkipNoResults), nil
	}
	all, err := lookups(req, resp.RequestID, names)
	if err != nil {
		return resp, err
	}
	s.count(func(c *Stats) { c.Places += int64(len(all)) })
	skipped, err := s.resolveInTime(ctx, all)
	late := errors.Is(err, errLate)
	if late {
		// resolve still writes to these lookups: the answer is made of fresh ones, which are all pending.
		all, err = lookups(req, resp.RequestID, names)
	}
	if err != nil {
		return resp, err
	}
	// A store that was late would be late for the wait, too.
	if req.WaitMS > 0 && !late {
		s.wait(ctx, all, time.Duration(req.WaitMS)*time.Millisecond)
	}
	// The caller keeps its own restaurants: only the answer's get states.
	resp.Results = slices.Clone(req.Results)
	for _, t := range all {
		for _, i := range t.results {
			resp.Results[i].SetState(t.job.Provider, t.state, s.cfg.Deprecated)
		}
		if !t.settled {
			resp.Pending++
		}
	}
	// Without a pending place there is nothing to subscribe to, so it does not matter that nobody can.
	if resp.Pending > 0 {
		resp.Skipped = string(skipped)
	}
	return resp, nil
}

// lateness is the time beyond StoreTimeout for which an answer waits for resolve. Resolve is later only when the store, the
// connection or the machine holds it up.
const lateness = 100 * time.Millisecond

// errLate is returned when the store, the connection or the machine holds a request up.
var errLate = errors.New("enricher: the store does not answer in time")

// resolveInTime is resolve within StoreTimeout by the clock of the caller, whatever the store does. Then the error is errLate, and
// resolve goes on in the background, with the lookups.
func (s *Service) resolveInTime(ctx context.Context, all []*lookup) (skipped SkipReason, err error) {
	done := make(chan struct{})
	timer := time.NewTimer(s.cfg.StoreTimeout + lateness)
	defer timer.Stop()
	// Not the results of this function: resolve may set them after it has returned.
	var reason SkipReason
	var failed error
	s.background.Go(func() {
		defer close(done)
		reason, failed = s.resolve(ctx, all)
	})
	select {
	case <-done:
		return reason, failed
	case <-timer.C:
		s.logger.WarnContext(ctx, "enricher: store holds the request up, all stays pending", "places", len(all))
		return SkipStoreDown, errLate
	}
}

func (s *Service) unenriched(
	ctx context.Context, resp contracts.EnrichResponse, names []string, reason SkipReason,
) contracts.EnrichResponse {
	for _, name := range names {
		s.skip(ctx, &lookup{job: contracts.EnrichJob{Provider: name, RequestID: resp.RequestID}}, reason)
	}
	resp.Skipped = string(reason)
	return resp
}

// pick returns the providers that a request asks for: all of them when it names none.
func (s *Service) pick(names []string) ([]string, error) {
	if len(names) == 0 {
		return s.names, nil
	}
	var picked []string
	for i, name := range names {
		if s.providers[name] == nil {
			return nil, fmt.Errorf("%w %q at providers/%d: have %q", ErrUnknownProvider, name, i, s.names)
		}
		// A provider that is named twice is asked once.
		if !slices.Contains(picked, name) {
			picked = append(picked, name)
		}
	}
	return picked, nil
}

// resolve reads the entries of all lookups, and claims and queues those that are absent, within StoreTimeout. It returns the
// reason why pending places cannot be subscribed to, "" when they can. The error is that of save.
func (s *Service) resolve(ctx context.Context, all []*lookup) (skipped SkipReason, err error) {
	// The round trips are finished although the caller has gone: a claim without a job would block its place until it expires.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StoreTimeout)
	defer cancel()
	// A store that does not answer a read would hold up the claims, too.
	if err := s.read(ctx, all); err != nil {
		s.logger.WarnContext(ctx, "enricher: entries cannot be read, all stays pending", "places", len(all), "error", err)
		for _, t := range all {
			s.skip(ctx, t, SkipStoreDown)
		}
		return SkipStoreDown, nil
	}
	// A claimed place is recorded for subscribers as well as a free one: whoever works on it, its result comes later.
	var unsettled, missing []*lookup
	for _, t := range all {
		if s.record(ctx, t, t.entries[t.at]) {
			missing = append(missing, t)
		}
		if !t.settled {
			unsettled = append(unsettled, t)
		}
	}
	if len(unsettled) == 0 {
		return "", nil
	}
	// The record and the claims are written at the same time. A request that could not be recorded is answered all the same, and
	// its places are looked up: a later request finds them.
	var saving sync.WaitGroup
	saving.Go(func() {
		unsaved := s.save(ctx, all[0].job.RequestID, unsettled)
		switch {
		case unsaved == nil:
			return
		case errors.Is(unsaved, ErrRequestTaken), errors.Is(unsaved, ErrRequestFull):
			err = unsaved
		case errors.Is(unsaved, kvrecord.ErrFull):
			skipped = SkipStoreFull
		default:
			skipped = SkipStoreDown
		}
		s.logger.WarnContext(ctx, "enricher: request not recorded, no client can subscribe", "requestId", all[0].job.RequestID, "error", unsaved)
	})
	s.claimAll(ctx, missing)
	saving.Wait()
	return skipped, err
}

// read learns the entries of all lookups. One round trip for each 512 that are not in memory, and one more for each 512 whose
// first entry has another description.
func (s *Service) read(ctx context.Context, all []*lookup) error {
	list, keys := make([]*lookup, 0, len(all)), make([]string, 0, len(all))
	// The first entry of each place, then the other one of those whose first has another description.
	for of := range 2 {
		list, keys = list[:0], keys[:0]
		for _, t := range all {
			if t.at == of {
				list, keys = append(list, t), append(keys, t.key())
			}
		}
		if len(list) == 0 {
			continue
		}
		entries, err := s.flight.GetMany(ctx, keys)
		if err != nil {
			return fmt.Errorf("read entries: %w", err)
		}
		for i, t := range list {
			// A value that cannot be read is reported by record, which also removes it.
			_ = t.learn(&entries[i])
		}
	}
	return nil
}

// record takes over the state of an entry and logs it. It reports whether the place has to be claimed.
func (s *Service) record(ctx context.Context, t *lookup, entry *flight.Entry) (missing bool) {
	if err := t.learn(entry); err != nil {
		s.discard(ctx, t, err)
		return true
	}
	entry = t.entries[t.at]
	state := entry.State
	if t.foreign() && state == flight.Done {
		// The answer to another description is replaced.
		state = flight.Absent
	}
	switch state {
	case flight.Done:
		s.count(func(c *Stats) { c.Hits++ })
		s.log(ctx, slog.LevelDebug, EventCacheHit, t, slog.String("status", string(t.state.Status)))
		s.skip(ctx, t, SkipAlreadyCached)
		return false
	case flight.Pending, flight.Failed:
		s.log(ctx, slog.LevelDebug, EventLockSkipped, t, slog.String("owner", entry.Owner))
		s.skip(ctx, t, SkipLockHeld)
		// Its claimer may have died before it queued the job. A job for another description would not answer this lookup.
		if isHandedOff(*entry) && entry.Age() >= requeueAge && !t.foreign() {
			s.requeue(ctx, t, *entry)
		}
		return false
	case flight.Absent:
	}
	s.log(ctx, slog.LevelDebug, EventCacheMiss, t, slog.String("cityText", t.job.CityText))
	return true
}

// wait waits until every lookup is settled, for at most d.
func (s *Service) wait(ctx context.Context, all []*lookup, d time.Duration) {
	open := slices.DeleteFunc(slices.Clone(all), func(t *lookup) bool { return t.settled })
	if len(open) == 0 {
		return
	}
	f, err := s.startWatch(open)
	if err != nil {
		// Waiting is a convenience: the answer is correct without it, and the client can subscribe.
		s.logger.WarnContext(ctx, "enricher: request is answered without waiting", "requestId", open[0].job.RequestID, "error", err)
		return
	}
	defer f.close()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for left := len(open); left > 0; {
		news, err := f.next(ctx)
		if err != nil {
			return
		}
		for _, t := range news {
			// A watch may report a place more than once.
			if t.settled && !t.published {
				t.published = true
				left--
			}
		}
	}
}

// discard removes a result that cannot be read, so that the place is looked up again.
func (s *Service) discard(ctx context.Context, t *lookup, cause error) {
	s.logger.ErrorContext(ctx, "enricher: unreadable result is looked up again", "error", cause)
	if err := s.flight.Invalidate(ctx, t.key()); err != nil {
		s.logger.WarnContext(ctx, "enricher: unreadable result could not be removed", "key", t.key(), "error", err)
	}
	t.entries[t.at] = &unread
}
