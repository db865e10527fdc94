package httpapi

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/services/enricher/internal/enrich"
)

var (
	errBody     = errors.New("the body could not be read")
	errTooLarge = errors.New("the body is over the limit of 1 MiB: send fewer results at a time")
)

// problem is an error as RFC 9457 has it, with the failing fields as a member of its own.
type problem struct {
	Type   string                 `json:"type"`
	Title  string                 `json:"title"`
	Status int                    `json:"status"`
	Detail string                 `json:"detail,omitempty"`
	Errors []contracts.FieldError `json:"errors,omitempty"`
}

// problemOf sorts an error into a status, and says what the client may know of it.
func problemOf(err error) problem {
	p := problem{Type: "about:blank", Detail: err.Error()}
	var invalid *contracts.ValidationError
	switch {
	case errors.Is(err, errTooLarge), errors.Is(err, contracts.ErrTooLarge):
		p.Status = http.StatusRequestEntityTooLarge
	case errors.As(err, &invalid):
		p.Status, p.Errors = http.StatusBadRequest, invalid.Fields
	case errors.Is(err, enrich.ErrUnknownProvider), errors.Is(err, errBody):
		p.Status = http.StatusBadRequest
	case errors.Is(err, enrich.ErrUnknownRequest):
		p.Status = http.StatusNotFound
	case errors.Is(err, enrich.ErrTooManySubscriptions):
		p.Status = http.StatusServiceUnavailable
	case errors.Is(err, kvlock.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		p.Status, p.Detail = http.StatusServiceUnavailable, "the store does not answer"
	case errors.Is(err, kvlock.ErrClosed), errors.Is(err, context.Canceled):
		p.Status, p.Detail = http.StatusServiceUnavailable, "the service is stopping"
	default:
		p.Status, p.Detail = http.StatusInternalServerError, "see the service's log"
	}
	p.Title = http.StatusText(p.Status)
	return p
}

// fail answers with a problem. What the client may not know is logged. A request whose context is over gets an answer
// too: the client may have gone, but the service may also be stopping.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.Status >= http.StatusInternalServerError && r.Context().Err() == nil {
		a.Logger.WarnContext(r.Context(), "enricher: request failed", "path", r.URL.Path, "status", p.Status, "error", err)
	}
	if p.Status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", retryAfter)
	}
	writeJSON(w, p.Status, "application/problem+json", p)
}

// pathEscape makes any id one segment of a path. Dots alone would be taken for the way to another folder.
func pathEscape(id string) string {
	if id == "." || id == ".." {
		return strings.ReplaceAll(id, ".", "%2E")
	}
	return url.PathEscape(id)
}

func sortedKeys(m map[string]error) []string { return slices.Sorted(maps.Keys(m)) }
