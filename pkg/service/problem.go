package service

import (
	"context"
	"errors"
	"net/http"

	"github.com/expediter-io/expediter/pkg/contracts"
)

var (
	// ErrBody is returned for a request whose body did not arrive.
	ErrBody = errors.New("the body could not be read")

	// ErrBodyTooLarge is returned for a request whose body is over the limit. What wraps it says which.
	ErrBodyTooLarge = errors.New("the body is over the limit")

	// ErrStopping is returned to those whose request came too late.
	ErrStopping = errors.New("the service is stopping, ask again")

	errMethod  = errors.New("not a method of this resource")
	errNoRoute = errors.New("there is no such resource")
)

// Problem is an error as RFC 9457 has it, with the failing fields and a code for programs as members of its own.
type Problem struct {
	Type   string                 `json:"type"`
	Title  string                 `json:"title"`
	Status int                    `json:"status"`
	Detail string                 `json:"detail,omitempty"`
	Code   string                 `json:"code,omitempty"`
	Errors []contracts.FieldError `json:"errors,omitempty"`
}

// Sort says what an error of a service means to a client: a problem with a status, or one without when it does not know
// the error. Detail is the error's own text unless it is set.
type Sort func(error) Problem

// Of sorts an error: the service's own first, then those that all have. What no one knows is not told to the client.
func (s Sort) Of(err error) Problem {
	var p Problem
	if s != nil {
		p = s(err)
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

func common(err error) Problem {
	invalid, ok := errors.AsType[*contracts.ValidationError](err)
	switch {
	case errors.Is(err, ErrBodyTooLarge), errors.Is(err, contracts.ErrTooLarge):
		return Problem{Status: http.StatusRequestEntityTooLarge}
	case ok:
		return Problem{Status: http.StatusBadRequest, Errors: invalid.Fields}
	case errors.Is(err, ErrBody):
		return Problem{Status: http.StatusBadRequest}
	case errors.Is(err, errMethod):
		return Problem{Status: http.StatusMethodNotAllowed}
	case errors.Is(err, errNoRoute):
		return Problem{Status: http.StatusNotFound}
	case errors.Is(err, context.DeadlineExceeded):
		return Problem{Status: http.StatusServiceUnavailable, Detail: "the store does not answer"}
	case errors.Is(err, ErrStopping), errors.Is(err, context.Canceled):
		return Problem{Status: http.StatusServiceUnavailable, Detail: "the service is stopping"}
	}
	return Problem{Status: http.StatusInternalServerError, Detail: "see the service's log"}
}
