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
	maxProblems = 5               // of one replay that are shown
	newsTime    = time.Second     // between two pieces of news
	endTime     = 5 * time.Second // for replays that run when the console ends
)

// Why a replay ends early, for [context.Cause].
var (
	errStopped = errors.New("stopped on a page")
	errClosing = errors.New("the console ended")
)

// replay is a replay of dead letters, or their discard, in the background. Nothing of it is stored but its record in the audit: the
// letters that are left are its remaining work.
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
	Total    int // when it began, 0 until they are counted
}

// Over is how many letters it has been at.
func (p replay) Over() int { return p.Result.Done + p.Result.Failed + p.Result.Skipped }

// Problem says why it failed.
func (p replay) Problem() string { return redact.Error(p.Err).Error() }

// Stopped reports whether somebody has stopped it.
func (p replay) Stopped() bool { return errors.Is(p.Err, errStopped) }

// sameLetters reports whether two are of the same letters, but for the time.
func (p replay) sameLetters(other replay) bool {
	p.Filter.Since, p.Filter.Until, other.Filter.Since, other.Filter.Until = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return p.Account == other.Account && filterQuery(p.Filter).Encode() == filterQuery(other.Filter).Encode()
}

// replays are those of this process.
type replays struct {
	audit *audit.Log
	tell  func() // that there is news

	mu      sync.Mutex
	all     []*replay // the latest last
	closed  bool
	cancels map[string]context.CancelCauseFunc // of those that go on
	running sync.WaitGroup
}

// start starts a replay, and returns when it is written that it begins.
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

// enter adds a replay that is to go on, or says why it may not.
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

// run goes through the letters, and tells how far it is.
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
	if p.Total == 0 { // there are more than a page looks at
		opts, q := deadletter.SurveyOptions{}, filterQuery(p.Filter)
		q.Del("until") // which was a moment ago
		if len(q) == 0 {
			opts.Newest = 1 // the server knows how many there are
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

// end notes the end of a replay, and forgets old ones. One that has not begun was none.
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

// list returns those that go on and have ended, the latest first.
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

// stop stops one that goes on, and reports whether there is one.
func (rs *replays) stop(id string, cause error) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	cancel, ok := rs.cancels[id]
	if ok {
		cancel(cause)
	}
	return ok
}

// close stops all, and waits for the ends of their records.
func (rs *replays) close() {
	rs.mu.Lock()
	rs.closed = true
	for _, cancel := range rs.cancels {
		cancel(errClosing)
	}
	rs.mu.Unlock()
	rs.running.Wait()
}

// broken returns the records of replays that did not come to their end: their process died, they were stopped, or the server was away.
// Of several records of the same letters the latest counts. Those that go on here are none.
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

// auditTarget says in a record which letters are meant, so that a replay can go on where it has ended. A signature may have an id of a
// user, and so may all of a subject but its first tokens: of these the record has a fingerprint.
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
