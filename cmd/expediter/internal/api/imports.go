package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime/multipart"
	"net/http"
	"time"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/store"
)

// Submission is a source to import.
type Submission struct {
	contracts.ImportJob

	Content []byte // the content of a file, which is then the source instead of the URL; defaults to none
	Key     string // an idempotency key: the same key of the same owner is the same job; defaults to none
	Name    string // the name of the file
}

// Submit submits a source, and reports whether the job is new.
func (c *Client) Submit(ctx context.Context, sub Submission) (job importer.Job, created bool, err error) {
	var body []byte
	kind := "application/json"
	if sub.Content == nil {
		body, err = json.Marshal(sub.ImportJob)
	} else {
		body, kind, err = sub.form()
	}
	if err != nil {
		return job, false, fmt.Errorf("imports: encode a submission: %w", err)
	}
	header := http.Header{"Content-Type": {kind}}
	if sub.Key != "" {
		header.Set("Idempotency-Key", sub.Key)
	}
	status, err := c.Do(ctx, http.MethodPost, "/v1/imports", header, body, &job)
	return job, status == http.StatusAccepted, err
}

// form encodes a submission with its file as multipart/form-data.
func (sub *Submission) form() (body []byte, contentType string, err error) {
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	for _, field := range []struct{ name, value string }{
		{"encoding", sub.Encoding},
		{"job_id", sub.JobID},
		{"language", sub.Language},
		{"owner_id", sub.OwnerID},
		{"priority", string(sub.Priority)},
		{"source_type", sub.SourceType},
	} {
		if field.value != "" {
			err = errors.Join(err, w.WriteField(field.name, field.value))
		}
	}
	part, fileErr := w.CreateFormFile("file", sub.Name)
	if fileErr != nil {
		return nil, "", errors.Join(err, fileErr)
	}
	_, fileErr = part.Write(sub.Content)
	err = errors.Join(err, fileErr, w.Close())
	return buf.Bytes(), w.FormDataContentType(), err
}

// Job returns a job. The error wraps ErrNotFound when there is no such job.
func (c *Client) Job(ctx context.Context, id string) (job importer.Job, err error) {
	_, err = c.Do(ctx, http.MethodGet, jobPath(id), nil, nil, &job)
	return job, err
}

// Cancel cancels a job and returns it.
func (c *Client) Cancel(ctx context.Context, id string) (job importer.Job, err error) {
	_, err = c.Do(ctx, http.MethodPost, jobPath(id)+"/cancel", nil, nil, &job)
	return job, err
}

// Retry starts a failed job again and returns it.
func (c *Client) Retry(ctx context.Context, id string) (job importer.Job, err error) {
	_, err = c.Do(ctx, http.MethodPost, jobPath(id)+"/retry", nil, nil, &job)
	return job, err
}

func jobPath(id string) string { return "/v1/imports/" + service.PathEscape(id) }

// Recipe returns a recipe. The error wraps ErrNotFound when there is no such recipe, and ErrNoRoute when another
// service keeps the recipes.
func (c *Client) Recipe(ctx context.Context, id string) (stored store.Stored, err error) {
	_, err = c.Do(ctx, http.MethodGet, "/v1/recipes/"+service.PathEscape(id), nil, nil, &stored)
	return stored, err
}

const (
	defaultPause    = 500 * time.Millisecond
	defaultPatience = 20 * time.Second

	// silence is the longest time without an event or a heartbeat of a stream. A heartbeat comes every 15 seconds.
	silence = time.Minute
)

// Follow calls report with the present state of the job, and again after each change, until the job has ended or report
// returns an error, which Follow returns. When the connection is lost it continues from the last event, and gives up
// when no importer answers for Patience. The error wraps ErrNotFound when there is no such job.
func (c *Client) Follow(ctx context.Context, id string, report func(importer.Job) error) error {
	f := follower{Client: c, heard: time.Now(), id: id, report: report}
	patience := cmp.Or(c.Patience, defaultPatience)
	for {
		over, err := f.stream(ctx)
		_, refused := errors.AsType[*RefusedError](err)
		switch {
		case over, refused, errors.Is(err, ErrNotFound):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("follow a job of the importer at %s: %w", c.URL, context.Cause(ctx))
		case time.Since(f.heard) > patience:
			return fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
		retry.Sleep(ctx, cmp.Or(c.Pause, defaultPause))
	}
}

type follower struct {
	*Client

	heard  time.Time
	id     string
	last   string // the id of the last event
	report func(importer.Job) error
}

// stream reads events until the connection ends, and returns the reason, or until the job has ended or report fails.
func (f *follower) stream(ctx context.Context) (over bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alarm := time.AfterFunc(silence, func() { cancel(errors.New("nothing was heard for a minute")) })
	defer alarm.Stop()
	answer, err := f.Open(ctx, jobPath(f.id)+"/events", f.last)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusNoContent { // the job had ended with the last event
		return true, nil
	}
	for e, err := range Events(answer.Body) {
		if err != nil {
			return false, err
		}
		alarm.Reset(silence)
		f.heard = time.Now()
		if e.Data == nil {
			continue
		}
		var job importer.Job
		if err := json.Unmarshal(e.Data, &job); err != nil {
			return false, fmt.Errorf("the answer of the importer at %s about a job cannot be read: %w", f.URL, err)
		}
		if err := f.report(job); err != nil || job.Status.Final() {
			return true, err
		}
		f.last = e.ID
	}
	return false, nil
}
