// Package worker runs jobs from a JetStream stream: typed handlers, bounded concurrency, retries with backoff, dead letters,
// and a shutdown that loses nothing. A job is any message of the stream; every publisher can enqueue one.
//
//	w, err := worker.New(js, worker.Config{Stream: "JOBS", Consumer: "mailer"})
//	...
//	err = worker.Handle(w, "jobs.mail.>", worker.Policy{MaxAttempts: 5},
//		func(ctx context.Context, job *worker.Job[Mail]) error {
//			return send(ctx, job.Args)
//		})
//	...
//	err = w.Run(ctx) // until ctx ends, then gracefully
//
// A [Client] inserts jobs: unique ones, which the server refuses while a job of their key exists, delayed and periodic ones.
//
//	receipt, err := client.Insert(ctx, worker.NewJob{
//		Args: Mail{To: "ada"}, Subject: "jobs.mail", Unique: &worker.Unique{Key: "ada", Keep: time.Hour},
//	})
//	fmt.Println(receipt.Duplicate, receipt.State)
//
// [Policy.Priority] divides the slots of a worker, [Policy.Limits] bound the jobs over all workers, [Policy.Ordered] runs the jobs of one
// subject one after the other.
//
// Related packages are step (results within a job that survive a crash), deadletter (lists jobs that were given up, and runs them again),
// and workertest (one job in a test, and a conformance suite for services).
//
// # Guarantees
//
// Delivery is at least once. A job leaves the stream only after its handler returned nil, or after the server stored its dead
// letter; both are confirmed by the server. It runs again after a crash between the handler's last effect and that
// confirmation, so handlers must be idempotent. Job.ID is the same in every attempt: dedupe by it.
//
// A worker holds no more jobs than it has slots, beside up to Config.MaxWaiting that wait for a limit, and sends a heartbeat for each
// every AckWait/3. So a job of any length is not started twice. The job of a killed worker starts elsewhere within two AckWaits (of 5 s by
// default), as a rule within two thirds of an AckWait to one.
//
// An error, a panic, a timeout and a crash use an attempt; Snooze and a shutdown use none. A job without attempts left goes to the dead
// letters, as does a job that cannot be decoded.
//
// Run survives restarts of the server, changes of leader, lost connections and the deletion of a consumer, by itself and with bounded
// backoff.
//
// README.md in this folder has the rest: the guarantees in full and their exceptions, the requirements on the server, the permissions, and
// the costs in round trips and processor time.
package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/limit"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
	"github.com/expediter-io/expediter/pkg/worker/internal/journal"
	"github.com/expediter-io/expediter/pkg/worker/internal/order"
	"github.com/expediter-io/expediter/pkg/worker/internal/pull"
)

// Bounds of the backoff between two requests to the server.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 2 * time.Second
)

var (
	// ErrNoHandler is returned when Run is called before any Handle.
	ErrNoHandler = errors.New("worker: no handler registered: call Handle before Run")

	// ErrShutdown is the cause of the end of a handler's context when the worker stops.
	ErrShutdown = errors.New("worker: shutting down")

	// ErrStarted is returned when Run is called twice, or Handle after Run.
	ErrStarted = errors.New("worker: already started")
)

// StuckError is returned by Run when handlers did not return before the hard deadline. Their jobs were handed back, and may run elsewhere
// while the handlers still run here.
type StuckError struct {
	// Jobs are the jobs that were still running.
	Jobs []Info
}

// Error implements error.
func (e *StuckError) Error() string {
	names := make([]string, 0, len(e.Jobs))
	for _, job := range e.Jobs {
		names = append(names, fmt.Sprintf("%s (%s)", job.ID, job.Subject))
	}
	return fmt.Sprintf("worker: %d handlers did not return before the hard deadline: %s",
		len(e.Jobs), strings.Join(names, ", "))
}

// Worker works the jobs of one consumer, or of one consumer for each priority of its handlers. Make it with [New], register
// handlers with [Handle], then call Run once.
type Worker struct {
	// Set by New.
	cfg   Config
	fresh time.Duration // the largest age of a message that counts as sent just now
	js    jetstream.JetStream
	log   *slog.Logger
	nc    *nats.Conn
	trust time.Duration // without a confirmed heartbeat after which another worker may have a job: one heartbeat may be lost

	// Set by Handle.
	classes []*class // the classes of the handlers, the highest priority first
	limited bool     // a handler has limits
	ordered bool     // a handler has Policy.Ordered
	routes  []*route
	routing subject.Tree[*route] // of them

	// Set when Run begins.
	api      jsapi.Client
	bucket   *kvrecord.Stream
	inbox    *jsapi.Inbox    // for the answers to its requests
	jobs     context.Context // ends the contexts of handlers
	journals *journal.Store
	limits   *limit.Set // nil without limits
	puller   *pull.Puller
	settling context.Context // ends the recording of outcomes
	stopping context.Context // ends the start of jobs

	// Deliveries that it holds, and what is known of them. Each has its own lock.
	acks       acks
	beats      beats // guarded by deliveries.mu
	contact    contact
	deliveries deliveries
	failures   *failures
	lines      order.Lines
	recent     recent
	slots      slots

	// Its goroutines.
	contacting sync.WaitGroup
	drained    chan struct{}  // closed when no more messages come
	idle       chan *delivery // deliveries for goroutines that have ended their last one
	running    sync.WaitGroup // deliveries that are not abandoned

	// Its state.
	condition condition
	draining  atomic.Bool             // the worker takes no more jobs, see inspect.Drain
	losses    atomic.Int32            // the number of losses since the server's last sign of life
	pauses    atomic.Pointer[[]Pause] // as last read
	shared    atomic.Bool             // the stream is not a work queue: other consumers may have its jobs
	silent    atomic.Bool             // running jobs are not recorded, because the server refuses that
	started   atomic.Bool
}

// New returns a worker that pulls through js. It makes no request: Run returns an error for all that is missing on the server. The error
// of New names every invalid field of cfg.
func New(js jetstream.JetStream, cfg Config) (*Worker, error) {
	cfg = cfg.withDefaults()
	err := cfg.validate()
	if js == nil {
		err = errors.Join(errors.New("worker: New needs a JetStream context, got nil"), err)
	}
	if err != nil {
		return nil, err
	}
	return &Worker{
		cfg: cfg, js: js, nc: js.Conn(),
		fresh: min(time.Second, cfg.AckWait/5),
		// The rest of AckWait is for a leader that confirms a heartbeat and dies before others have it.
		trust:      cfg.AckWait * (beatsPerAckWait - 1) / beatsPerAckWait,
		log:        redact.Logger(cfg.Logger.With("worker", cfg.ID, "stream", cfg.Stream, "consumer", cfg.Consumer)),
		condition:  condition{lost: errors.New(inspect.Starting)},
		deliveries: newDeliveries(), drained: make(chan struct{}), failures: newFailures(), idle: make(chan *delivery),
		slots: slots{free: cfg.Concurrency},
	}, nil
}

// Run works jobs until ctx ends, then stops gracefully:
//
//  1. The worker asks for no more jobs, starts none, and hands back the jobs that its last request still brings, which
//     takes up to a second.
//  2. Handlers have Config.SoftStop to finish.
//  3. Their contexts end with the cause [ErrShutdown], and they have Config.HardStop to return. A job whose handler then returns an error
//     is handed back, unless it is a control error.
//  4. Jobs that are still running are handed back and named in a [*StuckError].
//
// A job that is handed back uses no attempt. Run returns nil when every handler returned, and leaves no goroutine but those
// of stuck handlers.
//
// Before it pulls, Run checks the streams, the consumers and the bucket, and returns a [*DriftError] or [*MissingError] for each that is
// not as required. That includes a consumer from which a worker with other handlers pulls. An unreachable server, and one that refuses to
// make what AutoCreate needs, is not an error: Run tries until it succeeds, and reports the reason by Hooks.Ready.
func (w *Worker) Run(ctx context.Context) error {
	if len(w.routes) == 0 {
		return ErrNoHandler
	}
	if !w.started.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: Run may be called once", ErrStarted)
	}
	records, err := w.open()
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	defer func() { records.Close(); _ = w.inbox.Close() }() // the connection is closed then
	endAnswers, err := w.answerInspectors(ctx)
	if err != nil {
		return err
	}
	defer endAnswers()
	if err := w.await(ctx, nil); err != nil || ctx.Err() != nil {
		return err
	}
	// Handlers may run on after the end of ctx, until the soft deadline, so their contexts are not its children.
	var (
		root                = context.WithoutCancel(ctx)
		jobs, cancelJobs    = context.WithCancelCause(root)
		settling, endSettle = context.WithCancel(root)
		stopping, endPull   = context.WithCancel(ctx)
	)
	defer cancelJobs(nil)
	defer endSettle()
	defer endPull()
	w.contact.lose()
	w.stopping, w.jobs, w.settling = stopping, jobs, settling
	w.puller = pull.New(pull.Config{
		Conn: w.nc, Deliver: w.accept, Down: w.isDown, Expires: w.fresh,
		Free: func() int { return w.cfg.Concurrency - w.deliveries.size() },
		Lost: w.recover, Sources: w.sources(), Up: w.isUp,
	})
	held := w.cfg.Concurrency
	if w.limited || w.ordered {
		held += w.cfg.MaxWaiting
	}
	w.acks.ring = make([]ack, 2*held)
	w.openLimits(records)
	endBeats, err := w.startBeats(root)
	if err != nil {
		return err
	}
	err = w.puller.Run(ctx)
	if err != nil {
		err = fmt.Errorf("worker: %w", err)
	}
	endPull()
	w.contacting.Wait()
	close(w.drained)
	err = errors.Join(err, w.stop(cancelJobs, endSettle))
	w.limits.Close()
	endBeats()
	w.log.InfoContext(ctx, EventStopped)
	return err
}

// open opens the clients for the requests of a run. No round trip.
func (w *Worker) open() (records *kvrecord.Client, err error) {
	records, err = kvrecord.New(kvrecord.Config{JetStream: w.js, Try: w.cfg.RequestTimeout, Timeout: w.cfg.RequestTimeout})
	if err != nil {
		return nil, err
	}
	if w.inbox, err = jsapi.NewInbox(w.nc); err != nil {
		records.Close()
		return nil, err
	}
	w.api = jsapi.Client{Prefix: jsapi.Prefix(w.js), Sender: w.inbox, Within: w.cfg.RequestTimeout}
	w.bucket = records.Bucket(w.cfg.Bucket)
	w.journals = journal.New(journal.Config{
		API: w.api, Bucket: w.cfg.StepBucket, Conn: w.nc, Settle: w.cfg.SettleTimeout, TTL: w.cfg.StepTTL,
	})
	return records, nil
}

// stop ends the deliveries that are still here.
func (w *Worker) stop(cancelJobs context.CancelCauseFunc, endSettle context.CancelFunc) error {
	w.log.Info(EventStopping, "running", w.deliveries.size())
	idle := make(chan struct{})
	go func() {
		w.running.Wait()
		close(idle)
	}()
	if waitFor(idle, w.cfg.SoftStop) {
		return nil
	}
	cancelJobs(ErrShutdown)
	if waitFor(idle, w.cfg.HardStop) {
		return nil
	}
	stuck := w.abandon()
	// The rest are outcomes that are being recorded. They end by themselves when the server answers; a server that is away
	// gets the time of one more request.
	if !waitFor(idle, w.cfg.RequestTimeout) {
		endSettle()
		<-idle
	}
	if len(stuck) == 0 {
		return nil
	}
	return &StuckError{Jobs: stuck}
}

// abandon hands back the jobs whose handlers did not return.
func (w *Worker) abandon() []Info {
	var group sync.WaitGroup
	running := w.deliveries.close()
	dumps := dump(running)
	stuck := make([]Info, 0, len(running))
	for _, d := range running {
		stuck = append(stuck, d.info)
		group.Go(func() {
			defer w.running.Done()
			w.log.Error(EventJobStuck, append(d.attrs(), "ran", time.Since(d.started), "stacks", dumps[d.label])...)
			o := decide(ending{info: d.info, err: ErrShutdown, interrupted: true, started: true}, nil)
			w.report(d, o, w.giveBack(d, o), time.Now())
		})
	}
	group.Wait()
	return stuck
}

// await returns when the server has all that the worker needs, when ctx ends, or with an error that time does not mend. With a reason, the
// worker has been working before: await then waits through all errors but that of a closed connection.
func (w *Worker) await(ctx context.Context, reason error) error {
	for wait := firstWait; ctx.Err() == nil; wait = min(2*wait, lastWait) {
		err := w.prepare(ctx, reason != nil)
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // stopped before it began, which is no failure
		}
		if errors.Is(err, nats.ErrConnectionClosed) || reason == nil && isFinal(err) {
			return err
		}
		w.isDown(err)
		retry.Sleep(ctx, wait)
	}
	return nil
}

// isFinal reports whether an error needs an operator.
func isFinal(err error) bool {
	_, missing := errors.AsType[*MissingError](err)
	_, drifted := errors.AsType[*DriftError](err)
	return missing || drifted
}

// recover is called when the consumer cannot be pulled from. It returns when the worker can pull again. It waits a little first, longer
// each time: a change of leader is over in a moment, and a server that has the consumer but does not serve it must not get too many
// requests.
func (w *Worker) recover(ctx context.Context, reason error) {
	losses := w.losses.Add(1)
	// A server shows a consumer that it makes a moment before it serves it. Once, that is no loss.
	if losses > 1 || !errors.Is(reason, pull.ErrUnserved) {
		w.isDown(reason)
	}
	const doublings = 5
	retry.Sleep(ctx, firstWait<<min(losses-1, doublings))
	_ = w.await(ctx, reason) // only a closed connection, which the puller sees itself
}

// denial adds the last refusal that the connection received to the error of an unanswered request: the server does not answer a request
// without permission, and reports the refusal separately.
func (w *Worker) denial(err error) error {
	last := w.nc.LastError()
	if !errors.Is(last, nats.ErrPermissionViolation) || isInspectionDenied(last) ||
		!errors.Is(err, pull.ErrSilent) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) {
		return err
	}
	return fmt.Errorf("%w (the connection's last error: %w)", err, last)
}

// condition is whether a worker pulls, and gets the jobs of its handlers.
type condition struct {
	mu     sync.Mutex
	astray error // the reason that it gets no jobs although it pulls
	lost   error // the reason that it does not pull

	reporting sync.Mutex    // guards the fields below, and is held while the hook runs, which may ask inspectors
	final     bool          // the reported reason needs an operator
	next      time.Time     // the time at which the reason is reported again
	ready     bool          // as reported
	wait      time.Duration // the wait before next, zero when nothing was reported
}

// Bounds of the wait between two reports that a worker is not ready. It doubles.
const (
	firstReport = time.Minute
	lastReport  = time.Hour
)

// problem returns the reason that the worker is not ready, nil if it is.
func (c *condition) problem() error { return cmp.Or(c.lost, c.astray) }

// isDown notes that the worker cannot pull.
func (w *Worker) isDown(reason error) { w.judge(func(c *condition) { c.lost = reason }) }

// isUp notes that the worker pulls.
func (w *Worker) isUp() {
	w.losses.Store(0)
	w.judge(func(c *condition) { c.lost = nil })
}

// judge changes the condition and reports it: at once when the worker becomes ready or ceases to be, and when the reason turns out to need
// an operator; otherwise again and again while the worker is not ready. A worker that pulls again gets into contact with the server.
func (w *Worker) judge(change func(c *condition)) {
	c, now := &w.condition, time.Now()
	c.reporting.Lock()
	defer c.reporting.Unlock()
	c.mu.Lock()
	lost := c.lost != nil
	change(c)
	switch {
	case c.lost != nil:
		w.contact.lose()
	case lost:
		w.beginContact(w.acks.byConsumer())
	}
	reason := c.problem()
	c.mu.Unlock()
	final := isFinal(reason) || jsapi.IsPermanent(reason)
	switch {
	case c.wait == 0, c.ready != (reason == nil), final && !c.final:
		c.wait = firstReport
	case c.ready, now.Before(c.next):
		return
	default:
		c.wait = min(2*c.wait, lastReport)
	}
	c.ready, c.final, c.next = reason == nil, final, now.Add(c.wait)
	if c.ready {
		w.log.Info(EventReady)
	} else {
		reason = w.denial(reason)
		w.log.Warn(EventLost, "error", reason)
	}
	w.callApart("Hooks.Ready", func() { w.cfg.Hooks.Ready(c.ready, reason) })
}

// waitFor reports whether done is closed within the time.
func waitFor(done <-chan struct{}, longest time.Duration) bool {
	select {
	case <-done:
		return true
	case <-time.After(max(longest, 0)):
		return false
	}
}

// Handler works one job. A result of nil completes the job; [Retry], [Snooze] and [Discard] return the errors that decide otherwise. Any
// other error, a panic or a runtime.Goexit is a failed attempt, which the policy retries. The context ends at the policy's timeout and
// when the worker stops; [context.Cause] returns the reason.
//
// A job is delivered at least once, so a handler must be idempotent: it runs again after a crash between its last effect and
// the acknowledgement. Its goroutine works other jobs later: a handler that calls runtime.LockOSThread has to unlock the thread again.
type Handler[T any] func(ctx context.Context, job *Job[T]) error

// Handle registers the handler of every job whose subject matches pattern. A pattern is a subject that may end in ">" and have
// "*" tokens. Patterns of one worker must not overlap, since a job has one handler. The errors of a bad pattern and a bad policy are
// reported together. Run refuses a pattern that no job of the stream can match, or that matches its schedules or records too. Call Handle
// before Run.
func Handle[T any](w *Worker, pattern string, policy Policy, handler Handler[T]) error {
	policy = policy.withDefaults()
	err := policy.validate()
	if handler == nil {
		err = errors.Join(err, errors.New("worker: registering needs a handler, got nil"))
	}
	return w.register(err, &route{
		pattern: pattern, policy: policy,
		handle: func(ctx context.Context, info Info, msg *nats.Msg) error {
			job := &Job[T]{Info: info, Data: msg.Data, Header: msg.Header}
			// The sequence marks the error as this job's: a handler may return that of a job that it read itself.
			if err := policy.Decode(msg.Header, msg.Data, &job.Args); err != nil {
				return &DecodeError{Cause: redact.Safe(err), Subject: info.Subject, sequence: info.Sequence}
			}
			return handler(ctx, job)
		},
	})
}

// Middleware runs around every attempt of every job, on the goroutine of its handler: for tracing, for values in the context,
// for checks that all handlers share. It has to call next once at most, and to return the error of next, or another error instead. If it
// does not call next, it decides the attempt without the handler. The context that it passes to next must be derived from ctx. A panic of
// the handler passes through it.
//
// header holds the headers of the message, nil when it has none, and must not be changed.
type Middleware func(ctx context.Context, info Info, header nats.Header, next func(context.Context) error) error

// route ties a pattern to a handler. Past this point nothing is generic.
type route struct {
	labels  []string // of CPU profiles
	pattern string
	policy  Policy
	handle  func(ctx context.Context, info Info, msg *nats.Msg) error
}

// register adds a route, unless err is the error of an invalid handler.
func (w *Worker) register(err error, added *route) error {
	if err != nil {
		return fmt.Errorf("worker: handle %s: %w", redact.Quote(added.pattern), err)
	}
	if w.started.Load() {
		return fmt.Errorf("%w: handle %q before Run", ErrStarted, added.pattern)
	}
	if err := subject.CheckPattern(added.pattern); err != nil {
		return fmt.Errorf("worker: handle %s: not a subject filter: %w", redact.Quote(added.pattern), err)
	}
	for _, other := range w.routes {
		if !subject.Overlap(other.pattern, added.pattern) {
			continue
		}
		err := fmt.Errorf("worker: handle %q: overlaps %q, so a job could have two handlers", added.pattern, other.pattern)
		if other.policy.Priority != added.policy.Priority {
			err = fmt.Errorf("%w, and two priorities: publish the jobs of each priority under their own subject, "+
				"such as jobs.urgent.> and jobs.bulk.>", err)
		}
		return err
	}
	if err := w.checkSameLimits(added); err != nil {
		return err
	}
	c := w.classFor(added.policy.Priority)
	if len(c.consumer) > maxName {
		return fmt.Errorf("worker: handle %q: the consumer of its priority would be %q: use a shorter Config.Consumer",
			added.pattern, c.consumer)
	}
	c.patterns = append(c.patterns, added.pattern)
	added.labels = []string{"worker_consumer", ConsumerOf(w.cfg.Consumer, added.policy.Priority), "worker_pattern", added.pattern}
	w.limited = w.limited || len(added.policy.Limits) > 0
	w.ordered = w.ordered || added.policy.Ordered
	w.routes = append(w.routes, added)
	w.routing.Add(added.pattern, added)
	return nil
}

// class holds the handlers of one priority, and the consumer that they share.
type class struct {
	consumer string
	created  atomic.Int64 // the time at which the consumer was made, in Unix nanoseconds
	patterns []string
	priority Priority
}

// classFor returns the class of a priority, and makes it if there is none. Worker.classes has the highest priority first.
func (w *Worker) classFor(p Priority) *class {
	at, found := slices.BinarySearchFunc(w.classes, p, func(c *class, p Priority) int { return int(p - c.priority) })
	if !found {
		w.classes = slices.Insert(w.classes, at, &class{consumer: ConsumerOf(w.cfg.Consumer, p), priority: p})
	}
	return w.classes[at]
}

// sources returns the consumers from which the worker pulls.
func (w *Worker) sources() []pull.Source {
	all := make([]pull.Source, 0, len(w.classes))
	for _, c := range w.classes {
		all = append(all, pull.Source{
			Paused:  func() bool { return c.created.Load() == 0 || w.isPaused(c) },
			Subject: w.api.Prefix + "CONSUMER.MSG.NEXT." + w.cfg.Stream + "." + c.consumer, Weight: c.priority.weight(),
		})
	}
	return all
}

// HeaderID is the header with the ID of a job. Without it the Nats-Msg-Id is the ID. A Nats-Msg-Id must differ between two publications of
// one job, and a schedule drops it when it fires.
const HeaderID = jobmsg.HeaderID

// Job is one job as its handler sees it. Handlers must not change Data or Header.
type Job[T any] struct {
	Info

	// Args is the decoded payload.
	Args T

	// Data is the published payload.
	Data []byte

	// Header holds the headers of the message, nil when it has none.
	Header nats.Header
}

// Info identifies one attempt at one job.
type Info struct {
	// Attempt is 1 for the first attempt. README.md has a table of the events that use one.
	Attempt int

	// Consumer is the durable name of the consumer that delivered the job.
	Consumer string

	// Deliveries is the number of deliveries of the message, this one included. It is at least Attempt; uncounted deliveries make the
	// difference. It is no fencing token: a consumer that was deleted and made again counts from 1.
	Deliveries int

	// EnqueuedAt is the time at which the stream stored the message, by the server's clock.
	EnqueuedAt time.Time

	// ID is the header Job-Id of the message, else its Nats-Msg-Id, else "<stream>:<sequence>". It is the same in every attempt
	// and after a replay.
	ID string

	// MaxAttempts is the MaxAttempts of the policy: at Attempt == MaxAttempts an error is final.
	MaxAttempts int

	// Pattern is the pattern of the job's handler: a label for metrics, where subjects would be too many. Empty when the job has no handler
	// in this worker.
	Pattern string

	// Sequence is the position in the stream.
	Sequence uint64

	// Stream is the name of the stream.
	Stream string

	// Subject is the subject to which the job was published.
	Subject string
}
