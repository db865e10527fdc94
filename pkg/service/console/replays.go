package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/redact"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/pkg/service/audit"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

const (
	maxReplays  = 4 // that go on at once
	maxEnded    = 20
	maxProblems = 5               // the number of problems that are shown of one replay
	newsTime    = time.Second     // the time between two pieces of news
	endTime     = 5 * time.Second // the time for running replays to stop when the console ends
)

// The causes with which a replay ends early, see [context.Cause].
var (
	errStopped = errors.New("stopped on a page")
	errClosing = errors.New("the console ended")
)

// replay is a replay or a discard of dead letters in the background. Only its record in the audit is stored: the letters that are left are
// its remaining work.
type replay struct {
	Account  string
	Action   string // replay or discard
	Actor    string
	Began    time.Time
	Ended    time.Time
	Err      error
	Filter   deadletter.Filter
	ID       string
	Problems []string
	Rate     float64
	Result   deadletter.Result
	Total    int // the number of letters when it began, 0 until they are counted
}

// Over returns the number of letters that are over.
func (p replay) Over() int { return p.Result.Done + p.Result.Failed + p.Result.Skipped }

// Problem returns the reason that it failed.
func (p replay) Problem() string { return redact.Error(p.Err).Error() }

// Stopped reports whether a person has stopped it.
func (p replay) Stopped() bool { return errors.Is(p.Err, errStopped) }

// sameLetters reports whether two replays select the same letters, apart from the time.
func (p replay) sameLetters(other replay) bool {
	p.Filter.Since, p.Filter.Until, other.Filter.Since, other.Filter.Until = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return p.Account == other.Account && filterQuery(p.Filter).Encode() == filterQuery(other.Filter).Encode()
}

// replays has the replays of this process.
type replays struct {
	audit *audit.Log
	tell  func() // that there is news

	mu      sync.Mutex
	all     []*replay // the latest last
	closed  bool
	cancels map[string]context.CancelCauseFunc // of those that go on
	running sync.WaitGroup
}

// start starts a replay, and returns when its record has been begun.
func (rs *replays) start(ctx context.Context, p replay, store *deadletter.Store) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	p.Actor, p.Began, p.ID = access.From(ctx).Name, time.Now().UTC(), nuid.Next()
	if err := rs.enter(&p, cancel); err != nil {
		cancel(nil)
		return err
	}
	begun := make(chan error, 1)
	go func() {
		defer rs.running.Done()
		err := rs.audit.Do(ctx, p.Action, auditTarget(p), func(ctx context.Context) (int, error) {
			begun <- nil
			return rs.run(ctx, &p, store)
		})
		rs.end(&p, err)
		cancel(nil)
		select {
		case begun <- err: // it did not begin
		default:
		}
	}()
	return <-begun
}

// enter adds a replay that is to run, or returns the reason that it may not.
func (rs *replays) enter(p *replay, cancel context.CancelCauseFunc) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	switch {
	case rs.closed:
		return fail(http.StatusServiceUnavailable, "This console is ending. Nothing was done: try again in a moment.")
	case len(rs.cancels) == maxReplays:
		return fail(http.StatusConflict, "%d replays go on already, and no more may. Wait for one of them to end, or stop it.", maxReplays)
	case slices.ContainsFunc(rs.all, func(other *replay) bool { return other.Ended.IsZero() && other.sameLetters(*p) }):
		return fail(http.StatusConflict, "A replay of these letters goes on already. See Replays.")
	}
	rs.all, rs.cancels[p.ID] = append(rs.all, p), cancel
	rs.running.Add(1)
	return nil
}

// run goes through the letters, and tells pages the progress.
func (rs *replays) run(ctx context.Context, p *replay, store *deadletter.Store) (int, error) {
	last := time.Time{}
	each := func(o deadletter.Outcome) {
		rs.mu.Lock()
		p.Result.Add(o)
		if o.Err != nil && len(p.Problems) < maxProblems {
			p.Problems = append(p.Problems, fmt.Sprintf("letter %d: %v", o.Entry.Sequence, redact.Error(o.Err)))
		}
		rs.mu.Unlock()
		if time.Since(last) > newsTime {
			last = time.Now()
			rs.tell()
		}
	}
	if p.Total == 0 { // there are more letters than a page reads
		opts, q := deadletter.SurveyOptions{}, filterQuery(p.Filter)
		q.Del("until") // which was a moment ago
		if len(q) == 0 {
			opts.Newest = 1 // the server knows the number of letters
		}
		o, err := store.Survey(ctx, p.Filter, opts)
		if err != nil {
			return 0, err
		}
		rs.mu.Lock()
		p.Total = o.Total
		if len(q) == 0 {
			p.Total = int(o.Messages) //nolint:gosec // few
		}
		rs.mu.Unlock()
	}
	var result deadletter.Result
	var err error
	if p.Action == actionDiscard {
		result, err = store.Discard(ctx, p.Filter, deadletter.DiscardOptions{Each: each})
	} else {
		result, err = store.Replay(ctx, p.Filter, deadletter.ReplayOptions{Each: each, Rate: p.Rate})
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return result.Done, err
}

// end notes the end of a replay, and forgets old replays. A replay that has not begun is not kept.
func (rs *replays) end(p *replay, err error) {
	rs.mu.Lock()
	delete(rs.cancels, p.ID)
	p.Ended, p.Err = time.Now().UTC(), err
	ended := 0
	for i, other := range slices.Backward(rs.all) {
		if other.Ended.IsZero() {
			continue
		}
		ended++
		if ended > maxEnded || errors.Is(other.Err, audit.ErrUnavailable) {
			rs.all = slices.Delete(rs.all, i, i+1)
		}
	}
	rs.mu.Unlock()
	rs.tell()
}

// list returns the replays that run or have ended, the latest first.
func (rs *replays) list() []replay {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	all := make([]replay, 0, len(rs.all))
	for _, p := range slices.Backward(rs.all) {
		q := *p
		q.Problems = slices.Clone(p.Problems)
		all = append(all, q)
	}
	return all
}

// stop stops a running replay, and reports whether there was one.
func (rs *replays) stop(id string, cause error) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	cancel, ok := rs.cancels[id]
	if ok {
		cancel(cause)
	}
	return ok
}

// close stops all replays, and waits until their records have ended.
func (rs *replays) close() {
	rs.mu.Lock()
	rs.closed = true
	for _, cancel := range rs.cancels {
		cancel(errClosing)
	}
	rs.mu.Unlock()
	rs.running.Wait()
}

// broken returns the records of replays that did not come to their end: their process died, they were stopped, or the server was away. Of
// several records of the same letters the latest counts. It leaves out replays that run here.
func (rs *replays) broken(records []audit.Record, account string) []replay {
	seen := map[string]bool{}
	for _, p := range rs.list() {
		if p.Ended.IsZero() {
			seen[p.Action+auditTarget(p)] = true
		}
	}
	var all []replay
	for _, r := range records {
		p, ok := parseTarget(r.Target)
		if !ok || p.Account != account || r.Action != actionReplay && r.Action != actionDiscard || seen[r.Action+r.Target] {
			continue
		}
		seen[r.Action+r.Target] = true
		if r.Outcome != audit.Done {
			p.Action, p.Actor, p.Began, p.Result.Done = r.Action, r.Actor, r.At, r.Count
			all = append(all, p)
		}
	}
	return all
}

// auditTarget returns the selection of letters for a record, so that a replay can go on where it has ended. A signature, and a subject
// beyond its first tokens, may contain the id of a user: the record has their fingerprints.
func auditTarget(p replay) string {
	q := filterQuery(p.Filter)
	subject := q.Get("subject")
	for name, plain := range map[string]bool{
		"signature": false, "subject": strings.Count(strings.TrimSuffix(subject, ".>"), ".") < 2,
	} {
		if text := q.Get(name); text != "" && !plain {
			q.Set(name, fingerprint(text))
		}
	}
	if p.Account != "" {
		q.Set("account", p.Account)
	}
	return targetPrefix + q.Encode()
}
