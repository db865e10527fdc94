package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
)

var (
	// ErrBody is returned for a request whose body did not arrive.
	ErrBody = errors.New("the body could not be read")

	// ErrBodyTooLarge is returned for a request whose body is over the limit. The wrapping error names the limit.
	ErrBodyTooLarge = errors.New("the body is over the limit")

	// ErrStopping is returned for a request that arrives while the service stops.
	ErrStopping = errors.New("the service is stopping, ask again")

	// errSilent is the cause of the end of a request whose answer took longer than its time.
	errSilent = fmt.Errorf("the request took too long: %w", context.DeadlineExceeded)

	errHost    = errors.New("the service does not have this host")
	errOrigin  = errors.New("pages of other origins may not do this")
	errMethod  = errors.New("not a method of this resource")
	errNoRoute = errors.New("there is no such resource")
)

// Problem is an error in the form of RFC 9457, with the failing fields and a code for programs as additional members.
type Problem struct {
	// Type is always about:blank: the status is the type, and the code tells apart what has to be.
	Type string `json:"type" jsonschema:"enum=about:blank"`
	// Title is the name of the status.
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what was wrong, and what to do.
	Detail string `json:"detail,omitempty"`
	// Code is a word for programs, where the status does not say enough. The importer has the codes of sources besides.
	Code string `json:"code,omitempty" jsonschema:"example=STORE_UNAVAILABLE,example=STORE_FULL,example=ISSUER_UNAVAILABLE"`
	// Errors are all fields that are wrong.
	Errors []contracts.FieldError `json:"errors,omitempty"`
}

// ErrorMapper maps an error of a service to the problem that a client gets. A problem without a status means that the mapper does not know
// the error. An empty Detail stands for the error's own text.
type ErrorMapper func(error) Problem

// Of maps an error: a full store, then the service's own errors, then those that all services have. The text of any other error is not
// shown to the client.
func (m ErrorMapper) Of(err error) Problem {
	var p Problem
	switch {
	case jsapi.IsFull(err):
		p = full()
	case m != nil:
		p = m(err)
	}
	if p.Status == 0 {
		p = common(err)
	}
	if p.Detail == "" {
		p.Detail = err.Error()
	}
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	return p
}

// Unavailable returns the problem of a store that does not answer. The change of the request may have been made: the client should repeat
// it.
func Unavailable() Problem {
	return Problem{Status: http.StatusServiceUnavailable, Code: "STORE_UNAVAILABLE", Detail: "the store does not answer, ask again"}
}

// full returns the problem of a store that takes no message because it is at its bound, or its account or server is at its limit. The log
// and the readiness of the service name the store.
func full() Problem {
	return Problem{
		Status: http.StatusInsufficientStorage, Code: "STORE_FULL",
		Detail: "a store of the service is full: ask again when its operator has made room",
	}
}

func common(err error) Problem {
	invalid, ok := errors.AsType[*contracts.ValidationError](err)
	quota, over := errors.AsType[*quotaError](err)
	switch {
	case over:
		return Problem{Status: http.StatusTooManyRequests, Code: quota.code}
	case errors.Is(err, ErrBusy):
		return Problem{Status: http.StatusServiceUnavailable}
	case errors.Is(err, ErrBodyTooLarge), errors.Is(err, contracts.ErrTooLarge):
		return Problem{Status: http.StatusRequestEntityTooLarge}
	case ok:
		return Problem{Status: http.StatusBadRequest, Errors: invalid.Fields}
	case errors.Is(err, access.ErrUnknown):
		return Problem{Status: http.StatusUnauthorized, Detail: access.ErrUnknown.Error()}
	case errors.Is(err, access.ErrUnavailable):
		return Problem{Status: http.StatusServiceUnavailable, Code: "ISSUER_UNAVAILABLE", Detail: access.ErrUnavailable.Error()}
	case errors.Is(err, access.ErrForbidden):
		return Problem{Status: http.StatusForbidden}
	case errors.Is(err, errHost):
		return Problem{Status: http.StatusMisdirectedRequest}
	case errors.Is(err, errOrigin):
		return Problem{Status: http.StatusForbidden}
	case errors.Is(err, ErrBody):
		return Problem{Status: http.StatusBadRequest}
	case errors.Is(err, errMethod):
		return Problem{Status: http.StatusMethodNotAllowed}
	case errors.Is(err, errNoRoute):
		return Problem{Status: http.StatusNotFound}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders),
		errors.Is(err, nats.ErrTimeout):
		return Unavailable()
	case errors.Is(err, ErrStopping), errors.Is(err, context.Canceled):
		return Problem{Status: http.StatusServiceUnavailable, Detail: "the service is stopping"}
	}
	return Problem{Status: http.StatusInternalServerError, Detail: "see the service's log"}
}
