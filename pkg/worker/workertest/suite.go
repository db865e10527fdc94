package workertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/validate"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// Suite describes a service for [Conform]. Job and Service are required.
type Suite struct {
	// Effects counts the effects of each job, by job ID, for a service whose effects do not go to the recorder, for instance from the
	// service's store. Defaults to the recorder's count.
	Effects func(ctx context.Context, js jetstream.JetStream) (map[string]int, error)

	// Job makes the nth job as its publisher would: subject, payload, headers. Jobs of different n are different jobs. A job
	// without a Nats-Msg-Id, which is its ID, gets one.
	Job func(n int) *nats.Msg

	// Jobs is the number of jobs of a scenario, at least 4. Defaults to 20.
	Jobs int

	// Prepare creates the streams and buckets that the service needs on an empty
	// server, the job stream first. Defaults to the stream of worker.StreamConfig,
	// with the jobs "jobs.>".
	Prepare func(ctx context.Context, js jetstream.JetStream) error

	// Service is the service under test.
	Service Service

	// Stream is the name of the job stream. Defaults to "JOBS".
	Stream string
}

// scenario is one kind of failure of a service.
type scenario struct {
	name string
	real bool // with processes, in real time
	run  func(s *stage) error
}

// scenarios have the names of the subtests of Conform.
var scenarios = []scenario{
	{"duplicate delivery", false, duplicateDelivery},
	{"handler slower than AckWait", false, slowHandler},
	{"poison message", false, poisonMessage},
	{"undecodable message", false, undecodableMessage},
	{"server restart", false, serverRestart},
	{"shutdown in flight", false, shutdownInFlight},
	{"clock jump", false, clockJump},
	{"redelivery after SIGKILL", true, killedProcess},
	{"paused process", true, pausedProcess},
}

// Conform runs a service through the failures of production. It fails the test for each job whose effect is lost or doubled, that stays in
// the stream, or that lacks its dead letter:
//
//	duplicate delivery           the same job is in the stream twice, at once and later
//	handler slower than AckWait  it takes a hundred AckWaits, with another worker idle
//	poison message               the remote service refuses one job for good
//	undecodable message          a payload that is no JSON
//	server restart               before an effect, and between an effect and its acknowledgement
//	shutdown in flight           with handlers that would never end by themselves
//	clock jump                   two hours pass within a job, and between two
//	redelivery after SIGKILL     of a real process, before an effect, after it, and in full flow
//	paused process               a process that stops (SIGSTOP), is replaced, and goes on
//
// The first seven take no real time (testing/synctest), so neither the test nor its parents may call t.Parallel. For the last two the test
// binary starts itself. The child process reaches this call of Conform as well, which runs the service there and does not return. So the
// child also executes the test up to Conform, and a test may call Conform once only.
func Conform(t *testing.T, suite Suite) {
	t.Helper()
	suite = suite.withDefaults()
	check.OK(t, suite.validate())
	serveIfChild(t, suite)
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			if sc.real {
				t.Parallel() // with the other real scenario; no bubble runs any more
			}
			check.ErrorIs(t, suite.try(t, sc, role(t)), nil)
		})
	}
}

func (s Suite) withDefaults() Suite {
	s.Jobs = cmp.Or(s.Jobs, 20)
	s.Stream = cmp.Or(s.Stream, "JOBS")
	if s.Prepare == nil {
		name := s.Stream
		s.Prepare = func(ctx context.Context, js jetstream.JetStream) error {
			_, err := js.CreateStream(ctx, worker.StreamConfig(name, "jobs.>"))
			return err
		}
	}
	return s
}

func (s Suite) validate() error {
	return errors.Join(
		validate.If(s.Job == nil, "workertest: Suite.Job is nil: make the nth job"),
		validate.If(s.Service == nil, "workertest: Suite.Service is nil: give the service to test"),
		validate.If(s.Jobs < minJobs, "workertest: Suite.Jobs is %d: use at least %d", s.Jobs, minJobs))
}

// try runs a scenario and returns its error.
func (s Suite) try(t *testing.T, sc scenario, role string) (err error) {
	t.Helper()
	if sc.real {
		srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
		return s.play(t, srv, sc, role)
	}
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		t.Helper()
		err = s.play(t, srv, sc, role)
	})
	return err
}

// Bounds of the waits. They only end a test that hangs, so they are far longer than any step; those in a bubble cost no real time.
const (
	bubblePatience = 24 * time.Hour
	realPatience   = 2 * time.Minute
)

func (s Suite) play(t *testing.T, srv *natsrun.Server, sc scenario, role string) error {
	t.Helper()
	st := &stage{
		ackWait: 5 * time.Second, lastPoll: time.Hour, patience: bubblePatience,
		recorder: newRecorder(), role: role, srv: srv, suite: s, t: t,
	}
	if sc.real {
		st.ackWait, st.lastPoll, st.patience = time.Second, 100*time.Millisecond, realPatience
	}
	_, st.js = natstest.Connect(t, srv)
	ctx, cancel := context.WithTimeout(t.Context(), st.patience)
	defer cancel()
	st.ctx = ctx
	defer st.clear()
	if err := s.Prepare(ctx, st.js); err != nil {
		return fmt.Errorf("workertest: Suite.Prepare: %w", err)
	}
	return sc.run(st)
}
