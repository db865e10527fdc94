package enrich

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

const (
	// gather is the longest time for which free places are collected, to be claimed together. It also keeps the subscribers
	// of a place from claiming it at the same moment.
	gather = 50 * time.Millisecond

	// minReclaim and maxReclaim bound the pause before a place that could not be claimed or queued is tried again. The
	// pause doubles with each failure, and is up to a half longer at random.
	minReclaim = time.Second
	maxReclaim = 10 * time.Second
)

// errDue ends a wait because free places are due to be claimed, or jobs to be queued again.
var errDue = errors.New("places are due to be claimed or queued")

// watch watches the entries of places for a subscriber. It claims and queues a place that no process works on any more,
// because its claim expired with its worker or its job, or because it could not be claimed or queued. It queues a place
// again when its claim has waited for its worker for long. So no subscriber waits for ever.
type watch struct {
	service *Service
	lookups []*lookup
	byKey   map[string][]*lookup
	watcher *flight.Watcher

	free     map[*lookup]bool // places that no worker has
	due      time.Time        // when to claim them
	failures int              // in a row, of claiming them

	handed map[*lookup]handedOff // places that wait for the worker of a job
}

// startWatch starts to watch the entries of lookups. Close ends it.
func (s *Service) startWatch(lookups []*lookup) (*watch, error) {
	f := &watch{
		service: s, lookups: lookups, byKey: make(map[string][]*lookup, 2*len(lookups)),
		free: map[*lookup]bool{}, handed: map[*lookup]handedOff{},
	}
	for _, t := range lookups {
		for _, key := range []string{t.first, variantKey(t.first, t.other())} {
			f.byKey[key] = append(f.byKey[key], t)
		}
	}
	keys := slices.Collect(maps.Keys(f.byKey))
	var err error
	f.watcher, err = s.flight.Watch(keys...)
	return f, err
}

func (f *watch) close() { f.watcher.Close() }

// first learns the state of every place, and claims those that are free. One round trip for each 256 places; two more
// when places are free.
func (f *watch) first(ctx context.Context) error {
	known := make(map[string]bool, len(f.byKey))
	for len(known) < len(f.byKey) {
		entry, err := f.watcher.Next(ctx)
		if err != nil {
			return err
		}
		for _, t := range f.byKey[entry.Key] {
			_ = t.learn(&entry) // recorded below, with both entries
		}
		known[entry.Key] = true
	}
	for _, t := range f.lookups {
		f.record(ctx, t, t.entries[t.at])
	}
	f.reclaim(ctx)
	return nil
}

// next waits until there is news of a place.
func (f *watch) next(ctx context.Context) (news []*lookup, err error) {
	for {
		entry, err := f.await(ctx)
		switch {
		case errors.Is(err, errDue):
			if !time.Now().Before(f.due) {
				f.reclaim(ctx)
			}
			f.requeue(ctx)
		case err != nil:
			return nil, err
		default:
			for _, t := range f.byKey[entry.Key] {
				if f.record(ctx, t, &entry) {
					news = append(news, t)
				}
			}
			if len(news) > 0 {
				return news, nil
			}
		}
	}
}

func (f *watch) await(ctx context.Context) (flight.Entry, error) {
	var due time.Time
	if len(f.free) > 0 {
		due = f.due
	}
	for _, h := range f.handed {
		if due.IsZero() || h.due.Before(due) {
			due = h.due
		}
	}
	if !due.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, due, errDue)
		defer cancel()
	}
	return f.watcher.Next(ctx)
}

// record applies an entry of a place, and reports whether that is news to its subscriber.
func (f *watch) record(ctx context.Context, t *lookup, entry *flight.Entry) bool {
	if t.published && entry.State != flight.Done {
		return false // the outcome that the subscriber has received stays valid
	}
	delete(f.handed, t)
	err := t.learn(entry)
	entry = t.entries[t.at]
	switch {
	case err != nil:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.service.cfg.StoreTimeout)
		defer cancel()
		f.service.discard(ctx, t, err)
		f.release(t, chance(gather))
	case entry.State == flight.Absent, entry.State == flight.Done && !t.settled: // free, or about another description
		f.release(t, chance(gather))
	case entry.State == flight.Failed: // the process that claimed it could not queue it
		f.release(t, f.pause())
	case isHandedOff(*entry) && !t.foreign():
		f.handed[t] = handedOff{*entry, time.Now().Add(max(0, requeueAge-entry.Age()) + chance(requeueSpread))}
		delete(f.free, t)
	default:
		delete(f.free, t)
	}
	return true
}

// release records that no process works on a place, to be claimed after a while.
func (f *watch) release(t *lookup, after time.Duration) {
	due := time.Now().Add(after)
	if len(f.free) == 0 || due.Before(f.due) {
		f.due = due
	}
	f.free[t] = true
}

// reclaim claims and queues all places that no process works on. A place that cannot be claimed or queued is tried
// again after a pause.
func (f *watch) reclaim(ctx context.Context) {
	if len(f.free) == 0 {
		return
	}
	list := slices.Collect(maps.Keys(f.free))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.service.cfg.StoreTimeout)
	defer cancel()
	f.service.claimAll(ctx, list)
	clear(f.free)
	failed, pause := false, f.pause()
	for _, t := range list {
		if t.unclaimed {
			failed = true
			f.release(t, pause+chance(pause/2))
		}
	}
	if failed {
		f.failures++
	} else {
		f.failures = 0
	}
}

// pause returns the time until the next attempt after a failure.
func (f *watch) pause() time.Duration { return retry.Wait(f.failures, minReclaim, maxReclaim) }

// chance returns a random part of d.
func chance(d time.Duration) time.Duration {
	return rand.N(d)
}

const (
	// requeueAge is the age from which a claim that waits for its worker may have no job. By then the process that took the
	// claim has queued the job or given the claim back, unless it died, or never learnt that it has the claim.
	requeueAge = claimTimeout

	// requeueSpread bounds the random time that is added to requeueAge. The first process queues the job again, and the others
	// see that.
	requeueSpread = 3 * time.Second

	// requeueTimeout bounds one attempt to queue a job again. There will be others.
	requeueTimeout = 2 * publishTry

	// reasonRequeued is the reason for a job that was queued for the claim of another process.
	reasonRequeued = "orphaned_claim"
)

// isHandedOff reports whether a place waits for the worker of a job.
func isHandedOff(entry flight.Entry) bool { return entry.State == flight.Pending && entry.HandOff }

// requeues remembers for which claims this process has queued the job again, so that all requests and subscriptions that see
// the same claim do it once. An entry lives about as long as a claim that is not renewed.
type requeues struct {
	mu    sync.Mutex
	until map[[2]string]time.Time // by key and claim
	sweep time.Time
}

// begin reports whether the caller is to queue the job of a claim again. It is false when this process is doing so,
// did so a moment ago, or knows that the job is queued.
func (r *requeues) begin(entry flight.Entry, ttl time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, id := time.Now(), [2]string{entry.Key, entry.Claim}
	if !now.Before(r.sweep) {
		live := map[[2]string]time.Time{}
		for id, until := range r.until {
			if now.Before(until) {
				live[id] = until
			}
		}
		r.until, r.sweep = live, now.Add(ttl)
	}
	if now.Before(r.until[id]) {
		return false
	}
	r.until[id] = now.Add(requeueAge)
	return true
}

// done records that the queue has the job of a claim.
func (r *requeues) done(entry flight.Entry, ttl time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until[[2]string{entry.Key, entry.Claim}] = time.Now().Add(ttl)
}

// requeue queues the jobs of claims again, in the background. Most of the claims have a job in a backlog, which the stream
// refuses a second time by the job's subject or its message id. A claim whose holder died before it queued the job gets a
// job now, with the name and address of t. One round trip for each claim and process, and again when the claim is renewed
// for longer than ClaimTTL.
func (s *Service) requeue(ctx context.Context, t *lookup, entry flight.Entry) {
	if !s.requeues.begin(entry, s.cfg.ClaimTTL) {
		return
	}
	// A copy, because the request may be answered in the meantime.
	own := *t
	s.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requeueTimeout)
		defer cancel()
		receipt, err := s.insert(ctx, &own, entry.Claim, entry.Ref())
		switch {
		case err != nil:
			s.logger.WarnContext(ctx, "enricher: job of an old claim could not be queued", "placeId", own.job.PlaceID, "error", err)
			return
		case receipt.Sequence > 0:
			s.enqueued(ctx, &own, reasonRequeued)
		default:
			s.log(ctx, slog.LevelDebug, EventEnqueueSkipped, &own, slog.String("reason", string(SkipLockHeld)))
		}
		s.requeues.done(entry, s.cfg.ClaimTTL)
	})
}

// enqueued logs and counts a job that the queue has taken.
func (s *Service) enqueued(ctx context.Context, t *lookup, reason string) {
	s.count(func(c *Stats) { c.Jobs++ })
	s.log(ctx, slog.LevelInfo, EventJobEnqueued, t, slog.String("name", t.job.Name), slog.String("cityText", t.job.CityText),
		slog.String("statusSet", string(contracts.StatusPending)), slog.String("reason", reason))
}

// handedOff is a claim that a watch sees waiting for its job.
type handedOff struct {
	entry flight.Entry
	due   time.Time // when to queue the job again
}

// requeue queues the jobs of the claims that have waited for long. The claims stay recorded until they change,
// because the queue may not have answered.
func (f *watch) requeue(ctx context.Context) {
	now := time.Now()
	for t, h := range f.handed {
		if !now.Before(h.due) {
			f.service.requeue(ctx, t, h.entry)
			f.handed[t] = handedOff{h.entry, now.Add(requeueAge + chance(requeueSpread))}
		}
	}
}
