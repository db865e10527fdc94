package httpapi

import (
	"net/http"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
)

// cancel answers DELETE /v1/events/{event}?user=...&type=...&cursor=... with the outcome for each row of the event.
func (h *handler) cancel(w http.ResponseWriter, r *http.Request) error {
	v := r.URL.Query()
	done, err := h.API.Cancel(r.Context(), api.Cancellation{
		Cursor: v.Get("cursor"), EventID: r.PathValue("event"), RecipientType: contracts.RecipientType(v.Get("type")), UserID: v.Get("user"),
	})
	if err != nil {
		return err
	}
	service.WriteJSON(w, http.StatusOK, done)
	return nil
}
