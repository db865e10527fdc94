// Package imports talks to a running importer over HTTP: it submits sources, follows their imports, and reads recipes.
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
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

const (
	// requestTimeout bounds one request, such as the upload of a file.
	requestTimeout = 30 * time.Second

	// maxAnswer bounds an answer: a recipe, or a list of them.
	maxAnswer = 32 << 20
)

// defaultClient has no time limit: every request brings its own.
var defaultClient = &http.Client{}

// Client asks one importer. Its methods may be called from several goroutines.
type Client struct {
	// HTTP sends the requests. Defaults to a client that all Clients share.
	HTTP *http.Client

	// Key is the key of the caller. Defaults to none.
	Key string

	// Pause is the time before another request after a connection was lost. Defaults to half a second.
	Pause time.Duration

	// Patience is the time for which the client asks again before it gives up. Defaults to 20 seconds.
	Patience time.Duration

	// URL is the address of the importer, such as http://127.0.0.1:8005.
	URL string
}

// Submission is a source to import.
type Submission struct {
	contracts.ImportJob

	// Content is the content of a file, which is then the source instead of the URL. Defaults to none.
	Content []byte

	// Key is an idempotency key: the same key of the same owner is the same job. Defaults to none.
	Key string

	// Name is the name of the file.
	Name string
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
	status, err := c.call(ctx, http.MethodPost, "/v1/imports", header, body, &job)
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
	_, err = c.call(ctx, http.MethodGet, jobPath(id), nil, nil, &job)
	return job, err
}

// Cancel cancels a job and returns it.
func (c *Client) Cancel(ctx context.Context, id string) (job importer.Job, err error) {
	_, err = c.call(ctx, http.MethodPost, jobPath(id)+"/cancel", nil, nil, &job)
	return job, err
}

// Retry starts a failed job again and returns it.
func (c *Client) Retry(ctx context.Context, id string) (job importer.Job, err error) {
	_, err = c.call(ctx, http.MethodPost, jobPath(id)+"/retry", nil, nil, &job)
	return job, err
}

func jobPath(id string) string { return "/v1/imports/" + service.PathEscape(id) }

// Recipe returns a recipe. The error wraps ErrNotFound when there is no such recipe, and ErrNoRoute when another
// service keeps the recipes.
func (c *Client) Recipe(ctx context.Context, id string) (stored kvstore.Stored, err error) {
	_, err = c.call(ctx, http.MethodGet, "/v1/recipes/"+service.PathEscape(id), nil, nil, &stored)
	return stored, err
}

// Recipes lists recipes of an owner, the newest first, and reports whether there are more than the limit. The error
// wraps ErrNoRoute when another service keeps the recipes.
func (c *Client) Recipes(ctx context.Context, q kvstore.Query) (list []kvstore.Summary, more bool, err error) {
	query := url.Values{"owner": {q.OwnerID}}
	if q.Text != "" {
		query.Set("q", q.Text)
	}
	if q.Limit > 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	var answer struct {
		Recipes []kvstore.Summary `json:"recipes"`
		More    bool              `json:"more"`
	}
	_, err = c.call(ctx, http.MethodGet, "/v1/recipes?"+query.Encode(), nil, nil, &answer)
	return answer.Recipes, answer.More, err
}

// call makes a request and decodes its answer.
func (c *Client) call(ctx context.Context, method, path string, header http.Header, body []byte, into any) (status int, err error) {
	limit, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := c.send(limit, method, path, header, body)
	if err != nil {
		return 0, c.silent(ctx, err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return 0, c.silent(ctx, err)
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		return answer.StatusCode, c.refused(answer.StatusCode, data)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return answer.StatusCode, fmt.Errorf("%w: the server at %s is no importer: %w", ErrUnavailable, c.URL, err)
	}
	return answer.StatusCode, nil
}

func (c *Client) send(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("imports: %w", err)
	}
	maps.Copy(req.Header, header)
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	return cmp.Or(c.HTTP, defaultClient).Do(req)
}

// silent returns the error for a missing answer: the caller gave up, or the importer is unavailable.
func (c *Client) silent(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ask the importer at %s: %w", c.URL, context.Cause(ctx))
	}
	if reason, ok := errors.AsType[*url.Error](err); ok {
		err = reason.Err // without the URL, which would be repeated
	}
	return fmt.Errorf("%w: no importer answers at %s: %w", ErrUnavailable, c.URL, err)
}

// refused returns the error for an answer of the importer that is not the requested one.
func (c *Client) refused(status int, body []byte) error {
	var p service.Problem
	if json.Unmarshal(body, &p) != nil || p.Status == 0 {
		return fmt.Errorf("%w: the server at %s is no importer: HTTP %d", ErrUnavailable, c.URL, status)
	}
	switch {
	case status == http.StatusNotFound && strings.HasPrefix(p.Detail, "there is no such resource"):
		return fmt.Errorf("%w at %s", ErrNoRoute, c.URL)
	case status == http.StatusNotFound:
		return fmt.Errorf("%w: %s", ErrNotFound, strings.TrimPrefix(p.Detail, "importer: "))
	case status >= http.StatusInternalServerError:
		return fmt.Errorf("%w: the importer at %s answers %d: %s", ErrUnavailable, c.URL, status, p.Detail)
	}
	p.Detail = strings.TrimPrefix(p.Detail, "importer: ")
	return &RefusedError{Problem: p, URL: c.URL}
}

const (
	defaultPause    = 500 * time.Millisecond
	defaultPatience = 20 * time.Second

	// maxEvent bounds a line of the stream of events.
	maxEvent = 1 << 20

	// silence is the longest time without an event or a heartbeat of a stream. A heartbeat comes every 15 seconds.
	silence = time.Minute
)

var (
	errLost   = errors.New("the connection was lost")
	errSilent = errors.New("nothing was heard for a minute")
)

// Follow calls report with the present state of the job, and again after each change, until the job has ended or report
// returns an error, which Follow returns. When the connection is lost it continues from the last event, and gives up
// when no importer answers for Patience. The error wraps ErrNotFound when there is no such job.
func (c *Client) Follow(ctx context.Context, id string, report func(importer.Job) error) error {
	f := follower{Client: c, id: id, report: report, heard: time.Now()}
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

	failed error // of report
	heard  time.Time
	id     string
	last   string // the id of the last event
	over   bool
	report func(importer.Job) error
}

// stream reads events until the connection ends, and returns the reason.
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
	f.failed, f.over = f.report(job), job.Status.Final()
	return f.failed
}

var (
	// ErrNotFound is returned when the importer has no such job or recipe.
	ErrNotFound = errors.New("not found")

	// ErrNoRoute is returned when the server does not have the route: it is no importer, or an importer that stores its
	// recipes in another service.
	ErrNoRoute = errors.New("this is not known")

	// ErrUnavailable is returned when no importer answers, or the importer that answers cannot work.
	ErrUnavailable = errors.New("unavailable")
)

// RefusedError is returned for a request that the importer did not take.
type RefusedError struct {
	// Problem is the importer's answer.
	Problem service.Problem

	// URL is the address of the importer.
	URL string
}

// Error implements error.
func (e *RefusedError) Error() string {
	text := e.Problem.Detail
	if len(e.Problem.Errors) > 0 {
		fields := make([]string, len(e.Problem.Errors))
		for i, f := range e.Problem.Errors {
			fields[i] = strings.TrimPrefix(f.Path, "/") + " " + f.Problem
		}
		text = strings.Join(fields, "; ")
	}
	return fmt.Sprintf("the importer at %s refuses: %s", e.URL, text)
}
