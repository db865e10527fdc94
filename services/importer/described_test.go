package importer_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsotel/export"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
	importer "github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/internal/httpapi"
	"github.com/expediter-io/expediter/services/importer/internal/natsapi"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	d := servicetest.Described(t, httpapi.Docs)
	d.Routes(t, func(r *service.Router) { httpapi.Add(httpapi.Config{Recipes: &kvstore.Store{}, Router: r}) },
		"internal/httpapi", "../../pkg/service")
	d.Types(t, map[string]any{
		"Duration": recipe.Duration{}, "FieldError": contracts.FieldError{}, "Health": nil, "Ingredient": recipe.Ingredient{}, "Job": importer.Job{}, "JobRequest": nil,
		"Problem": service.Problem{}, "Recipe": recipe.Recipe{}, "RecipeList": nil, "RecipeRequest": nil, "RecipeSummary": kvstore.Summary{}, "Source": recipe.Source{},
		"Step": recipe.Step{}, "StoredRecipe": kvstore.Stored{}, "Submission": importer.Submission{}, "SubmissionForm": nil,
		"Temperature": recipe.Temperature{}, "Times": recipe.Times{}, "Warning": recipe.Warning{},
	})
}

// The job of the examples runs until it is cancelled, and has a recipe when it is tried again.
func TestEveryExampleIsAnsweredAsDescribed(t *testing.T) {
	t.Parallel()
	var asked atomic.Bool
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !asked.Swap(true) {
			<-r.Context().Done()
			return
		}
		w.Header().Set("Content-Type", "text/vtt")
		_, _ = w.Write([]byte(captions))
	}))
	t.Cleanup(site.Close)
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "importer"}))(t)
	d := servicetest.Described(t, httpapi.Docs)
	i, nc := startWatched(t, func(c *importer.Config) { c.Exports = exports })
	body := fmt.Sprintf(`{"job_id":"soup","owner_id":"ada","source_type":"captions","url":%q}`, site.URL+"/soup.vtt")
	resp, text := call(t, http.MethodPost, i.URL()+"/v1/imports", body)
	check.Require(t, resp.StatusCode == http.StatusAccepted, "%d: %s", resp.StatusCode, text)
	d.Examples(t, &http.Client{Transport: d.Transport(t, client.Transport)}, i.URL(),
		[]string{"POST /v1/imports/{job}/cancel", "POST /v1/imports/{job}/retry"}, map[string]servicetest.Case{
			"POST /v1/imports 200":              {Header: map[string]string{"Idempotency-Key": "soup-1"}},
			"POST /v1/imports 409":              {Body: `{"job_id":"soup","owner_id":"ada","url":"https://example.org/other.vtt"}`},
			"POST /v1/imports 422":              {Body: `{"owner_id":"ada","url":"https://example.org/soup","source_type":"scroll"}`},
			"POST /v1/imports/{job}/cancel 409": {}, "POST /v1/imports/{job}/retry 409": {},
		})
	d.Requests(t, nc, natsapi.Endpoints(nil, nil), "submit", "cancel")
}
