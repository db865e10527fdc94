package imports

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsotel"
	"github.com/expediter-io/expediter/pkg/service"
)

// The far sides that a job calls, as its state names them. The name of a site begins with sidePrefix.
const (
	sideExtractor = "extractor"
	sideRecipes   = "recipe store: recipes"
	sideStatus    = "recipe store: states"
	sideYouTube   = "YouTube"
	sidePrefix    = "site "
	sideSites     = "sites"           // all sites together, in the metrics
	sideMemory    = "importer memory" // no far side, but its wait is the same
)

const (
	// strikes is the number of jobs in a row whose failure makes the other jobs wait too. One failure is enough if the
	// answer asks for a wait.
	strikes = 2

	// firstPause and lastPause bound the pause in which no call is made. Each pause is twice as long as the one before.
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute

	// maxRetryAfter bounds the pause that a far side can ask for.
	maxRetryAfter = time.Hour

	// probeTime is the time after which another call may be made while a call tests whether a far side works again.
	probeTime = 30 * time.Second

	// maxTroubled bounds the far sides that are recorded as not working. Any further ones are called as if they worked.
	maxTroubled = 10_000
)

// errHeld is wrapped by the failure of a job whose call was not made because calls of other jobs failed.
var errHeld = errors.New("importer: no call was made")

// trouble is a far side that does not work.
type trouble struct {
	failure *FailedError // of the last call
	job     string       // the job that made the call
	missed  int          // failed jobs in a row
	pause   time.Duration
	probing bool
	since   time.Time
	until   time.Time // the next call
}

// breaker holds back the calls to far sides that do not work, for all jobs of this process. After a pause, one call at a time
// tests whether the far side works again. It is safe for concurrent use.
type breaker struct {
	mu       sync.Mutex
	troubled map[string]*trouble
}

// enter returns nil when a call may be made. Otherwise it returns the failure that holds the call back, with the
// remaining pause in RetryAfter.
func (b *breaker) enter(side string) *FailedError {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, now := b.troubled[side], time.Now()
	if t == nil || t.pause == 0 {
		return nil
	}
	if now.Before(t.until) {
		f := *t.failure
		f.Err, f.RetryAfter = fmt.Errorf("%w: %w", errHeld, t.failure), t.until.Sub(now)
		return &f
	}
	t.probing, t.until = true, now.Add(probeTime)
	return nil
}

// called records the outcome of a call, nil for a far side that works. It reports whether other jobs begin or cease
// to wait.
func (b *breaker) called(side, job string, f *FailedError) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, now := b.troubled[side], time.Now()
	if f == nil {
		delete(b.troubled, side)
		return t != nil && t.pause > 0
	}
	if t == nil {
		if len(b.troubled) >= maxTroubled {
			maps.DeleteFunc(b.troubled, func(_ string, t *trouble) bool { return now.Sub(t.until) > maxRetryAfter })
		}
		if len(b.troubled) >= maxTroubled {
			return false
		}
		if b.troubled == nil {
			b.troubled = map[string]*trouble{}
		}
		t = &trouble{since: now, until: now}
		b.troubled[side] = t
	}
	if t.failure = f; t.job != job {
		t.job = job
		t.missed++
	}
	begins := t.pause == 0
	if begins && t.missed < strikes && f.RetryAfter == 0 && !f.Refused {
		return false
	}
	until := now.Add(min(f.RetryAfter, maxRetryAfter))
	if begins || t.probing { // a call from before the pause does not make it longer
		t.pause, t.probing = min(max(firstPause, 2*t.pause), lastPause), false
		t.until = now.Add(t.pause)
	}
	if until.After(t.until) {
		t.until = until
	}
	return begins
}

// Check is the readiness check of the far sides that all jobs need. It returns an error when a far side refuses our
// key, and a [service.Note] when one does not work. Far sides without a recent call are left out.
func (s *Service) Check() error {
	s.breaker.mu.Lock()
	defer s.breaker.mu.Unlock()
	var refused, noted []string
	for _, side := range slices.Sorted(maps.Keys(s.breaker.troubled)) {
		t := s.breaker.troubled[side]
		if t.pause == 0 || strings.HasPrefix(side, sidePrefix) || time.Since(t.until) > maxRetryAfter {
			continue
		}
		text := side + " since " + t.since.UTC().Format(time.RFC3339) + ": " + t.failure.Message
		if noted = append(noted, text); t.failure.Refused {
			refused = append(refused, text)
		}
	}
	switch {
	case len(refused) > 0:
		return errors.New("our key is refused, and jobs wait: " + strings.Join(refused, "; "))
	case len(noted) > 0:
		return service.Note("jobs wait for " + strings.Join(noted, "; "))
	}
	return nil
}

// Held calls report with the number of far sides of each name whose calls are held back, except for one call at a time. Sites
// are counted together. Far sides without a recent call are left out.
func (s *Service) Held(report func(side string, n int)) {
	held := map[string]int{sideExtractor: 0, sideRecipes: 0, sideStatus: 0, sideYouTube: 0, sideSites: 0}
	s.breaker.mu.Lock()
	for side, t := range s.breaker.troubled {
		if t.pause > 0 && time.Since(t.until) <= maxRetryAfter {
			held[labelOf(side)]++
		}
	}
	s.breaker.mu.Unlock()
	for side, n := range held {
		report(side, n)
	}
}

// labelOf returns the name of a far side in the metrics, the same for all sites.
func labelOf(side string) string {
	if strings.HasPrefix(side, sidePrefix) {
		return sideSites
	}
	return side
}

// reach makes a call to a far side, unless the far side is known not to work. failure makes the failure for an error.
func (a *attempt) reach(
	ctx context.Context, side string, failure func(error) *FailedError, call func(context.Context) error,
) error {
	if a.admitted == side {
		a.admitted = ""
	} else if f := a.breaker.enter(side); f != nil {
		return f
	}
	calling, measured := a.cfg.Telemetry.Call(ctx, labelOf(side))
	err := call(calling)
	if err != nil && ctx.Err() != nil {
		measured.End("interrupted", err)
		return context.Cause(ctx) // not a failure of the far side
	}
	if err == nil {
		measured.End(natsotel.OutcomeOK, nil)
		a.reached(ctx, side, nil)
		if strings.HasPrefix(side, sidePrefix) && strings.HasPrefix(a.admitted, sidePrefix) { // the source leads to the admitted site
			a.reached(ctx, a.admitted, nil)
			a.admitted = ""
		}
		return nil
	}
	f := failure(err)
	measured.End(string(f.Code), err)
	if f.Outage == "" || f.Outage == sideMemory {
		a.reached(ctx, side, nil)
		return f
	}
	if f.Outage == sidePrefix || !strings.HasPrefix(f.Outage, sidePrefix) {
		f.Outage = side
	} else { // side has answered, and leads to another site
		a.reached(ctx, side, nil)
	}
	a.reached(ctx, f.Outage, f)
	return f
}

func (a *attempt) reached(ctx context.Context, side string, f *FailedError) {
	switch changed := a.breaker.called(side, a.id, f); {
	case !changed:
	case f == nil:
		a.logger.InfoContext(ctx, string(EventBack), "event", EventBack, "side", side) //nolint:sloglint // the name of the event
	default:
		level := slog.LevelWarn
		if f.Refused {
			level = slog.LevelError
		}
		a.logger.Log(ctx, level, string(EventOutage), //nolint:sloglint // the name of the event
			"event", EventOutage, "side", side, "refused", f.Refused, "error", f.Message)
	}
}

// waits records that a job waits for a far side. It returns the time for which the job has waited for that far side.
func (r *record) waits(side string) time.Duration {
	now := time.Now().UTC()
	if r.Outage != side {
		r.Outage, r.OutageSince = side, now
	}
	r.WaitingFor, r.WaitingSince = side, r.OutageSince
	return now.Sub(r.OutageSince)
}

// snooze returns the next wait of a job that has waited for a far side. It grows with the time waited, for a job that
// fails while others do not.
func (f *FailedError) snooze(waited time.Duration) time.Duration {
	pause := max(min(f.RetryAfter, maxRetryAfter), min(max(firstPause, waited/4), lastPause))
	return pause + rand.N(pause/4) //nolint:gosec // spreads load, guards nothing
}

// sideOf names the far side of a source.
func sideOf(r *record) string {
	u, err := url.Parse(r.URL)
	if err != nil || r.SourceType == contracts.SourceYouTube || strings.HasPrefix(r.SourceID, "youtube:") {
		return sideYouTube
	}
	return sidePrefix + u.Hostname()
}

const (
	// maxCrashes is the number of workers whose death under a job makes it run alone, and maxAlone the number of further deaths that
	// make it fail. One of the workers may have died of another cause.
	maxCrashes = 2
	maxAlone   = 2

	// allTurns is larger than the number of jobs at a time.
	allTurns = 1 << 30
)

// inTurn takes the steps beside other jobs, or alone when the job may have killed its workers, so that it does not kill other
// jobs.
func (a *attempt) inTurn(ctx context.Context) error {
	turns := int64(1)
	if a.record.Crashes >= maxCrashes {
		turns = allTurns
	}
	if err := a.turns.Acquire(ctx, turns); err != nil {
		return fmt.Errorf("importer: wait for the other jobs: %w", context.Cause(ctx))
	}
	defer a.turns.Release(turns)
	return a.steps(ctx)
}
