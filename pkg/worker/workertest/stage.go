package workertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

const (
	minJobs   = 4
	firstPoll = 10 * time.Millisecond
)

// stage is the server, the stream and the recorder of a scenario.
type stage struct {
	ackWait  time.Duration
	clears   []func()
	ctx      context.Context
	js       jetstream.JetStream
	lastPoll time.Duration // the time between two looks at the stream
	patience time.Duration // of a scenario
	recorder *recorder
	role     string
	srv      *natsrun.Server
	suite    Suite
	t        *testing.T
}

// clear ends all that a scenario has started and not ended.
func (s *stage) clear() {
	for _, end := range slices.Backward(s.clears) {
		end()
	}
}

// instance is a service that runs in this process.
type instance struct {
	cancel context.CancelFunc
	done   chan error
	once   sync.Once
	err    error
}

// serve starts the service in this process, with a separate connection.
func (s *stage) serve() *instance {
	_, js := natstest.Connect(s.t, s.srv)
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.ctx))
	i := &instance{cancel: cancel, done: make(chan error, 1)}
	env := Env{
		AckWait: s.ackWait, JS: js, Recorder: s.recorder,
		Logger: slog.New(slog.NewTextHandler(s.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	go func() {
		err := errors.New("the service called runtime.Goexit")
		defer func() { i.done <- err }()
		err = s.suite.Service(ctx, env)
	}()
	s.clears = append(s.clears, func() { _ = i.stop() }) // the scenario has stopped it before, or has failed
	return i
}

// stop asks the service to end and waits until it has.
func (i *instance) stop() error {
	i.cancel()
	i.once.Do(func() { i.err = <-i.done })
	return i.err
}

// id returns the name of a job.
func id(msg *nats.Msg) string { return msg.Header.Get(nats.MsgIdHdr) }

// jobs makes the jobs from the nth on.
func (s *stage) jobs(from, n int) []*nats.Msg {
	jobs := make([]*nats.Msg, n)
	for i := range jobs {
		jobs[i] = s.suite.Job(from + i)
		if jobs[i].Header == nil {
			jobs[i].Header = nats.Header{}
		}
		if id(jobs[i]) == "" {
			jobs[i].Header.Set(nats.MsgIdHdr, fmt.Sprintf("conform-%d", from+i))
		}
	}
	return jobs
}

// publish inserts jobs.
func (s *stage) publish(jobs ...*nats.Msg) error {
	for _, job := range jobs {
		again := &nats.Msg{Subject: job.Subject, Header: maps.Clone(job.Header), Data: job.Data}
		if _, err := s.js.PublishMsg(s.ctx, again); err != nil {
			return fmt.Errorf("insert job %s: %w", id(job), err)
		}
	}
	return nil
}

// reached waits until the hold has all its calls.
func (s *stage) reached(h *hold) (jobs []string, err error) {
	for range cap(h.reached) {
		select {
		case job := <-h.reached:
			jobs = append(jobs, job)
		case <-s.ctx.Done():
			return jobs, errors.New("no handler came to the recorder: call it with the context and the ID of the job")
		}
	}
	return jobs, nil
}

// finish waits until the jobs have left the stream and returns an error for effects that are missing or doubled.
func (s *stage) finish(jobs ...*nats.Msg) error {
	if err := s.settled(jobs...); err != nil {
		return err
	}
	return s.once(jobs...)
}

// once returns an error for each job that has not exactly one effect.
func (s *stage) once(jobs ...*nats.Msg) error {
	effects, err := s.effects()
	if err != nil {
		return err
	}
	var errs []error
	for _, job := range jobs {
		if n := effects[id(job)]; n != 1 {
			errs = append(errs, fmt.Errorf("job %s has %d effects, want 1", id(job), n))
		}
	}
	return errors.Join(errs...)
}

// dead waits until the job has left the stream, and returns an error unless it has one
// dead letter and no effect.
func (s *stage) dead(job *nats.Msg) error {
	if err := s.settled(job); err != nil {
		return err
	}
	all, err := letters(s.ctx, s.js, s.suite.Stream)
	if err != nil {
		return err
	}
	n := 0
	for i := range all {
		if all[i].ID == id(job) {
			n++
		}
	}
	if n != 1 {
		err = fmt.Errorf("job %s has %d dead letters, want 1", id(job), n)
	}
	effects, failed := s.effects()
	if got := effects[id(job)]; got != 0 {
		failed = fmt.Errorf("job %s is given up and has %d effects, want 0", id(job), got)
	}
	return errors.Join(err, failed)
}

func (s *stage) effects() (map[string]int, error) {
	if s.suite.Effects == nil {
		effects, _, _ := s.recorder.look()
		return effects, nil
	}
	effects, err := s.suite.Effects(s.ctx, s.js)
	if err != nil {
		return nil, fmt.Errorf("Suite.Effects: %w", err)
	}
	return effects, nil
}

// settled waits until none of the jobs is in the stream.
func (s *stage) settled(jobs ...*nats.Msg) error {
	for wait := firstPoll; ; wait = min(wait*3/2, s.lastPoll) {
		left, err := s.left(jobs)
		if err == nil && len(left) == 0 {
			return nil
		}
		select {
		case <-time.After(wait):
		case <-s.ctx.Done():
			return fmt.Errorf("after %s these jobs are still in the stream: %v %w", s.patience, left, err)
		}
	}
}

// left returns the jobs that are in the stream.
func (s *stage) left(jobs []*nats.Msg) (names []string, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
	defer cancel()
	stream, err := s.js.Stream(ctx, s.suite.Stream)
	if err != nil {
		return nil, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return nil, err
	}
	for _, job := range jobs {
		if info.State.Subjects[job.Subject] > 0 {
			names = append(names, id(job))
		}
	}
	return names, nil
}

// worked waits until n jobs have effects in the recorder, or have called Reach if effects are elsewhere.
func (s *stage) worked(n int) error {
	for {
		effects, reached, changed := s.recorder.look()
		if s.suite.Effects != nil {
			effects = reached
		}
		if len(effects) >= n {
			return nil
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return fmt.Errorf("only %d of %d jobs were worked within %s", len(effects), n, s.patience)
		}
	}
}

// pass lets fake time pass.
func (s *stage) pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // costs no real time in a bubble

// ErrRefused is returned by the recorder for the poison job, at every attempt.
var ErrRefused = errors.New("workertest: refused: this job is to be poison")

// Service is the program under test, or the part of it that works jobs. It works the jobs of env until ctx ends, then
// returns.
type Service func(ctx context.Context, env Env) error

// Env is the environment that a service gets from the suite.
type Env struct {
	// AckWait is the value for the worker's Config.AckWait. The suite waits for the deliveries of a killed process, longer with a longer
	// AckWait.
	AckWait time.Duration

	// JS reaches the stream of the jobs. Its connection survives restarts of the server.
	JS jetstream.JetStream

	// Logger goes to the test's output.
	Logger *slog.Logger

	// Recorder receives the effects of the jobs.
	Recorder Recorder
}

// Recorder receives the effects of a service under test, in place of the system that the service calls. It outlives the service and its
// crashes. The suite also uses it to hold a handler: to kill the handler's process right before or right after the effect, or to keep the
// handler waiting. A call returns when the suite releases it, or when ctx ends.
type Recorder interface {
	// Record counts an effect of the job with this ID. A second call counts a second effect.
	Record(ctx context.Context, jobID string) error

	// RecordOnce counts an effect unless the job has one, like a system that gets the job's ID as its idempotency key.
	RecordOnce(ctx context.Context, jobID string) error

	// Reach does not count an effect. A service whose effects are elsewhere (Suite.Effects) calls it right before an effect.
	Reach(ctx context.Context, jobID string) error
}
