package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

const (
	maxReplays = 4 // that run at once
	maxEnded   = 20
	newsTime   = time.Second     // the time between two reports of progress to the pages
	endTime    = 5 * time.Second // the time for running replays to stop when the console ends
)

// errStopped is the cause with which a person ends a replay, see [context.Cause].
var errStopped = errors.New("stopped on a page")

// replay is a replay or a discard of dead letters in the background. Only its record in the audit is stored: the dead letters that are
// left are its remaining work.
type replay struct {
	operate.Change
	deadQuery

	Actor string
	Began time.Time
	Ended time.Time
	Err   error
	ID    string
	Rate  float64
	Total int // dead letters when it began, 0 if they were too many to be counted
}

// Problem returns the reason that it failed.
func (p replay) Problem() string { return redact.Error(p.Err).Error() }

// Stopped reports whether a person has stopped it.
func (p replay) Stopped() bool { return errors.Is(p.Err, errStopped) }

// selection describes its selection without the times. Two replays with the same one cannot run at once.
func (p replay) selection() string {
	text, _ := operate.CutTarget(p.Target(p.Filter.Sequences))
	return text
}

type replays struct {
	audit *audit.Log
	tell  func() // that there is news

	mu      sync.Mutex
	all     []*replay // the latest last
	closed  bool
	cancels map[string]context.CancelCauseFunc // of those that run
	running sync.WaitGroup
}

// start starts a replay, and returns when its record has been begun.
func (rs *replays) start(ctx context.Context, p replay) error {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	p.Actor, p.Began, p.ID = access.From(ctx).Name, time.Now().UTC(), nuid.Next()
	if err := rs.enter(&p, cancel); err != nil {
		cancel(nil)
		return err
	}
	begun := make(chan error, 1)
	go func() {
		defer rs.running.Done()
		err := rs.audit.Do(ctx, p.Action, p.Target(p.Filter.Sequences), func(ctx context.Context) (int, error) {
			begun <- nil
			return rs.run(ctx, &p)
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

func (rs *replays) enter(p *replay, cancel context.CancelCauseFunc) error {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	switch {
	case rs.closed:
		return fail(http.StatusServiceUnavailable, "This console is ending. Nothing was done: try again in a moment.")
	case len(rs.cancels) == maxReplays:
		return fail(http.StatusConflict, "%d replays are running, which is the limit. Wait for one of them to end, or stop it.", maxReplays)
	case slices.ContainsFunc(rs.all, func(other *replay) bool { return other.Ended.IsZero() && other.selection() == p.selection() }):
		return fail(http.StatusConflict, "A replay with this filter is running already. See Replays.")
	}
	rs.all, rs.cancels[p.ID] = append(rs.all, p), cancel
	rs.running.Add(1)
	return nil
}

// run processes the dead letters, and reports the progress to the pages.
func (rs *replays) run(ctx context.Context, p *replay) (int, error) {
	last := time.Time{}
	change := operate.Change{Action: p.Action}
	done, err := change.Run(ctx, p.js, p.store, p.Filter, deadletter.ReplayOptions{Rate: p.Rate, Each: func(o deadletter.Outcome) {
		rs.mu.Lock()
		p.Add(o)
		rs.mu.Unlock()
		if time.Since(last) > newsTime {
			last = time.Now()
			rs.tell()
		}
	}})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return done, err
}

// end notes the end of a replay, and drops the oldest ended ones. It also drops a replay that could not begin.
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
		cancel(errors.New("the console ended"))
	}
	rs.mu.Unlock()
	rs.running.Wait()
}
