package httpapi

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/services/importer/recipe/export"
	"github.com/expediter-io/expediter/services/importer/store"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

// list answers GET /v1/recipes?owner=...&q=...&limit=...
func (a *API) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	q := kvstore.Query{OwnerID: query.Get("owner"), Text: query.Get("q"), Limit: 100}
	var problems []contracts.FieldError
	if q.OwnerID == "" || len(q.OwnerID) > contracts.MaxID {
		problems = append(problems, contracts.FieldError{Path: "?owner", Problem: "must be the id of an owner"})
	}
	if len(q.Text) > contracts.MaxText {
		problems = append(problems, contracts.FieldError{Path: "?q", Problem: "is too long"})
	}
	if limit := query.Get("limit"); limit != "" {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 || n > kvstore.MaxList {
			problems = append(problems, contracts.FieldError{Path: "?limit", Problem: "must be 1 to " + strconv.Itoa(kvstore.MaxList)})
		}
		q.Limit = n
	}
	if len(problems) > 0 {
		return &contracts.ValidationError{Type: "query", Fields: problems}
	}
	if err := owned(r, q.OwnerID); err != nil {
		return err
	}
	list, more, err := a.Recipes.List(r.Context(), q)
	if err != nil {
		return err
	}
	if list == nil {
		list = []kvstore.Summary{}
	}
	service.WriteJSON(w, http.StatusOK, map[string]any{"recipes": list, "more": more})
	return nil
}

// recipe answers GET /v1/recipes/{recipe}, in the form that ?format names: json, schema.org or cooklang.
func (a *API) recipe(w http.ResponseWriter, r *http.Request) error {
	stored, err := a.Recipes.Get(r.Context(), r.PathValue("recipe"))
	if err == nil && !access.From(r.Context()).For(stored.OwnerID) {
		err = fmt.Errorf("%w: %.64q", store.ErrNotFound, r.PathValue("recipe"))
	}
	if err != nil {
		return err
	}
	switch format := r.URL.Query().Get("format"); format {
	case "", "json":
		service.WriteJSON(w, http.StatusOK, stored)
	case "schema.org":
		data, err := export.JSONLD(&stored.Recipe)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", export.MediaTypeJSONLD)
		_, _ = w.Write(append(data, '\n'))
	case "cooklang":
		w.Header().Set("Content-Type", export.MediaTypeCooklang)
		_, _ = w.Write(export.Cooklang(&stored.Recipe))
	default:
		return &contracts.ValidationError{Type: "query", Fields: []contracts.FieldError{
			{Path: "?format", Problem: "must be json, schema.org or cooklang"},
		}}
	}
	return nil
}
