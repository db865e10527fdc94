package workertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
)

// recordings are the calls of a Recorder by their path.
var recordings = map[string]func(r Recorder, ctx context.Context, jobID string) error{
	"reach":       Recorder.Reach,
	"record":      Recorder.Record,
	"record-once": Recorder.RecordOnce,
}

// listen offers a recorder to other processes until closed is called, and returns its address.
func listen(ctx context.Context, r Recorder) (address string, closed func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("offer the recorder: %w", err)
	}
	mux := http.NewServeMux()
	for name, call := range recordings {
		mux.HandleFunc("POST /"+name, func(w http.ResponseWriter, req *http.Request) {
			if err := call(r, req.Context(), req.URL.Query().Get("job")); err != nil {
				http.Error(w, err.Error(), http.StatusConflict)
			}
		})
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) //nolint:errcheck // it is closed
	}()
	return "http://" + l.Addr().String(), func() {
		_ = server.Close() //nolint:errcheck // nobody is left to tell
		<-done
	}, nil
}

// remote is a recorder in another process.
type remote struct {
	address string
	client  *http.Client
}

func newRemote(address string) *remote {
	return &remote{address: address, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}}
}

// Record implements Recorder.
func (r *remote) Record(ctx context.Context, jobID string) error { return r.call(ctx, "record", jobID) }

// RecordOnce implements Recorder.
func (r *remote) RecordOnce(ctx context.Context, jobID string) error {
	return r.call(ctx, "record-once", jobID)
}

// Reach implements Recorder.
func (r *remote) Reach(ctx context.Context, jobID string) error { return r.call(ctx, "reach", jobID) }

func (r *remote) call(ctx context.Context, method, jobID string) error {
	to := r.address + "/" + method + "?job=" + url.QueryEscape(jobID)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, http.NoBody) //nolint:gosec // the suite has said where
	if err != nil {
		return fmt.Errorf("workertest: %w", err)
	}
	resp, err := r.client.Do(req) //nolint:gosec // the suite has said where
	if err != nil {
		return fmt.Errorf("workertest: the recorder does not answer: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode == http.StatusOK {
		return err //nolint:wrapcheck // nil, as a rule
	}
	if strings.HasPrefix(string(text), ErrRefused.Error()) {
		return fmt.Errorf("%w: %s", ErrRefused, jobID)
	}
	return errors.New(strings.TrimSpace(string(text)))
}

// task is the input of a service in a process of its own.
type task struct {
	AckWait  time.Duration
	NATS     string
	Recorder string
}

// role returns the role of the services of a test: the name of the test without that of the scenario.
func role(t *testing.T) string {
	t.Helper()
	return path.Dir(t.Name())
}

// serveIfChild runs the service and ends the process, if the process was started to be the service of this test.
func serveIfChild(t *testing.T, suite Suite) {
	t.Helper()
	child.Main(t.Name(), func(ctx context.Context, is task) error {
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
			AckWait: is.AckWait, JS: js, Recorder: newRemote(is.Recorder),
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		})
	})
}

// offer makes the recorder available to other processes.
func (s *stage) offer() (address string, err error) {
	address, closed, err := listen(s.ctx, s.recorder)
	if err == nil {
		s.clears = append(s.clears, closed)
	}
	return address, err
}

// spawn starts the service in a process of its own.
func (s *stage) spawn(recorder string) (*child.Process, error) {
	only := strings.Split(s.role, "/")
	for i, part := range only {
		only[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	p, err := child.Start(s.t.Output(), s.role, task{AckWait: s.ackWait, NATS: s.srv.URL(), Recorder: recorder},
		"-test.run="+strings.Join(only, "/"), "-test.count=1")
	if err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	s.clears = append(s.clears, func() { _ = p.Kill() }) //nolint:errcheck // it is gone, mostly
	return p, nil
}
