package imports

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/services/importer"
)

const (
	defaultPause    = 500 * time.Millisecond
	defaultPatience = 20 * time.Second

	// maxEvent bounds a line of the stream of events.
	maxEvent = 1 << 20

	// silence is for how long a stream may be without even a heartbeat, which comes every 15 seconds.
	silence = time.Minute
)

var (
	errLost   = errors.New("the connection was lost")
	errSilent = errors.New("nothing was heard for a minute")
)

// Follow calls told with the present state of the job, and again after each change, until the job has ended or told
// returns an error, which it returns. When the connection is lost it continues from the last event, and gives up when
// no importer answers for Patience. The error wraps ErrNotFound when there is no such job.
func (c *Client) Follow(ctx context.Context, id string, told func(importer.Job) error) error {
	f := follower{Client: c, id: id, told: told, heard: time.Now()}
	patience := cmp.Or(c.Patience, defaultPatience)
	for {
		err := f.stream(ctx)
		switch {
		case f.over || f.failed != nil:
			return f.failed
		case ctx.Err() != nil:
			return fmt.Errorf("follow a job of the importer at %s: %w", c.URL, context.Cause(ctx))
		case errors.Is(err, ErrNotFound), isRefusal(err):
			return err
		case time.Since(f.heard) > patience:
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		pause.For(ctx, cmp.Or(c.Pause, defaultPause))
	}
}

func isRefusal(err error) bool {
	_, ok := errors.AsType[*RefusedError](err)
	return ok
}

// follower is one call of Follow.
type follower struct {
	*Client

	failed error // of told
	heard  time.Time
	id     string
	last   string // the id of the last event
	over   bool
	told   func(importer.Job) error
}

// stream reads events until the connection ends, and returns why it did.
func (f *follower) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alarm := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer alarm.Stop()
	header := http.Header{"Accept": {"text/event-stream"}}
	if f.last != "" {
		header.Set("Last-Event-ID", f.last)
	}
	answer, err := f.send(ctx, http.MethodGet, jobPath(f.id)+"/events", header, nil)
	if err != nil {
		return f.silent(ctx, err)
	}
	defer answer.Body.Close()
	switch {
	case answer.StatusCode == http.StatusNoContent: // the job had ended with the last event
		f.over = true
		return nil
	case answer.StatusCode != http.StatusOK:
		data, err := io.ReadAll(io.LimitReader(answer.Body, maxEvent))
		if err != nil {
			return f.silent(ctx, err)
		}
		return f.refused(answer.StatusCode, data)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxEvent)
	var id string
	for lines.Scan() {
		alarm.Reset(silence)
		f.heard = time.Now()
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "id":
			id = string(value)
		case "data": // the importer writes one line for each event
			if err := f.event(value); err != nil || f.over {
				return err
			}
			f.last = id
		}
	}
	return errors.Join(errLost, lines.Err())
}

func (f *follower) event(data []byte) error {
	var job importer.Job
	if err := json.Unmarshal(data, &job); err != nil {
		return fmt.Errorf("the answer of the importer at %s about a job cannot be read: %w", f.URL, err)
	}
	f.failed, f.over = f.told(job), job.Status.Final()
	return f.failed
}
