package httpapi

import (
	"net/http"

	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
)

// maxName bounds the body of a request that names an endpoint.
const maxName = 4 << 10

// endpoints answers GET /v1/endpoints?channel=...&state=...&limit=...&cursor=... with the endpoints that fail.
func (h *handler) endpoints(w http.ResponseWriter, r *http.Request) error {
	v := r.URL.Query()
	q := api.EndpointQuery{Channel: v.Get("channel"), Cursor: v.Get("cursor"), State: health.State(v.Get("state"))}
	var err error
	if q.Limit, err = limit(r, api.MaxLimit); err != nil {
		return err
	}
	page, err := h.API.Endpoints(r.Context(), q)
	if err != nil {
		return err
	}
	service.WriteJSON(w, http.StatusOK, page)
	return nil
}

// enable answers POST /v1/endpoints/enable with the state of the endpoint before it was enabled.
func (h *handler) enable(w http.ResponseWriter, r *http.Request) error {
	body, err := service.Body(w, r, maxName)
	if err != nil {
		return err
	}
	was, err := h.API.Enable(r.Context(), body)
	if err != nil {
		return err
	}
	service.WriteJSON(w, http.StatusOK, was)
	return nil
}
