package imports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// recheck is the time after which a subscriber reads the job without a push, and so its delay when a push is lost.
const recheck = 2 * time.Second

// hub notifies waiting requests of changes to a job's record and progress. It has two subscriptions for all requests.
type hub struct {
	subscriptions []*nats.Subscription
	prefix        string

	mu     sync.Mutex
	closed bool
	waits  map[string]map[chan struct{}]bool // by key
}

func newHub(nc *nats.Conn) (*hub, error) {
	h := &hub{prefix: contracts.RepublishSubject(contracts.BucketImportJobs, ""), waits: map[string]map[chan struct{}]bool{}}
	progress := contracts.RepublishSubject(contracts.BucketJobs, "progress."+contracts.StreamImportJobs+".*")
	for subject, handle := range map[string]nats.MsgHandler{
		h.prefix + "*": func(m *nats.Msg) { h.changed(strings.TrimPrefix(m.Subject, h.prefix)) },
		progress:       func(m *nats.Msg) { h.progressed(m.Data) },
	} {
		subscription, err := nc.Subscribe(subject, handle)
		if err != nil {
			h.close()
			return nil, fmt.Errorf("importer: subscribe to changes of jobs: %w", err)
		}
		h.subscriptions = append(h.subscriptions, subscription)
	}
	return h, nil
}

func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	for _, chans := range h.waits {
		for c := range chans {
			close(c)
		}
	}
	clear(h.waits)
	h.mu.Unlock()
	for _, subscription := range h.subscriptions {
		_ = subscription.Unsubscribe() // fails if the connection ends, and the subscription with it
	}
}

func (h *hub) changed(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.waits[key] {
		select {
		case c <- struct{}{}:
		default: // an earlier notification was not received yet
		}
	}
}

// listen returns a channel that receives a value at each change of a key, and is closed with the hub.
func (h *hub) listen(key string) (changed chan struct{}, stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan struct{}, 1)
	if h.closed {
		close(c)
		return c, func() {}
	}
	if h.waits[key] == nil {
		h.waits[key] = map[chan struct{}]bool{}
	}
	h.waits[key][c] = true
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.waits[key], c)
		if len(h.waits[key]) == 0 {
			delete(h.waits, key)
		}
	}
}

// ErrClosed is returned to waiting requests when the service stops.
var ErrClosed = errors.New("importer: the service is stopping")

// Subscription follows one job. Close ends it.
type Subscription struct {
	service *Service
	jobID   string
	changed chan struct{}
	stop    func()
	seen    uint64
	share   float64 // of the step, as last seen
	over    bool
}

// Subscribe follows a job from the last change that was seen, 0 for none. The error wraps ErrUnknownJob when there is
// no such job. One round trip.
func (s *Service) Subscribe(ctx context.Context, jobID string, seen uint64) (*Subscription, error) {
	key, err := jobKey(jobID)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnknownJob, err)
	}
	changed, stop := s.hub.listen(key)
	r, _, err := s.read(ctx, jobID)
	if err != nil {
		stop()
		return nil, err
	}
	sub := &Subscription{service: s, jobID: jobID, changed: changed, stop: stop, seen: seen}
	sub.over = r.Status.Final() && r.Changes == seen
	return sub, nil
}

// Over reports whether the subscriber has seen the end of the job.
func (u *Subscription) Over() bool { return u.over }

// Close ends the subscription.
func (u *Subscription) Close() { u.stop() }

// Update is a job after a change.
type Update struct {
	Job Job

	// Change identifies the state of the job. Progress does not alter it.
	Change uint64
}

// Next waits until the job has changed since it was last seen, or has made progress in its step, and returns the job, or io.EOF when it is
// over. The first call usually returns at once. States between two calls may be left out. One round trip for each change and one every two
// seconds, twice as many while the job runs.
func (u *Subscription) Next(ctx context.Context) (Update, error) {
	for {
		if u.over {
			return Update{}, io.EOF
		}
		r, _, err := u.service.read(ctx, u.jobID)
		if err != nil {
			return Update{}, err
		}
		job := u.service.view(ctx, &r)
		if r.Changes != u.seen || job.Progress > u.share {
			u.seen, u.share, u.over = r.Changes, job.Progress, r.Status.Final()
			return Update{Job: job, Change: r.Changes}, nil
		}
		if err := u.wait(ctx); err != nil {
			return Update{}, err
		}
	}
}

func (u *Subscription) wait(ctx context.Context) error {
	timer := time.NewTimer(recheck + rand.N(recheck/4))
	defer timer.Stop()
	select {
	case _, open := <-u.changed:
		if !open {
			return ErrClosed
		}
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Event is the name of a log event: the attribute "event" of a log line.
type Event string

// The log events, with their attributes beside job_id. None carries text of a source.
const (
	EventStarted     Event = "import_started"     // url, attempt, run
	EventSkipped     Event = "import_skipped"     // status: the job has ended already
	EventTranscript  Event = "transcript_fetched" // source_id, segments, elapsed, shared
	EventExtracted   Event = "recipe_extracted"   // extractor, ingredients, steps, elapsed, shared
	EventCreated     Event = "recipe_created"     // recipe_id, elapsed
	EventReady       Event = "import_ready"       // recipe_id, elapsed
	EventFailed      Event = "import_failed"      // code, step, attempt, error
	EventRetry       Event = "operation_retried"  // operation, attempt, pause, error
	EventPutOff      Event = "import_put_off"     // code, step, attempt, error, waiting_for: another attempt follows
	EventNoProgress  Event = "progress_unread"    // error: the progress of a running job is left out
	EventInterrupted Event = "import_interrupted" // the worker stops, or lost the job
	EventOutage      Event = "outage_began"       // side, refused, error, without a job_id: all jobs wait for it
	EventBack        Event = "outage_ended"       // side, without a job_id
	EventUntold      Event = "status_untold"      // status, error: the store has not received the status, and gets it later
)

func (s *Service) log(ctx context.Context, level slog.Level, event Event, jobID string, attrs ...slog.Attr) {
	if !s.logger.Enabled(ctx, level) {
		return
	}
	all := append([]slog.Attr{slog.String("event", string(event)), slog.String("job_id", jobID)}, attrs...)
	s.logger.LogAttrs(ctx, level, string(event), all...)
}

// Points of the life of a job, in order, at which tests have a worker die.
const (
	PointRunning     = "running"           // the job is RUNNING, and the store has not received that
	PointBegun       = "begun"             // the store has received it
	PointFetching    = "fetching"          // this worker is to fetch the source
	PointFetched     = "fetched"           // the source has answered, and no other process has the answer
	PointShared      = "transcript shared" // all jobs have it, and this one has not noted it
	PointTranscript  = "transcript noted"  // it has
	PointSaved       = "transcript saved"  // the store has it
	PointExtracting  = "extracting"        // this worker is to make the recipe
	PointExtracted   = "extracted"         // the recipe is made, and no other process has it
	PointRecipe      = "extract shared"    // all jobs have it, and this one has not noted it
	PointRecipeNoted = "extract noted"     // it has
	PointCreated     = "created"           // the store has the recipe, and the job's record does not
	PointNoted       = "creation noted"    // the record has the recipe, and is not READY
	PointReady       = "ready"             // the job is READY, and the store has not received that
	PointEnded       = "ended"             // the store has received the end, and the message is still there
	PointSettled     = "settled"           // the message is gone
)

// passed tells a test that a job has reached a point.
func (s *Service) passed(point string) {
	if s.cfg.Passed != nil {
		s.cfg.Passed(point)
	}
}
