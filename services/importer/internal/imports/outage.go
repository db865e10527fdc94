package imports

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/internal/natsotel"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/internal/memory"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
)

// The remote services that a job calls, as its state names them. The name of a site begins with sidePrefix.
const (
	sideExtractor = "extractor"
	sideRecipes   = "recipe store: recipes"
	sideStatus    = "recipe store: states"
	sideYouTube   = "YouTube"
	sidePrefix    = "site "
	sideSites     = "sites"           // all sites together, in the metrics
	sideMemory    = "importer memory" // no remote service, but its wait is the same
)

const (
	// strikes is the number of failed jobs of one owner that makes the owner's other jobs wait too, and the number of owners that makes
	// those of all owners wait. For an owner one failure is enough if the answer asks for a wait; for all, if it refuses our key.
	strikes = 2

	// firstPause and lastPause bound the pause in which no call is made. Each pause is twice as long as the one before.
	firstPause = 5 * time.Second
	lastPause  = 5 * time.Minute

	// maxRetryAfter bounds the pause that a remote service can ask for.
	maxRetryAfter = time.Hour

	// probeTime is the time after which another call may be made while a call tests whether a remote service works again. A remote
	// service that has worked within it is not held back from all owners.
	probeTime = 30 * time.Second

	// maxTroubled bounds the troubles that are recorded. Any further sites are called as if they worked.
	maxTroubled = 10_000
)

// errHeld is wrapped by the failure of a job whose call was not made because calls of other jobs failed.
var errHeld = errors.New("importer: no call was made")

// caller is the job that makes a call.
type caller struct{ owner, job string }

// key names the calls that are held back together: those of one owner to a remote service, or with owner "" those of all owners.
type key struct{ side, owner string }

// levels returns the keys of a call, and the name under which its failure counts there: an owner counts once for all owners, however many
// jobs of the owner fail.
func (c caller) levels(side string) [2]struct {
	key

	party string
} {
	return [2]struct {
		key

		party string
	}{{key{side, c.owner}, c.job}, {key{side, ""}, c.owner}}
}

// trouble is a remote service that does not work, for one owner or for all.
type trouble struct {
	remote.Breaker

	failure *FailedError // of the last call
	job     string       // the job with a failed call since the last success, several for more than one
	since   time.Time    // the first failed call since then
}

// bounds returns the bounds of a remote service's pauses.
func (k key) bounds() remote.BreakerConfig {
	cfg := remote.BreakerConfig{Parties: strikes, First: firstPause, Last: lastPause, Trial: probeTime}
	if k.owner == "" { // an owner's failures do not keep others from a remote service that works for them
		cfg.Grace = probeTime
	}
	return cfg
}

const several = "several\x00" // is no id of a job

// remotes holds back the calls to remote services that do not work, for all jobs of this process. It is safe for concurrent use.
type remotes struct {
	mu       sync.Mutex
	troubled map[key]*trouble
}

// enter returns nil when a call may be made. Otherwise it returns the failure that holds the call back, with the
// remaining pause in RetryAfter.
func (b *remotes) enter(side string, by caller) *FailedError {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, levels := time.Now(), by.levels(side)
	for _, l := range levels {
		t := b.troubled[l.key]
		if t == nil {
			continue
		}
		if wait := t.Wait(l.bounds(), l.party, now); wait > 0 {
			f := *t.failure
			f.Err, f.RetryAfter, f.Alone = fmt.Errorf("%w: %w", errHeld, t.failure), wait, false
			return &f
		}
	}
	for _, l := range levels {
		if t := b.troubled[l.key]; t != nil {
			t.Call(l.bounds(), l.party, now)
		}
	}
	return nil
}

// called records the outcome of a call, nil for a remote service that works. It reports whether other jobs begin or cease
// to wait, and sets f.Alone.
func (b *remotes) called(side string, by caller, f *FailedError) (changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, l := range by.levels(side) {
		t := b.troubled[l.key]
		switch {
		case f == nil && t != nil:
			changed = t.Succeed(now) || changed
			*t = trouble{Breaker: t.Breaker}
		case f == nil:
		case t == nil:
			if t = b.add(l.key, now); t == nil {
				continue
			}
			fallthrough
		default:
			changed = t.fail(l.key, l.party, by.job, now, f) || changed
			f.Alone = t.job == by.job && now.Sub(t.Worked()) < lastPause // of all owners, which is the last level
		}
	}
	return changed
}

// add records that a remote service does not work, unless there are too many.
func (b *remotes) add(k key, now time.Time) *trouble {
	if len(b.troubled) >= maxTroubled {
		maps.DeleteFunc(b.troubled, func(_ key, t *trouble) bool { return now.Sub(t.Until()) > maxRetryAfter })
	}
	if len(b.troubled) >= maxTroubled && (k.owner != "" || strings.HasPrefix(k.side, sidePrefix)) {
		return nil
	}
	if b.troubled == nil {
		b.troubled = map[key]*trouble{}
	}
	b.troubled[k] = &trouble{}
	return b.troubled[k]
}

// fail records a failed call of a party. It reports whether other calls begin to wait.
func (t *trouble) fail(k key, party, job string, now time.Time, f *FailedError) (begins bool) {
	if t.failure == nil {
		t.job, t.since = job, now
	}
	if t.job != job {
		t.job = several
	}
	t.failure = f
	begins = t.Fail(k.bounds(), party, now, f.Refused || k.owner != "" && f.RetryAfter > 0)
	// An owner may choose what asks for the wait, so it is not for all.
	if k.owner != "" {
		t.Hold(now.Add(min(f.RetryAfter, maxRetryAfter)))
	}
	return begins
}

// held returns the troubles for which jobs wait, by remote service. One that a single owner has with a remote service that works for
// others is left out, and so are those without a recent call.
func (b *remotes) held() map[string]*trouble {
	b.mu.Lock()
	defer b.mu.Unlock()
	held, now := map[string]*trouble{}, time.Now()
	for k, t := range b.troubled {
		all := b.troubled[key{side: k.side}]
		works := k.owner != "" && all != nil && now.Sub(all.Worked()) < lastPause
		if t.IsOpen() && !works && now.Sub(t.Until()) <= maxRetryAfter && (held[k.side] == nil || k.owner == "") {
			copied := *t
			held[k.side] = &copied
		}
	}
	return held
}

// Check is the readiness check of the remote services that all jobs need. It returns an error when a remote service refuses our
// key, and a [service.Note] when one does not work. Remote services without a recent call are left out.
func (s *Service) Check() error {
	var refused, noted []string
	held := s.remotes.held()
	for _, side := range slices.Sorted(maps.Keys(held)) {
		t := held[side]
		if strings.HasPrefix(side, sidePrefix) {
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

// Held calls report with the number of remote services of each name whose calls are held back, except for one call at a time. Sites
// are counted together. Remote services without a recent call are left out.
func (s *Service) Held(report func(side string, n int)) {
	held := map[string]int{sideExtractor: 0, sideRecipes: 0, sideStatus: 0, sideYouTube: 0, sideSites: 0}
	for side := range s.remotes.held() {
		held[labelOf(side)]++
	}
	for side, n := range held {
		report(side, n)
	}
}

// labelOf returns the name of a remote service in the metrics, the same for all sites.
func labelOf(side string) string {
	if strings.HasPrefix(side, sidePrefix) {
		return sideSites
	}
	return side
}

// reach makes a call to a remote service, unless the remote service is known not to work. failed makes the failure for an error.
func (a *attempt) reach(
	ctx context.Context, side string, failed func(error) *FailedError, call func(context.Context) error,
) error {
	if a.admitted == side {
		a.admitted = ""
	} else if f := a.remotes.enter(side, a.caller()); f != nil {
		return f
	}
	calling, measured := a.cfg.Telemetry.Call(ctx, labelOf(side))
	err := call(calling)
	if err != nil && ctx.Err() != nil {
		measured.End("interrupted", err)
		return context.Cause(ctx) // not a failure of the remote service
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
	f := failed(err)
	measured.End(string(f.Code), err)
	if f.Page {
		return f
	}
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

func (a *attempt) caller() caller { return caller{a.record.OwnerID, a.id} }

func (a *attempt) reached(ctx context.Context, side string, f *FailedError) {
	switch changed := a.remotes.called(side, a.caller(), f); {
	case !changed:
	case f == nil:
		a.logger.InfoContext(ctx, string(EventBack), "event", EventBack, "side", side)
	default:
		level := slog.LevelWarn
		if f.Refused {
			level = slog.LevelError
		}
		a.logger.Log(ctx, level, string(EventOutage),
			"event", EventOutage, "side", side, "refused", f.Refused, "error", f.Message)
	}
}

// waits records that a job waits for a remote service. It returns the time for which the job has waited for that remote service.
func (r *record) waits(side string) time.Duration {
	now := time.Now().UTC()
	if r.Outage != side {
		r.Outage, r.OutageSince, r.Alone = side, now, 0
	}
	r.WaitingFor, r.WaitingSince = side, r.OutageSince
	return now.Sub(r.OutageSince)
}

// FailedError is the failure of an attempt, with a message for a person and a code for a program.
type FailedError struct {
	Code    contracts.ImportCode `json:"code"`
	Message string               `json:"message"`

	// Retryable reports whether another attempt may succeed. RetryAfter is the wait before it, 0 for the usual wait.
	Retryable  bool          `json:"retryable,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"`

	// Exhausted reports whether no attempts are left, so that the job fails.
	Exhausted bool `json:"exhausted,omitempty"`

	// Outage names the remote service that works for no job; empty when the failure concerns this job only. Refused reports
	// whether the remote service refuses our key.
	Outage  string `json:"outage,omitempty"`
	Refused bool   `json:"refused,omitempty"`

	// Alone reports that the remote service works for other jobs.
	Alone bool `json:"alone,omitempty"`

	// Page reports that the site has answered with an error that says nothing about its other pages. Each attempt waits four times
	// as long as the one before.
	Page bool `json:"page,omitempty"`

	Err error `json:"-"`
}

// snooze returns the next wait of a job that has waited for a remote service. It grows with the time waited, for a job that
// fails while others do not.
func (f *FailedError) snooze(waited time.Duration) time.Duration {
	wait := max(min(f.RetryAfter, maxRetryAfter), min(max(firstPause, waited/4), lastPause))
	return wait + rand.N(wait/4)
}

// sideOf names the remote service of a source.
func sideOf(r *record) string {
	if r.SourceType == source.TypeYouTube || strings.HasPrefix(r.SourceID, "youtube:") {
		return sideYouTube
	}
	return sidePrefix + source.Site(r.URL)
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

// Error implements error.
func (f *FailedError) Error() string { return f.Message }

// Unwrap returns the cause.
func (f *FailedError) Unwrap() error { return f.Err }

// maxMessage bounds a message, which goes into a record, a log line and the reason of a claim.
const maxMessage = 500

// failureOf returns the failure for an error of a step.
func failureOf(err error) *FailedError {
	if f, ok := errors.AsType[*FailedError](err); ok {
		return f
	}
	if errors.Is(err, memory.ErrBusy) {
		return &FailedError{
			Code: failure.Timeout, Message: "The importer has no memory left for a source of this size", Retryable: true,
			Outage: sideMemory, Err: err,
		}
	}
	if e, ok := errors.AsType[*source.Error](err); ok {
		f := &FailedError{
			Code: e.Code, Message: limit(cmp.Or(e.Message, e.Error())), Retryable: e.Retryable, RetryAfter: e.RetryAfter, Err: err,
			Page: e.Page,
		}
		if e.Outage {
			f.Outage = sidePrefix + e.Site
		}
		return f
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &FailedError{Code: failure.Timeout, Message: "The import took too long", Retryable: true, Err: err}
	}
	return &FailedError{Code: failure.Crashed, Message: limit("The import failed: " + err.Error()), Retryable: true, Err: err}
}

// storeFailure returns a function that makes the failure for an error of the store.
func storeFailure(prefix string) func(error) *FailedError {
	return func(err error) *FailedError {
		f := &FailedError{
			Code: failure.StoreFailed, Message: limit(prefix + err.Error()), Retryable: store.Retryable(err), Exhausted: true, Err: err,
		}
		if failed, ok := errors.AsType[*store.Error](err); ok && f.Retryable && !errors.Is(err, kvrecord.ErrUnavailable) {
			f.Outage, f.Refused, f.RetryAfter = sideRecipes, failed.Refused, failed.RetryAfter
		}
		return f
	}
}

// limit makes a text fit for display: one bounded line of valid UTF-8.
func limit(text string) string {
	return redact.Shorten(strings.Join(strings.Fields(strings.ToValidUTF8(text, "\uFFFD")), " "), maxMessage)
}

// carried is a failure that passes through a flight.Flight. Waiters in other processes get only its text, so the text
// has all fields.
type carried struct{ *FailedError }

// Error implements error.
func (c carried) Error() string {
	data, err := json.Marshal(c.FailedError)
	if err != nil {
		return c.Message
	}
	return string(data)
}

// Unwrap returns the failure.
func (c carried) Unwrap() error { return c.FailedError }

// arrived returns the carried failure, or the error of the Flight itself.
func arrived(err error) error {
	if c, ok := errors.AsType[carried](err); ok {
		return c.FailedError
	}
	if failed, ok := errors.AsType[*flight.FailedError](err); ok {
		f := &FailedError{Err: err}
		if json.Unmarshal([]byte(failed.Reason), f) == nil && f.Code != "" {
			return f
		}
	}
	return err
}

// finalTTL is the time for which a permanent failure is kept for other jobs of the same source.
const finalTTL = 30 * time.Second

func failureTTL(err error) time.Duration {
	if c, ok := errors.AsType[carried](err); ok && !c.Retryable {
		return finalTTL
	}
	return 0
}

// Problem maps an error of this service to the problem that a client gets. It is a [service.ErrorMapper].
func Problem(err error) service.Problem {
	unusable, ok := errors.AsType[*source.Error](err)
	switch {
	case ok:
		return service.Problem{Status: http.StatusUnprocessableEntity, Code: string(unusable.Code), Detail: unusable.Message}
	case errors.Is(err, ErrUnknownJob), errors.Is(err, store.ErrNotFound):
		return service.Problem{Status: http.StatusNotFound}
	case errors.Is(err, ErrMismatch), errors.Is(err, ErrFinal), errors.Is(err, ErrNotFailed):
		return service.Problem{Status: http.StatusConflict}
	case errors.Is(err, kvrecord.ErrUnavailable):
		return service.Unavailable()
	case errors.Is(err, ErrClosed):
		return service.Problem{Status: http.StatusServiceUnavailable, Detail: "the service is stopping"}
	}
	return service.Problem{}
}

const (
	// jitter is the share by which a pause may be longer or shorter.
	jitter = 0.2

	// minPause is the shortest pause.
	minPause = 100 * time.Millisecond

	// maxAfter is the longest pause within an attempt: a service that wants a longer one is not called again.
	maxAfter = time.Minute

	// maxRetries bounds the repetitions, and maxBase the first pause.
	maxRetries, maxBase = 20, time.Minute
)

// RetryPolicy is the number of repetitions of a call, and their pauses.
type RetryPolicy struct {
	// Base is the pause before the first repetition; each further one is twice as long, ±20 %.
	Base time.Duration

	// Retries is the largest number of repetitions.
	Retries int
}

// UnmarshalText reads the repetitions and the first pause, as in "3,500ms".
func (p *RetryPolicy) UnmarshalText(text []byte) error {
	retries, base, found := strings.Cut(string(text), ",")
	n, err := strconv.Atoi(strings.TrimSpace(retries))
	if err != nil || !found {
		return fmt.Errorf("%.64q is no policy: want repetitions and the first pause, such as 3,500ms", text)
	}
	first, err := time.ParseDuration(strings.TrimSpace(base))
	if err != nil {
		return fmt.Errorf("%.64q is no policy: %w", text, err)
	}
	*p = RetryPolicy{Base: first, Retries: n}
	return p.Validate()
}

// Validate reports the first field that is out of its bounds.
func (p RetryPolicy) Validate() error {
	if p.Retries < 0 || p.Retries > maxRetries {
		return fmt.Errorf("%d repetitions: want 0 to %d", p.Retries, maxRetries)
	}
	if p.Base < minPause || p.Base > maxBase {
		return fmt.Errorf("the first pause is %s: want %s to %s", p.Base, minPause, maxBase)
	}
	return nil
}

// Pause returns the pause after a failed attempt, counted from 0.
func (p RetryPolicy) Pause(attempt int) time.Duration {
	return max(minPause, retry.Spread(retry.Wait(attempt, p.Base, maxBase<<maxRetries), jitter))
}

// verdict reports whether and when to try again after an error.
type verdict struct {
	// Again reports whether another attempt may succeed.
	Again bool

	// After is the least pause, if the service has asked for one. Defaults to none.
	After time.Duration
}

// Do calls f until it succeeds, judge rules out another attempt or asks for a pause of more than maxAfter, or the repetitions are
// used up. It returns the last error. When ctx ends in a pause, its cause is returned. onRetry is called before each pause.
func (p RetryPolicy) Do(
	ctx context.Context, f func(context.Context) error, judge func(error) verdict, onRetry func(attempt int, pause time.Duration, err error),
) error {
	for attempt := 0; ; attempt++ {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		v := judge(err)
		if !v.Again || attempt == p.Retries || v.After > maxAfter {
			return err
		}
		wait := max(p.Pause(attempt), v.After)
		onRetry(attempt+1, wait, err)
		if !retry.Sleep(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}
