// Package inspect asks running workers for their state, and can make one of them take no more jobs.
//
// Each worker of package worker is an instance of a NATS micro service (ADR-32) and answers on eight subjects, as long as its connection
// lives, even if all of its handlers hang:
//
//	worker.v1.info    its handlers, slots and attempts          [Info]
//	worker.v1.recent  its last attempts, 200 at most            [Recent]
//	worker.v1.stacks  the jobs that run now, with stacks        [Stacks]
//	worker.v1.drain   it takes no more jobs                     [Info]
//	worker.v1.resume  it takes jobs again                       [Info]
//
// All workers of the account answer on the first three. One worker answers where its instance follows as one more token, as in
// worker.v1.stacks.<instance>; drain and resume need that token. No state is stored: a worker that has ended does not answer.
//
// An answer has as many elements as fit into a message, and the number of the others. It has no payload and no header of a job. The texts
// of errors are those of the handlers, without the passwords, queries and fragments of addresses. A user that may publish to worker.v1.>
// may ask, and drain.
package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/denied"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/subject"
)

// Names of the service and its subjects.
const (
	// Service is the name of the micro service.
	Service = "worker"

	// SubjectInfo, SubjectRecent and SubjectStacks are the subjects on which all workers answer.
	SubjectInfo   = "worker.v1.info"
	SubjectRecent = "worker.v1.recent"
	SubjectStacks = "worker.v1.stacks"

	// SubjectDrain and SubjectResume begin the subjects on which one worker answers; its instance follows.
	SubjectDrain  = "worker.v1.drain"
	SubjectResume = "worker.v1.resume"
)

// Starting is the Info.Problem of a worker that has just been started.
const Starting = "it has not begun to pull"

// Info is a worker's description of itself.
type Info struct {
	// ID is the worker.Config.ID, which two workers may share by mistake.
	ID string `json:"id"`

	// Instance is the name of this run of the worker, which no other has.
	Instance string `json:"instance"`

	// Version is the version of its program.
	Version string `json:"version,omitempty"`

	// Stream and Consumer are the stream and consumer in its configuration.
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`

	// Host and PID are the machine and the process in which it runs.
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`

	// Started is the time at which it began to run.
	Started time.Time `json:"started"`

	// Ready reports whether it pulls jobs. Problem is the reason that it does not, Starting at first.
	Ready   bool   `json:"ready"`
	Problem string `json:"problem,omitempty"`

	// Stopping reports whether it takes no more jobs because it ends.
	Stopping bool `json:"stopping"`

	// Drained reports whether it takes no more jobs because of Drain.
	Drained bool `json:"drained,omitempty"`

	// Slots is the number of handlers that may run at once, Running the number that run, and Waiting the number of jobs that wait in the
	// worker for a limit or for earlier jobs.
	Slots   int `json:"slots"`
	Running int `json:"running"`
	Waiting int `json:"waiting"`

	// Stuck is the number of handlers that ignore their ended contexts, see worker.Config.StuckAfter. StuckJobs are the IDs of their jobs, 3
	// at most.
	Stuck     int      `json:"stuck,omitempty"`
	StuckJobs []string `json:"stuck_jobs,omitempty"`

	// Paused are the first 32 patterns whose jobs it does not start, see worker.Client.Pause.
	Paused []string `json:"paused,omitempty"`

	// Attempts has the numbers of attempts that have ended since it started, by their outcome.
	Attempts map[string]uint64 `json:"attempts"`

	// Last sums up the remembered attempts, see Recent.
	Last Last `json:"last,omitzero"`

	// Now is its time at the answer. Skew is the least by which its clock is ahead of the asking program's, or behind when negative.
	Now  time.Time     `json:"now,omitzero"`
	Skew time.Duration `json:"-"`

	// Handlers are its handlers, and HandlersOmitted the number of further ones.
	Handlers        []Handler `json:"handlers"`
	HandlersOmitted int       `json:"handlers_omitted,omitempty"`
}

// Last sums up the last attempts of a worker, 200 at most.
type Last struct {
	// Completed is the number of attempts that have completed, and Others the number of others.
	Completed int `json:"completed"`
	Others    int `json:"others"`

	// Ran95 is the time that 95 % of the attempts did not exceed.
	Ran95 time.Duration `json:"ran95"`

	// Waits are the times of Attempt.Waited, in whole milliseconds.
	Waits []time.Duration `json:"waits,omitempty"`

	// Unhandled is the last job that came and had no handler, nil for none.
	Unhandled *Unhandled `json:"unhandled,omitempty"`

	// Failing are the patterns of handlers of which an attempt failed, those with the most failures first, 16 at most.
	Failing []Failing `json:"failing,omitempty"`
}

// Unhandled is a job without a handler in the worker that got it, which hands it back.
type Unhandled struct {
	Subject string    `json:"subject"`
	At      time.Time `json:"at"`
}

// Failing sums up the remembered attempts of a pattern. An attempt that was snoozed, handed back, paused, limited or cancelled has not
// failed.
type Failing struct {
	// Pattern is the pattern of the handler.
	Pattern string `json:"pattern"`

	// Of is the number of attempts that have completed or failed, Failed of those that failed, and Retries of those after the first of a
	// job. First is the number of jobs whose first attempt failed, and Completed of attempts that have completed since the last failure.
	Of        int `json:"of"`
	Failed    int `json:"failed"`
	First     int `json:"first"`
	Retries   int `json:"retries"`
	Completed int `json:"completed"`

	// Error is the beginning of the last error, At the time of its attempt, and Since that of the first failure after the last attempt before
	// it that completed.
	Error string    `json:"error"`
	At    time.Time `json:"at"`
	Since time.Time `json:"since"`
}

// maxFailing bounds Last.Failing.
const maxFailing = 16

// failing sums up attempts, the latest first, by pattern.
func failing(attempts []Attempt) (all []Failing) {
	over := map[string]bool{} // patterns of which an attempt completed before the last failures
	sums := map[string]*Failing{}
	for _, a := range attempts {
		failed := a.Outcome == "retried" || a.Outcome == "dead" // values of worker.Outcome
		if !failed && a.Outcome != "completed" {
			continue
		}
		f := sums[a.Pattern]
		if f == nil {
			f = &Failing{Pattern: a.Pattern}
			sums[a.Pattern] = f
		}
		f.Of++
		if a.Attempt > 1 {
			f.Retries++
		} else if failed {
			f.First++
		}
		switch {
		case !failed && f.Failed == 0:
			f.Completed++
		case !failed:
			over[a.Pattern] = true
		case f.Failed == 0:
			f.Error, f.At, f.Since = a.Error, a.Started, a.Started
		case !over[a.Pattern]:
			f.Since = a.Started
		}
		if failed {
			f.Failed++
		}
	}
	for _, f := range sums {
		if f.Failed > 0 {
			all = append(all, *f)
		}
	}
	slices.SortFunc(all, func(a, b Failing) int {
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(a.Pattern, b.Pattern))
	})
	return all[:min(len(all), maxFailing)]
}

// Sum sums up attempts, the latest first.
func Sum(attempts []Attempt) (last Last) {
	ran := make([]time.Duration, 0, len(attempts))
	for _, a := range attempts {
		if ran = append(ran, a.Ran); a.Outcome == "completed" { // the value of worker.OutcomeCompleted
			last.Completed++
		}
		if a.Waited > 0 {
			last.Waits = append(last.Waits, a.Waited.Truncate(time.Millisecond))
		}
	}
	last.Others, last.Ran95, last.Failing = len(attempts)-last.Completed, P95(ran), failing(attempts)
	return last
}

// Wait95 returns the longest wait of 95 % of the jobs that workers remember, see Last.Waits, and the number of all these jobs.
func Wait95(workers ...Info) (wait time.Duration, of int) {
	var all []time.Duration
	for _, w := range workers {
		all = append(all, w.Last.Waits...)
	}
	return P95(all), len(all)
}

// P95 returns the smallest duration in all that 95 % of all do not exceed, 0 for none. It sorts all.
func P95(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)*95+99)/100-1]
}

// Name returns a name for people, which distinguishes the worker from all others.
func (i Info) Name() string { return fmt.Sprintf("worker %s (%s) of %s", i.ID, i.Instance, i.Stream) }

// State returns the state of the worker: stopping, draining while jobs are left in it, drained, ready, or not ready.
func (i Info) State() string {
	switch {
	case i.Stopping:
		return "stopping"
	case i.Drained && i.Running+i.Waiting > 0:
		return "draining"
	case i.Drained:
		return "drained"
	case i.Ready:
		return "ready"
	}
	return "not ready"
}

// Handler is a handler of a worker.
type Handler struct {
	// Pattern is the pattern of the subjects of its jobs, and Consumer the consumer that delivers them.
	Pattern  string `json:"pattern"`
	Consumer string `json:"consumer"`

	// MaxAttempts, Ordered and Timeout are the fields of its policy.
	MaxAttempts int           `json:"max_attempts"`
	Ordered     bool          `json:"ordered,omitempty"`
	Timeout     time.Duration `json:"timeout"`

	// Limits are the names of its limits.
	Limits []string `json:"limits,omitempty"`
}

// Recent are the last attempts of a worker, the latest first.
type Recent struct {
	// ID and Instance are the same as in Info.
	ID       string `json:"id"`
	Instance string `json:"instance"`

	// Attempts are the last attempts, and Omitted is the number of older ones that the worker remembers.
	Attempts []Attempt `json:"attempts"`
	Omitted  int       `json:"omitted,omitempty"`
}

// Attempt is an attempt that has ended.
type Attempt struct {
	// Job is the id of the job, Subject its subject, and Sequence its position in the stream. Long ids and subjects are cut.
	Job      string `json:"job"`
	Subject  string `json:"subject"`
	Sequence uint64 `json:"sequence"`

	// Pattern is the pattern of its handler.
	Pattern string `json:"pattern,omitempty"`

	// Consumer is the consumer that delivered the job: each consumer of a stream counts its own attempts at a job.
	Consumer string `json:"consumer,omitempty"`

	// Attempt is the number of the attempt, from 1.
	Attempt int `json:"attempt"`

	// Started is the time at which the handler was called, and Ran the time for which it ran: 0 for a job that was given up without a further
	// call.
	Started time.Time     `json:"started"`
	Ran     time.Duration `json:"ran"`

	// Waited is the time that the job was in its stream before its first attempt: from its storing, by the server's clock, to the start, by
	// the worker's. A delayed job is in its stream from the time it is due. Waited is 0 for a later attempt, or no wait, and 1 when the
	// worker's clock is behind.
	Waited time.Duration `json:"waited,omitempty"`

	// Outcome is a worker.Outcome.
	Outcome string `json:"outcome"`

	// Error is the beginning of the handler's error, "" for none.
	Error string `json:"error,omitempty"`
}

// Stacks are the attempts that run in a worker, the longest first.
type Stacks struct {
	// ID and Instance are the same as in Info.
	ID       string `json:"id"`
	Instance string `json:"instance"`

	// Attempts are running attempts, and Omitted is the number of further ones.
	Attempts []Running `json:"attempts"`
	Omitted  int       `json:"omitted,omitempty"`
}

// Running is an attempt that runs.
type Running struct {
	// Job, Subject, Sequence, Consumer, Attempt and Started are the same as in Attempt.
	Job      string    `json:"job"`
	Subject  string    `json:"subject"`
	Sequence uint64    `json:"sequence"`
	Consumer string    `json:"consumer,omitempty"`
	Attempt  int       `json:"attempt"`
	Started  time.Time `json:"started"`

	// Stuck reports whether the handler ignores its ended context, see worker.Config.StuckAfter.
	Stuck bool `json:"stuck,omitempty"`

	// Stacks are the stacks of the handler's goroutine and of those that it started: functions, files and lines.
	Stacks string `json:"stacks"`
}

// ErrNoWorker is returned when no worker answers: none runs, or the user has no permission to ask.
var ErrNoWorker = errors.New("inspect: no worker answers")

// stall is the time for which Workers waits for a further answer after the last one.
const stall = 250 * time.Millisecond

// Workers asks all workers of the account that js reaches. Under the API prefix of an account no other account answers; without one the
// accounts do from which the user's own imports the subject. It waits for the first answer until ctx ends, and 250 ms for each further
// one. Answers that cannot be read are in the error, beside the others.
func Workers(ctx context.Context, js jetstream.JetStream) (all []Info, err error) {
	asked := time.Now()
	answers, err := Gather(ctx, js.Conn(), jsapi.New(js, 0).Target(SubjectInfo), nil, stall)
	if len(answers) == 0 {
		return nil, fmt.Errorf("%w: %w", ErrNoWorker, err)
	}
	var unread []error
	for _, answer := range answers {
		var info Info
		if err := json.Unmarshal(answer, &info); err != nil {
			unread = append(unread, fmt.Errorf("inspect: an answer: %w", err))
			continue
		}
		if !info.Now.IsZero() { // the time of the answer lies between the question and now
			info.Skew = max(time.Until(info.Now), time.Until(info.Started), 0) + min(info.Now.Sub(asked), 0)
		}
		all = append(all, info)
	}
	return all, errors.Join(unread...)
}

// maxAnswers bounds the bytes of all answers to one request: whoever may answer may send any number.
const maxAnswers = 16 << 20

// Gather sends a request with data to all responders of a subject, and returns their answers, 16 MiB at most. It waits for the first
// answer until ctx ends, and for each further answer as long as stall. The error is the reason that no further answer came. An empty
// answer, as the server's that nobody is there, does not end it: any responder could send one to hide the others.
func Gather(ctx context.Context, nc *nats.Conn, to string, data []byte, stall time.Duration) (all [][]byte, err error) {
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, fmt.Errorf("inspect: subscribe: %w", err)
	}
	defer answers.Unsubscribe()
	denied.Sent(ctx, to)
	if err := nc.PublishRequest(to, inbox, data); err != nil {
		return nil, fmt.Errorf("inspect: ask: %w", err)
	}
	msg, err := answers.NextMsgWithContext(ctx)
	for room := maxAnswers; err == nil || errors.Is(err, nats.ErrNoResponders); {
		room -= 128
		if err == nil && len(msg.Data) > 0 {
			all, room = append(all, msg.Data), room-len(msg.Data)
		}
		if room < 0 {
			return all, fmt.Errorf("inspect: ask %s: more answers than %d MiB", to, maxAnswers>>20)
		}
		once, cancel := context.WithTimeout(ctx, stall)
		msg, err = answers.NextMsgWithContext(once)
		cancel()
	}
	return all, fmt.Errorf("inspect: ask: %w", err)
}

// InfoOf asks one worker for its Info, by its instance. Of one that has ended the error wraps [ErrNoWorker]; no answer until ctx ends means
// that its process stands still, while its connection lives. One round trip.
func InfoOf(ctx context.Context, js jetstream.JetStream, instance string) (Info, error) {
	return ask[Info](ctx, js, SubjectInfo, instance)
}

// RecentOf asks an instance of Info for its last attempts. One round trip.
func RecentOf(ctx context.Context, js jetstream.JetStream, instance string) (Recent, error) {
	return ask[Recent](ctx, js, SubjectRecent, instance)
}

// StacksOf asks an instance of Info for the attempts that it runs. One round trip. It stops the worker's process for a moment.
func StacksOf(ctx context.Context, js jetstream.JetStream, instance string) (Stacks, error) {
	return ask[Stacks](ctx, js, SubjectStacks, instance)
}

// Drain makes an instance of Info take no more jobs until Resume, or its end, and returns its state. The worker finishes its running jobs.
// Jobs that wait in it, or that its last request still brings, go back, use no attempt, and come to another worker 5 seconds later. The
// worker stays ready. A worker that is drained before it pulls takes no jobs. A worker of a version without Drain does not answer. One
// round trip.
func Drain(ctx context.Context, js jetstream.JetStream, instance string) (Info, error) {
	return ask[Info](ctx, js, SubjectDrain, instance)
}

// Resume makes an instance of Info take jobs again, within AckWait/3, and returns its state. One round trip.
func Resume(ctx context.Context, js jetstream.JetStream, instance string) (Info, error) {
	return ask[Info](ctx, js, SubjectResume, instance)
}

func ask[T any](ctx context.Context, js jetstream.JetStream, to, instance string) (answer T, err error) {
	if !subject.IsSafeToken(instance) {
		return answer, fmt.Errorf("inspect: %q is no instance of a worker", instance)
	}
	to = jsapi.New(js, 0).Target(to + "." + instance)
	denied.Sent(ctx, to)
	msg, err := js.Conn().RequestWithContext(ctx, to, nil)
	if errors.Is(err, nats.ErrNoResponders) {
		err = ErrNoWorker
	}
	if err != nil {
		return answer, fmt.Errorf("inspect: ask %s: %w", instance, err)
	}
	if err = json.Unmarshal(msg.Data, &answer); err != nil {
		return answer, fmt.Errorf("inspect: the answer of %s: %w", instance, err)
	}
	return answer, nil
}
