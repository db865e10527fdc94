package enrich

import (
	"errors"
	"net/http"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/service"
)

// Problem maps an error of this service to the problem that a client gets. It is a [service.ErrorMapper].
func Problem(err error) service.Problem {
	switch {
	case errors.Is(err, ErrUnknownProvider):
		return service.Problem{Status: http.StatusBadRequest}
	case errors.Is(err, ErrUnknownRequest):
		return service.Problem{Status: http.StatusNotFound}
	case errors.Is(err, ErrRequestTaken), errors.Is(err, ErrRequestFull):
		return service.Problem{Status: http.StatusConflict}
	case errors.Is(err, ErrTooManySubscriptions):
		return service.Problem{Status: http.StatusServiceUnavailable}
	case errors.Is(err, kvlock.ErrUnavailable), errors.Is(err, kvrecord.ErrUnavailable):
		return service.Unavailable()
	case errors.Is(err, kvlock.ErrClosed), errors.Is(err, kvrecord.ErrClosed):
		return service.Problem{Status: http.StatusServiceUnavailable, Detail: "the service is stopping"}
	}
	return service.Problem{}
}
