package enrich

import (
	"errors"
	"net/http"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/service"
)

// Problem says what an error of this service means to a client. It is a [service.Sort].
func Problem(err error) service.Problem {
	switch {
	case errors.Is(err, ErrUnknownProvider):
		return service.Problem{Status: http.StatusBadRequest}
	case errors.Is(err, ErrUnknownRequest):
		return service.Problem{Status: http.StatusNotFound}
	case errors.Is(err, ErrTooManySubscriptions):
		return service.Problem{Status: http.StatusServiceUnavailable}
	case errors.Is(err, kvlock.ErrUnavailable):
		return service.Problem{Status: http.StatusServiceUnavailable, Detail: "the store does not answer"}
	case errors.Is(err, kvlock.ErrClosed):
		return service.Problem{Status: http.StatusServiceUnavailable, Detail: "the service is stopping"}
	}
	return service.Problem{}
}
