package workertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/testbed"
)

// recordings are the calls of a Recorder by name.
var recordings = map[string]func(r Recorder, ctx context.Context, jobID string) error{
	"reach":       Recorder.Reach,
	"record":      Recorder.Record,
	"record-once": Recorder.RecordOnce,
}

// recorderSubject precedes the names of recordings: the suite answers other processes on the server of their jobs.
const recorderSubject = "_WORKERTEST."

// offer makes the recorder available to other processes.
func (s *stage) offer() error {
	for name, record := range recordings {
		_, err := s.js.Conn().Subscribe(recorderSubject+name, func(msg *nats.Msg) {
			go func() { // the suite may hold the call
				var text string
				if err := record(s.recorder, s.ctx, string(msg.Data)); err != nil {
					text = err.Error()
				}
				_ = msg.Respond([]byte(text)) // the caller was killed, or the test is over
			}()
		})
		if err != nil {
			return fmt.Errorf("offer the recorder: %w", err)
		}
	}
	return s.js.Conn().Flush()
}

// remote is a recorder in another process.
type remote struct{ nc *nats.Conn }

// Record implements Recorder.
func (r remote) Record(ctx context.Context, jobID string) error { return r.call(ctx, "record", jobID) }

// RecordOnce implements Recorder.
func (r remote) RecordOnce(ctx context.Context, jobID string) error {
	return r.call(ctx, "record-once", jobID)
}

// Reach implements Recorder.
func (r remote) Reach(ctx context.Context, jobID string) error { return r.call(ctx, "reach", jobID) }

func (r remote) call(ctx context.Context, method, jobID string) error {
	answer, err := r.nc.RequestWithContext(ctx, recorderSubject+method, []byte(jobID))
	switch {
	case err != nil:
		return fmt.Errorf("workertest: the recorder does not answer: %w", err)
	case len(answer.Data) == 0:
		return nil
	case strings.HasPrefix(string(answer.Data), ErrRefused.Error()):
		return fmt.Errorf("%w: %s", ErrRefused, jobID)
	}
	return errors.New(string(answer.Data))
}

// task is the input of a service in a separate process.
type task struct {
	AckWait time.Duration
	NATS    string
}

// role returns the role of the services of a test: the name of the test without that of the scenario.
func role(t *testing.T) string {
	t.Helper()
	return path.Dir(t.Name())
}

// serveIfChild runs the service and ends the process, if the process was started to be the service of this test.
func serveIfChild(t *testing.T, suite Suite) {
	t.Helper()
	testbed.Main(t.Name(), func(ctx context.Context, is task) error {
		nc, err := nats.Connect(is.NATS, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
		if err != nil {
			return fmt.Errorf("connect to %s: %w", is.NATS, err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return fmt.Errorf("connect to %s: %w", is.NATS, err)
		}
		return suite.Service(ctx, Env{
			AckWait: is.AckWait, JS: js, Recorder: remote{nc},
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		})
	})
}

// spawn starts the service in a separate process.
func (s *stage) spawn() (*testbed.Process, error) {
	only := strings.Split(s.role, "/")
	for i, part := range only {
		only[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	p, err := testbed.Start(s.t.Output(), s.role, task{AckWait: s.ackWait, NATS: s.srv.URL()},
		"-test.run="+strings.Join(only, "/"), "-test.count=1")
	if err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	s.clears = append(s.clears, func() { _ = p.Kill() }) // it is gone, mostly
	return p, nil
}
