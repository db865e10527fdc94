package httpapi

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/access"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/store"
	"github.com/expediter-io/expediter/services/importer/store/kvstore"
)

// OpenAPI describes the API. It is made of openapi.yaml by `go generate` in pkg/contracts.
//
//go:embed openapi.json
var OpenAPI []byte

// api answers requests about jobs and recipes.
type api struct {
	files   *imports.Files
	jobs    *imports.Service
	recipes *kvstore.Store
	uploads *room
}

// Add adds the routes to the router. recipes is nil when another service keeps the recipes.
func Add(router *service.Router, jobs *imports.Service, files *imports.Files, recipes *kvstore.Store) {
	a := &api{files: files, jobs: jobs, recipes: recipes, uploads: &room{freed: make(chan struct{}), of: map[string]int{}}}
	router.Handle("POST /v1/imports", access.Own(access.Publish), a.submit)
	router.Handle("GET /v1/imports/{job}", access.Own(access.Read), a.get)
	router.HandleStream("GET /v1/imports/{job}/events", access.Own(access.Read), a.events)
	router.Handle("POST /v1/imports/{job}/cancel", access.Own(access.Publish), a.change(jobs.Cancel))
	router.Handle("POST /v1/imports/{job}/retry", access.Own(access.Publish), a.change(jobs.Retry))
	if recipes != nil {
		router.Handle("GET /v1/recipes", access.Own(access.Read), a.list)
		router.Handle("GET /v1/recipes/{recipe}", access.Own(access.Read), a.recipe)
	}
	router.Handle("GET /health", access.Public(), func(w http.ResponseWriter, _ *http.Request) error {
		service.WriteJSON(w, http.StatusOK, map[string]string{"status": "healthy"})
		return nil
	})
}

// maxRequest bounds the body of a submission, which is a few ids and an address.
const maxRequest = 16 << 10

// maxKey bounds an Idempotency-Key.
const maxKey = contracts.MaxID

// submit answers POST /v1/imports: 202 for a job that is new, 200 for one that is known. The header Idempotency-Key takes
// the place of a missing job id. A form has its source in the body, see upload.
func (a *api) submit(w http.ResponseWriter, r *http.Request) error {
	read := a.decode
	if isForm(r) {
		read = a.upload
	}
	sub, err := read(w, r)
	if err != nil {
		return err
	}
	if sub.IdempotencyKey = unquote(r.Header.Get("Idempotency-Key")); len(sub.IdempotencyKey) > maxKey {
		return &contracts.ValidationError{Type: "header", Fields: []contracts.FieldError{
			{Path: "Idempotency-Key", Problem: fmt.Sprintf("must have at most %d bytes", maxKey)},
		}}
	}
	job, created, err := a.jobs.Submit(r.Context(), sub)
	if err != nil {
		return err
	}
	path := "/v1/imports/" + service.PathEscape(job.JobID)
	w.Header().Set("Location", path)
	w.Header().Set("Link", "<"+path+`/events>; rel="monitor"`)
	status := http.StatusOK
	if created {
		status = http.StatusAccepted
	}
	service.WriteJSON(w, status, job)
	return nil
}

// decode reads a submission in JSON.
func (a *api) decode(w http.ResponseWriter, r *http.Request) (imports.Submission, error) {
	body, err := service.Body(w, r, maxRequest)
	if err != nil {
		return imports.Submission{}, err
	}
	sub, err := contracts.Decode[imports.Submission](body)
	if err == nil {
		err = owned(r, sub.OwnerID)
	}
	return sub, err
}

// unquote removes the quotes of a key that is written as a structured field's string.
func unquote(key string) string {
	if len(key) > 1 && strings.HasPrefix(key, `"`) && strings.HasSuffix(key, `"`) {
		return key[1 : len(key)-1]
	}
	return key
}

// get answers GET /v1/imports/{job}.
func (a *api) get(w http.ResponseWriter, r *http.Request) error {
	return a.change(a.jobs.Get)(w, r)
}

// owned returns an error for an owner that the caller may not act for.
func owned(r *http.Request, ownerID string) error {
	if !access.From(r.Context()).For(ownerID) {
		return access.Forbidden("the owner is not the user of the key")
	}
	return nil
}

// allowed returns an error for a job that the caller may not see. One round trip for a caller that is bound to a
// user.
func (a *api) allowed(r *http.Request) error {
	if access.From(r.Context()).User == "" {
		return nil
	}
	job, err := a.jobs.Get(r.Context(), r.PathValue("job"))
	if err == nil && !access.From(r.Context()).For(job.OwnerID) {
		err = fmt.Errorf("%w: %.64q", imports.ErrUnknownJob, r.PathValue("job"))
	}
	return err
}

// change returns a handler that calls do for a job, and answers with the job that do returns.
func (a *api) change(do func(context.Context, string) (imports.Job, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := a.allowed(r); err != nil {
			return err
		}
		job, err := do(r.Context(), r.PathValue("job"))
		if err == nil {
			service.WriteJSON(w, http.StatusOK, job)
		}
		return err
	}
}

// seen returns the number of the last change that the client has received, 0 for an invalid value.
func seen(r *http.Request) uint64 {
	n, err := strconv.ParseUint(service.LastEventID(r), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// heartbeat is the time after which an idle event stream gets a comment, so that proxies keep it open.
const heartbeat = 15 * time.Second

// events answers GET /v1/imports/{job}/events with server-sent events: the job, unless Last-Event-ID names its last
// change, and again after each change. The stream ends with the job. A client that comes back after that gets 204, on
// which EventSource stops.
func (a *api) events(w http.ResponseWriter, r *http.Request) error {
	if err := a.allowed(r); err != nil {
		return err
	}
	sub, err := a.jobs.Subscribe(r.Context(), r.PathValue("job"), seen(r))
	if err != nil {
		return err
	}
	defer sub.Close()
	if sub.Over() {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	stream, err := service.OpenStream(w, r, service.Retry)
	for err == nil && !sub.Over() {
		var next imports.Update
		next, err = service.Wait(r.Context(), heartbeat, sub.Next)
		switch {
		case errors.Is(err, service.ErrIdle):
			err = stream.Heartbeat()
		case err == nil:
			err = stream.Event(strconv.FormatUint(next.Change, 10), "status", next.Job)
		}
	}
	return nil // the client has gone, and comes back with the id of the last event
}

// list answers GET /v1/recipes?owner=...&q=...&limit=...
func (a *api) list(w http.ResponseWriter, r *http.Request) error {
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
	list, more, err := a.recipes.List(r.Context(), q)
	if err != nil {
		return err
	}
	if list == nil {
		list = []kvstore.Summary{}
	}
	service.WriteJSON(w, http.StatusOK, map[string]any{"recipes": list, "more": more})
	return nil
}

// recipe answers GET /v1/recipes/{recipe}, in the form that ?format names: json or schema.org.
func (a *api) recipe(w http.ResponseWriter, r *http.Request) error {
	stored, err := a.recipes.Get(r.Context(), r.PathValue("recipe"))
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
		data, err := stored.Recipe.JSONLD()
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", recipe.MediaTypeJSONLD)
		_, _ = w.Write(data)
	default:
		return &contracts.ValidationError{Type: "query", Fields: []contracts.FieldError{
			{Path: "?format", Problem: "must be json or schema.org"},
		}}
	}
	return nil
}
