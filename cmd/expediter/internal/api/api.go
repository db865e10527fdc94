// Package api asks running services over HTTP, and follows their event streams.
package api

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
)

const (
	// requestTimeout bounds one request, such as the upload of a file, or one that waits for the results of places.
	requestTimeout = contracts.MaxWait + 30*time.Second

	// maxAnswer bounds an answer, such as a list of recipes, and maxLine a line of an event stream, in bytes.
	maxAnswer, maxLine = 32 << 20, 1 << 20
)

var (
	// ErrBusy is an [ErrUnavailable] that may pass: the connection was lost, as servers close those that were idle for some seconds, or the
	// service answers that it cannot work now.
	ErrBusy = fmt.Errorf("%w", ErrUnavailable)

	// ErrInvalid is returned for a request whose content is wrong.
	ErrInvalid = errors.New("invalid")

	// ErrNotFound is returned when the service does not have the thing that is asked for.
	ErrNotFound = errors.New("not found")

	// ErrNoRoute is returned when the server does not have the route: it is another service, or an importer that stores its
	// recipes elsewhere.
	ErrNoRoute = errors.New("this is not known")

	// ErrUnavailable is returned when no service answers, or the service that answers cannot work.
	ErrUnavailable = errors.New("unavailable")
)

// defaultClient has no time limit: every request brings its own.
var defaultClient = &http.Client{}

// Client asks one service. Its methods may be called from several goroutines.
type Client struct {
	HTTP     *http.Client  // without a time limit; defaults to a client that all Clients share
	Key      string        // of the caller, "" for none
	Pause    time.Duration // before another request after a connection was lost; defaults to half a second
	Patience time.Duration // for which Follow asks again before it gives up; defaults to 20 seconds
	Service  string        // its name in errors
	URL      string        // its address, such as http://127.0.0.1:8005
}

// Do makes a request, whose body is JSON unless the header has another type. It decodes the answer, or copies it if into is a *[]byte. It
// returns the status, 0 without an answer. The error wraps one of this package, or is a *RefusedError.
func (c *Client) Do(ctx context.Context, method, path string, header http.Header, body []byte, into any) (status int, err error) {
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
	if raw, ok := into.(*[]byte); ok {
		*raw = data
	} else if err := json.Unmarshal(data, into); err != nil {
		return answer.StatusCode, fmt.Errorf("%w: the server at %s is no %s: %w", ErrUnavailable, c.URL, c.Service, err)
	}
	return answer.StatusCode, nil
}

// Open requests the event stream behind the event with the id last, or from its beginning. The caller closes the body of the answer, whose
// status is 204 when there are no more events. The error is as that of Do.
func (c *Client) Open(ctx context.Context, path, last string) (*http.Response, error) {
	header := http.Header{"Accept": {"text/event-stream"}}
	if last != "" {
		header.Set("Last-Event-ID", last)
	}
	answer, err := c.send(ctx, http.MethodGet, path, header, nil)
	if err != nil {
		return nil, c.silent(ctx, err)
	}
	if answer.StatusCode == http.StatusOK || answer.StatusCode == http.StatusNoContent {
		return answer, nil
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxLine))
	if err != nil {
		return nil, c.silent(ctx, err)
	}
	return nil, c.refused(answer.StatusCode, data)
}

// Event is an event of a stream, or a heartbeat, which has no data.
type Event struct {
	ID, Kind string
	Data     []byte
}

// Events yields the events of a stream as they come, each of one line, as the services write them, and then the error that ended it.
func Events(stream io.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := bufio.NewScanner(stream)
		lines.Buffer(nil, maxLine)
		var e Event
		for lines.Scan() {
			name, value, found := strings.Cut(lines.Text(), ":")
			switch value = strings.TrimPrefix(value, " "); {
			case name == "id":
				e.ID = value
			case name == "event":
				e.Kind = value
			case name == "data":
				e.Data = []byte(value)
				if !yield(e, nil) {
					return
				}
				e.Data = nil
			case name == "" && found && !yield(Event{}, nil): // a comment
				return
			}
		}
		yield(Event{}, errors.Join(errors.New("the connection was lost"), lines.Err()))
	}
}

func (c *Client) send(ctx context.Context, method, path string, header http.Header, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	maps.Copy(req.Header, header)
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
	client := *cmp.Or(c.HTTP, defaultClient)
	client.CheckRedirect = func(to *http.Request, via []*http.Request) error {
		const most = 3
		if from := req.URL; to.URL.Host != from.Host || to.URL.Scheme != from.Scheme || len(via) > most {
			return &redirectError{to.URL.Scheme + "://" + to.URL.Host + to.URL.Path} // its query may have a token
		}
		return nil
	}
	return client.Do(req)
}

// redirectError refuses a redirect to another address: http.Client would send the key to every port of the same host.
type redirectError struct{ to string }

func (e *redirectError) Error() string {
	return "redirects to another address are not followed: use " + e.to
}

// silent returns the error for a missing answer: the caller gave up, or the service is unavailable.
func (c *Client) silent(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ask the %s at %s: %w", c.Service, c.URL, context.Cause(ctx))
	}
	if reason, ok := errors.AsType[*url.Error](err); ok {
		err = reason.Err // without the URL, which would be repeated
	}
	if _, ok := errors.AsType[*redirectError](err); ok {
		return fmt.Errorf("%w: the %s at %s: %w", ErrUnavailable, c.Service, c.URL, err)
	}
	return fmt.Errorf("%w: no %s answers at %s: %w", ErrBusy, c.Service, c.URL, err)
}

func (c *Client) refused(status int, body []byte) error {
	var p service.Problem
	known := json.Unmarshal(body, &p) == nil && p.Status != 0
	p.Detail = strings.TrimPrefix(p.Detail, c.Service+": ")
	switch {
	case status == http.StatusServiceUnavailable:
		return fmt.Errorf("%w: the %s at %s answers %d: %s", ErrBusy, c.Service, c.URL, status, p.Detail)
	case !known:
		return fmt.Errorf("%w: the server at %s is no %s: HTTP %d", ErrUnavailable, c.URL, c.Service, status)
	case status == http.StatusNotFound && strings.HasPrefix(p.Detail, "there is no such resource"):
		return fmt.Errorf("%w at %s", ErrNoRoute, c.URL)
	case status == http.StatusNotFound:
		return fmt.Errorf("%w: %s", ErrNotFound, p.Detail)
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests:
		return fmt.Errorf("%w: the %s at %s answers %d: %s", ErrUnavailable, c.Service, c.URL, status, p.Detail)
	}
	return &RefusedError{Problem: p, Service: c.Service, URL: c.URL}
}

// RefusedError is returned for a request that the service did not take.
type RefusedError struct {
	Problem service.Problem // the answer

	// Service and URL are those of the client.
	Service, URL string
}

// Is reports whether the content of the request was wrong, for [ErrInvalid].
func (e *RefusedError) Is(target error) bool {
	return target == ErrInvalid && (e.Problem.Status == http.StatusBadRequest || e.Problem.Status == http.StatusUnprocessableEntity)
}

// Error implements error.
func (e *RefusedError) Error() string {
	text := e.Problem.Detail
	if len(e.Problem.Errors) > 0 {
		text = Fields(e.Problem.Errors)
	}
	return fmt.Sprintf("the %s at %s refuses: %s", e.Service, e.URL, text)
}

// Fields returns a text with the problems of a message's fields.
func Fields(errs []contracts.FieldError) string {
	const most = 10
	texts := make([]string, 0, most+1)
	for i, f := range errs {
		if i == most {
			texts = append(texts, fmt.Sprintf("and %d more", len(errs)-i))
			break
		}
		texts = append(texts, strings.TrimSpace(strings.TrimLeft(f.Path, "/?")+" "+f.Problem))
	}
	return strings.Join(texts, "; ")
}
