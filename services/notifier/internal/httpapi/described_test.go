package httpapi

import (
	"testing"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/servicetest"
)

func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	servicetest.Described(t, OpenAPI).Routes(t, func(r *service.Router) { Add(r, nil, nil) })
}
