package httpapi

import (
	"net/http"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier/internal/desk"
)

// cancel answers DELETE /v1/events/{event}?user=...&type=...&cursor=... with the outcome for each row of the event.
func (a *api) cancel(w http.ResponseWriter, r *http.Request) error {
	v := r.URL.Query()
	done, err := a.Desk.Cancel(r.Context(), desk.Cancellation{
		Cursor: v.Get("cursor"), EventID: r.PathValue("event"), RecipientType: contracts.RecipientType(v.Get("type")), UserID: v.Get("user"),
	})
	if err != nil {
		return err
	}
	service.WriteJSON(w, http.StatusOK, done)
	return nil
}
