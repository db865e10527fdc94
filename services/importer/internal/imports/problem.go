package imports

import (
	"errors"
	"net/http"

	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
)

// Problem maps an error of this service to the problem that a client gets. It is a [service.ErrorMapper].
func Problem(err error) service.Problem {
	unusable, ok := errors.AsType[*source.Error](err)
	switch {
	case ok:
		return service.Problem{Status: http.StatusUnprocessableEntity, Code: string(unusable.Code), Detail: unusable.Message}
	case errors.Is(err, ErrUnknownJob), errors.Is(err, store.ErrNotFound):
		return service.Problem{Status: http.StatusNotFound}
	case errors.Is(err, ErrMismatch), errors.Is(err, ErrFinal), errors.Is(err, ErrNotFailed):
		return service.Problem{Status: http.StatusConflict}
	case errors.Is(err, kvrecord.ErrUnavailable):
		return service.Unavailable()
	case errors.Is(err, ErrClosed):
		return service.Problem{Status: http.StatusServiceUnavailable, Detail: "the service is stopping"}
	}
	return service.Problem{}
}
