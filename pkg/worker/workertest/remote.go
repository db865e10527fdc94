package workertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// recordings are the calls of a Recorder by their path.
var recordings = map[string]func(r Recorder, ctx context.Context, jobID string) error{
	"reach":       Recorder.Reach,
	"record":      Recorder.Record,
	"record-once": Recorder.RecordOnce,
}

// listen offers a recorder to other processes, until closed, and returns its address.
func listen(ctx context.Context, r Recorder) (address string, closed func(), err error) {
	var lc net.ListenConfig

	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("offer the recorder: %w", err)
	}

	mux := http.NewServeMux()
	for path, call := range recordings {
		mux.HandleFunc("POST /"+path, func(w http.ResponseWriter, req *http.Request) {
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

func (r *remote) call(ctx context.Context, what, jobID string) error {
	to := r.address + "/" + what + "?job=" + url.QueryEscape(jobID)

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
