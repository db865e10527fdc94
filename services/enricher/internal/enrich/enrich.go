package enrich

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// Enrich answers a request that [contracts.Decode] or Validate has accepted. It waits for a provider only if req.WaitMS asks
// for that: a place without a result is PENDING, Enrich queues a job for it, and [Service.Subscribe] delivers the result.
// When the store is down every place is PENDING. When the request could not be recorded, Skipped reports that, because
// Subscribe does not find the request then. The errors are [ErrUnknownProvider], and that of [service.Backlog.Admit] when a
// place is neither known nor queued.
//
// When a place has waited for the worker of its job for some seconds, the process that claimed it may have died before it
// queued the job. So Enrich queues the job again in the background, once for each claim and process; the stream refuses it
// if it is queued.
//
// No round trip when this process has all places in memory (see Config.MemoryBytes for how old that can be), one for each 512
// when all are known. Otherwise three: read, claim, queue; the claims go out
// together, and so do the jobs. They are finished although ctx ends meanwhile: a claim without a job would keep its
// place from everybody until it expires.
func (s *Service) Enrich(ctx context.Context, req contracts.EnrichRequest) (contracts.EnrichResponse, error) {
	s.counters.requests.Add(1)
	resp := contracts.EnrichResponse{RequestID: cmp.Or(req.RequestID, uuid.NewString()), Results: req.Results}
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
	all, err := targets(req, resp.RequestID, names)
	if err != nil {
		return resp, err
	}
	s.counters.places.Add(int64(len(all)))
	recorded, err := s.resolve(ctx, all)
	if err != nil {
		return resp, err
	}
	if req.WaitMS > 0 {
		s.wait(ctx, all, time.Duration(req.WaitMS)*time.Millisecond)
	}
	resp.Results = slices.Clone(req.Results)
	resp.Pending = s.apply(resp.Results, all)
	if resp.Pending > 0 && !recorded {
		resp.Skipped = string(SkipStoreDown)
	}
	return resp, nil
}

func (s *Service) unenriched(
	ctx context.Context, resp contracts.EnrichResponse, names []string, reason SkipReason,
) contracts.EnrichResponse {
	s.skipAll(ctx, resp.RequestID, names, reason)
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
		if !slices.Contains(picked, name) {
			picked = append(picked, name)
		}
	}
	return picked, nil
}

// apply writes the states into the restaurants and returns how many are pending.
func (s *Service) apply(results []contracts.Restaurant, all []*target) (pending int) {
	for _, t := range all {
		for _, i := range t.results {
			results[i].SetState(t.job.Provider, t.state, s.cfg.Deprecated)
		}
		if !t.settled {
			pending++
		}
	}
	return pending
}

// resolve reads the slots of all targets, and claims and queues those that are absent, within StoreTimeout. It reports
// whether what is pending can be subscribed to. The error is that of [service.Backlog.Admit].
func (s *Service) resolve(ctx context.Context, all []*target) (recorded bool, err error) {
	ctx, cancel := s.detached(ctx)
	defer cancel()
	keys := make([]string, len(all))
	for i, t := range all {
		keys[i] = t.key
	}
	slots, err := s.flight.GetMany(ctx, keys)
	if err != nil {
		s.logger.WarnContext(ctx, "enricher: slots cannot be read, all stays pending", "places", len(all), "error", err)
		for _, t := range all {
			s.skip(ctx, t, SkipStoreDown)
		}
		return false, nil
	}
	var unsettled, missing []*target
	for i, t := range all {
		if s.observe(ctx, t, slots[i]) {
			missing = append(missing, t)
		}
		if !t.settled {
			unsettled = append(unsettled, t)
		}
	}
	if len(unsettled) == 0 {
		return true, nil
	}
	if len(missing) > 0 {
		release, err := s.cfg.Backlog.Admit(ctx, len(missing))
		if err != nil {
			return false, err
		}
		defer release()
	}
	var saving sync.WaitGroup
	saving.Go(func() {
		err := s.save(ctx, all[0].job.RequestID, unsettled)
		if recorded = err == nil; !recorded {
			s.logger.WarnContext(ctx, "enricher: request not recorded, no client can subscribe", "requestId", all[0].job.RequestID, "error", err)
		}
	})
	s.claimAll(ctx, missing)
	saving.Wait()
	return recorded, nil
}

// detached bounds what is to be finished although its caller has gone.
func (s *Service) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.cfg.StoreTimeout)
}

// observe takes over what a slot says and logs it. It reports whether the place has to be claimed.
func (s *Service) observe(ctx context.Context, t *target, slot flight.Slot) (missing bool) {
	if err := t.learn(slot); err != nil {
		s.discard(ctx, t, err)
		return true
	}
	switch slot.State {
	case flight.Done:
		s.counters.hits.Add(1)
		s.log(ctx, slog.LevelDebug, EventCacheHit, t, slog.String("status", string(t.state.Status)))
		s.skip(ctx, t, SkipAlreadyCached)
		return false
	case flight.Pending, flight.Failed:
		s.log(ctx, slog.LevelDebug, EventLockSkipped, t, slog.String("owner", slot.Owner))
		s.skip(ctx, t, SkipLockHeld)
		if isHandedOff(slot) && slot.Age() >= orphanAge {
			s.requeue(ctx, t, slot)
		}
		return false
	case flight.Absent:
	}
	s.log(ctx, slog.LevelDebug, EventCacheMiss, t, slog.String("cityText", t.job.CityText))
	return true
}

// wait waits until every target is settled, for at most d. What is known by then is the answer.
func (s *Service) wait(ctx context.Context, all []*target, d time.Duration) {
	open := slices.DeleteFunc(slices.Clone(all), func(t *target) bool { return t.settled })
	if len(open) == 0 {
		return
	}
	f, err := s.follow(open)
	if err != nil {
		s.logger.WarnContext(ctx, "enricher: request is answered without waiting", "requestId", open[0].job.RequestID, "error", err)
		return
	}
	defer f.close()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for left := len(open); left > 0; {
		t, err := f.next(ctx)
		if err != nil {
			return
		}
		if t.settled && !t.told {
			t.told = true
			left--
		}
	}
}

// discard removes a result that cannot be read, so that the place is looked up again.
func (s *Service) discard(ctx context.Context, t *target, cause error) {
	s.logger.ErrorContext(ctx, "enricher: unreadable result is looked up again", "error", cause)
	if err := s.flight.Invalidate(ctx, t.key); err != nil {
		s.logger.WarnContext(ctx, "enricher: unreadable result could not be removed", "key", t.key, "error", err)
	}
	t.seen = flight.Slot{}
}
