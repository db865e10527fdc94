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
	sideSites     = "sites" // all of them, in the metrics
)

const (
	// strikes is how many jobs fail in a row before the others wait too. One whose answer says for how long to wait is enough.
	strikes = 2

	// firstPause and lastPause bound for how long no call is made then: twice as long each time.
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute

	// maxRetryAfter bounds the pause that a far side can ask for.
	maxRetryAfter = time.Hour

	// probeTime is how soon the next call may be made while one finds out whether a far side works again.
	probeTime = 30 * time.Second

	// maxTroubled bounds how many far sides are watched. Those beyond are called as if they worked.
	maxTroubled = 10_000
)

// errHeld is wrapped by the failure of a job whose call was not made, because others failed.
var errHeld = errors.New("importer: no call was made")

// trouble is a far side that does not work.
type trouble struct {
	failure *FailedError // of the last call
	job     string       // whose call that was
	missed  int          // jobs in a row
	pause   time.Duration
	probing bool
	since   time.Time
	until   time.Time // the next call
}

// breaker holds back the calls to far sides that do not work, for all jobs of this process. When a pause is over, one call at a
// time finds out whether the far side works again. It is safe for concurrent use.
type breaker struct {
	mu       sync.Mutex
	troubled map[string]*trouble
}

// enter returns the failure for which no call is made now, with the time that is left in RetryAfter; nil when one may be made.
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

// called records the outcome of a call, nil for a far side that works. It reports whether the others begin or cease to wait.
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
	if begins || t.probing { // no call that was under way when the pause began makes it longer
		t.pause, t.probing = min(max(firstPause, 2*t.pause), lastPause), false
		t.until = now.Add(t.pause)
	}
	if until.After(t.until) {
		t.until = until
	}
	return begins
}

// Check is the check of readiness of the far sides that all jobs need: an error when one of them refuses our key, and a
// [service.Note] when one does not work. Far sides that were not called for a while are left out.
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

// Held calls tell with the number of far sides of each name that are not called, except for one call at a time; sites count
// together. Far sides that were not called for a while are left out.
func (s *Service) Held(tell func(side string, n int)) {
	held := map[string]int{sideExtractor: 0, sideRecipes: 0, sideStatus: 0, sideYouTube: 0, sideSites: 0}
	s.breaker.mu.Lock()
	for side, t := range s.breaker.troubled {
		if t.pause > 0 && time.Since(t.until) <= maxRetryAfter {
			held[labelOf(side)]++
		}
	}
	s.breaker.mu.Unlock()
	for side, n := range held {
		tell(side, n)
	}
}

// labelOf is a far side in the metrics, where the sites have one name.
func labelOf(side string) string {
	if strings.HasPrefix(side, sidePrefix) {
		return sideSites
	}
	return side
}

// reach makes a call to a far side, unless that is known not to work. failure makes the failure of an error.
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
		return context.Cause(ctx) // the caller's end says nothing of the far side
	}
	if err == nil {
		measured.End(natsotel.OutcomeOK, nil)
		a.reached(ctx, side, nil)
		if strings.HasPrefix(side, sidePrefix) && strings.HasPrefix(a.admitted, sidePrefix) { // to which the source leads
			a.reached(ctx, a.admitted, nil)
			a.admitted = ""
		}
		return nil
	}
	f := failure(err)
	measured.End(string(f.Code), err)
	if f.Outage == "" {
		a.reached(ctx, side, nil)
		return f
	}
	if f.Outage == sidePrefix || !strings.HasPrefix(f.Outage, sidePrefix) {
		f.Outage = side
	} else { // side answered, and led to another site
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

// waits puts a job off for a far side. It returns for how long the job has waited for that.
func (r *record) waits(side string) time.Duration {
	now := time.Now().UTC()
	if r.Outage != side {
		r.Outage, r.OutageSince = side, now
	}
	r.WaitingFor, r.WaitingSince = side, r.OutageSince
	return now.Sub(r.OutageSince)
}

// snooze is for how long a job is put off that has waited for a far side. One that fails where others do not waits longer
// each time.
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
	// maxCrashes is how many workers a job may have killed until it is worked alone, and maxAlone how many it may have killed then until
	// it has failed: one of them may have died of something else.
	maxCrashes = 2
	maxAlone   = 2

	// allTurns is more than jobs are worked at a time.
	allTurns = 1 << 30
)

// inTurn takes the steps beside those of other jobs, or alone when the job may have killed its workers: the others shall not die
// with it.
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
