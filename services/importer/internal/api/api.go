// Package api has the operations of the importer: imports, their events as SSE and over WebSocket, recipes, and over NATS (ADR-32)
// for programs that have a connection and for the nats command line. Instances of one name share the requests over NATS.
package api

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/store"
)

//go:generate go test -run ^TestDescriptionIsCurrent$ . -update

// OpenAPI describes the operations.
//
//go:embed openapi.json
var OpenAPI []byte

// api answers requests about jobs and recipes.
type api struct {
	files   *imports.Files
	jobs    *imports.Service
	recipes *store.Bucket
	uploads *room
}

const (
	// maxRequest bounds the body of a submission, which is a few ids and an address.
	maxRequest = 16 << 10

	// maxKey bounds an Idempotency-Key.
	maxKey = contracts.MaxID
)

// Operations returns the operations of the importer. recipes is nil when another service keeps the recipes.
func Operations(jobs *imports.Service, files *imports.Files, recipes *store.Bucket) []service.Op {
	a := &api{files: files, jobs: jobs, recipes: recipes, uploads: &room{freed: make(chan struct{}), of: map[string]int{}}}
	return append(append(a.ofJobs(), a.follows()...), a.ofRecipes()...)
}

func (a *api) ofJobs() []service.Op {
	get := service.Op{
		Name: "getImport", Route: "GET /v1/imports/{job}", Subject: "importer.v1.get", Need: access.Own(access.Read), Tag: "imports",
		Summary: "Returns a job.", Good: map[int]string{http.StatusOK: "The job."}, Bad: []int{http.StatusNotFound},
	}
	cancel := get
	cancel.Name, cancel.Route, cancel.Subject = "cancelImport", "POST /v1/imports/{job}/cancel", "importer.v1.cancel"
	cancel.Need, cancel.Summary, cancel.Bad = access.Own(access.Publish), "Ends a job.", []int{http.StatusNotFound, http.StatusConflict}
	retry := cancel
	retry.Name, retry.Route, retry.Subject = "retryImport", "POST /v1/imports/{job}/retry", "importer.v1.retry"
	retry.Summary = "Retries a job that has failed."
	submit := service.NewOp(service.Op{
		Name: "submitImport", Route: "POST /v1/imports", Subject: "importer.v1.submit", Need: access.Own(access.Publish), MaxBody: maxRequest,
		Tag: "imports", Summary: "Submits a job, with the address of its source or the source itself.",
		Takes: map[string]any{"application/json": imports.Submission{}, formType: service.Schema("SubmissionForm")},
		Example: map[string]string{
			"application/json": `{"owner_id":"ada","url":"https://example.org/soup.vtt","source_type":"captions"}`,
			formType: `{"file":"WEBVTT\n\n00:01.000 --> 00:04.000\nBoil 500 g of potatoes.\n","owner_id":"ada",` +
				`"source_type":"captions"}`,
		},
		Gives: map[string]any{"application/json": imports.Job{}},
		Good:  map[int]string{http.StatusOK: "The job is known.", http.StatusAccepted: "The job is new."},
		Headers: map[string]string{
			"Location": "The job.", "Link": `The events of the job (rel="monitor").`,
		},
		Bad: []int{http.StatusConflict, http.StatusUnprocessableEntity},
	}, a.submit).WithMedia(formType, a.upload)
	return []service.Op{
		submit, service.NewOp(get, a.change(a.jobs.Get)), service.NewOp(cancel, a.change(a.jobs.Cancel)),
		service.NewOp(retry, a.change(a.jobs.Retry)),
		service.NewOp(service.Op{
			Name: "getHealth", Route: "GET /health", Need: access.Public(), Tag: "operations",
			Summary: "Reports whether the process runs, for probes that want JSON.", Good: map[int]string{http.StatusOK: "The process runs."},
		}, func(context.Context, struct{}) (Health, error) { return Health{"healthy"}, nil }),
	}
}

func (a *api) follows() []service.Op {
	events := service.Op{
		Name: "followImport", Route: "GET /v1/imports/{job}/events", Need: access.Own(access.Read), Tag: "imports",
		Summary: "Sends the changes of a job as server-sent events.",
		Description: "The job, unless Last-Event-ID names its last change, and again after each change, as events of the name status. The " +
			"stream ends with the job.",
		Gives: map[string]any{"text/event-stream": imports.Job{}},
		Good: map[int]string{
			http.StatusOK: "The data of each event.", http.StatusNoContent: "The client has seen the end, and need not come back.",
		},
		Bad: []int{http.StatusNotFound},
	}
	socket := events
	socket.Name, socket.Route = "followImportBySocket", "GET /v1/imports/{job}/ws"
	socket.Summary = "Sends the changes of a job over WebSocket."
	socket.Description = "The events of the event stream, each as one JSON object in a frame. The connection closes with 1000 when the job " +
		"has ended, and with 1001 when the client should reconnect with the id of its last frame."
	socket.Good = map[int]string{http.StatusSwitchingProtocols: "The frames, see Frame."}
	return service.Follow(events, socket, a.follow,
		func(u imports.Update) service.Event { return service.Event{ID: idOf(u), Type: typeStatus, Body: u.Job} },
		func(u imports.Update, _ bool) []Frame { return []Frame{{Type: typeStatus, ID: idOf(u), Job: u.Job}} })
}

func (a *api) ofRecipes() []service.Op {
	get := service.Op{
		Name: "getRecipe", Route: "GET /v1/recipes/{recipe}", Subject: "importer.v1.recipe", Need: access.Own(access.Read), Tag: "recipes",
		Summary: "Returns a recipe.", Good: map[int]string{http.StatusOK: "The recipe in the requested form."},
		Gives: map[string]any{"application/json": store.Stored{}, recipe.MediaTypeJSONLD: map[string]any{}},
		Bad:   []int{http.StatusBadRequest, http.StatusNotFound},
	}
	if a.recipes == nil { // the answer over NATS says that another service keeps the recipes
		get.Route = ""
		return []service.Op{service.NewOp(get, a.recipe)}
	}
	return []service.Op{service.NewOp(get, a.recipe), service.NewOp(service.Op{
		Name: "listRecipes", Route: "GET /v1/recipes", Need: access.Own(access.Read), Tag: "recipes", Summary: "Lists the recipes of an owner.",
		Description: "Only a service that keeps the recipes itself has this route.",
		Good:        map[int]string{http.StatusOK: "The newest recipes first."}, Bad: []int{http.StatusBadRequest},
	}, a.list)}
}

// Health is the answer to a probe.
type Health struct {
	Status string `json:"status" jsonschema:"enum=healthy"`
}

// submitted is the answer to a submission.
type submitted struct {
	imports.Job

	created bool
}

// HTTP implements [service.Answer].
func (s submitted) HTTP(header http.Header) (status int, body any) {
	path := "/v1/imports/" + service.PathEscape(s.JobID)
	header.Set("Location", path)
	header.Set("Link", "<"+path+`/events>; rel="monitor"`)
	if s.created {
		return http.StatusAccepted, s
	}
	return http.StatusOK, s
}

// submit takes a job: 202 for a job that is new, 200 for one that is known. The header Idempotency-Key takes the place of a
// missing job id.
func (a *api) submit(ctx context.Context, sub imports.Submission) (submitted, error) {
	if err := owned(ctx, sub.OwnerID); err != nil {
		return submitted{}, err
	}
	if sub.IdempotencyKey = unquote(sub.IdempotencyKey); len(sub.IdempotencyKey) > maxKey {
		return submitted{}, contracts.Mistake("header", "Idempotency-Key", fmt.Sprintf("must have at most %d bytes", maxKey))
	}
	job, created, err := a.jobs.Submit(ctx, sub)
	return submitted{job, created}, err
}

// unquote removes the quotes of a key that is written as a structured field's string.
func unquote(key string) string {
	if len(key) > 1 && strings.HasPrefix(key, `"`) && strings.HasSuffix(key, `"`) {
		return key[1 : len(key)-1]
	}
	return key
}

// isOwn reports whether the caller may act for an owner. Callers over NATS are operators.
func isOwn(ctx context.Context, ownerID string) bool {
	user := access.From(ctx).User
	return user == "" || user == ownerID
}

// owned returns an error for an owner that the caller may not act for.
func owned(ctx context.Context, ownerID string) error {
	if !isOwn(ctx, ownerID) {
		return access.Forbidden("the owner is not the user of the key")
	}
	return nil
}

// allowed returns an error for a job that the caller may not see. One round trip for a caller that is bound to a
// user.
func (a *api) allowed(ctx context.Context, jobID string) error {
	if access.From(ctx).User == "" {
		return nil
	}
	job, err := a.jobs.Get(ctx, jobID)
	if err == nil && !isOwn(ctx, job.OwnerID) {
		err = fmt.Errorf("%w: %.64q", imports.ErrUnknownJob, jobID)
	}
	return err
}

// ByID names a job.
type ByID struct {
	// JobID is the id of the job.
	JobID string `example:"soup" json:"job_id" jsonschema:"maxLength=320" path:"job"`
}

// change returns a handler that calls do for a job, and answers with the job that do returns.
func (a *api) change(do func(context.Context, string) (imports.Job, error)) func(context.Context, ByID) (imports.Job, error) {
	return func(ctx context.Context, r ByID) (imports.Job, error) {
		if err := a.allowed(ctx, r.JobID); err != nil {
			return imports.Job{}, err
		}
		return do(ctx, r.JobID)
	}
}

const typeStatus = "status"

// Frame is a change of a job, as a frame of the WebSocket.
type Frame struct {
	Type string `json:"type" jsonschema:"enum=status"`

	// ID identifies the state of the job, for last_event_id.
	ID string `json:"id"`

	Job imports.Job `json:"job"`
}

func idOf(u imports.Update) string { return strconv.FormatUint(u.Change, 10) }

// follow subscribes to the changes of a job after the change last, which may be empty.
func (a *api) follow(ctx context.Context, r ByID, last string) (service.Feed[imports.Update], error) {
	if err := a.allowed(ctx, r.JobID); err != nil {
		return nil, err
	}
	seen, _ := strconv.ParseUint(last, 10, 64) // a change that is none counts as 0
	sub, err := a.jobs.Subscribe(ctx, r.JobID, seen)
	if err != nil {
		return nil, err
	}
	return sub, nil
}

// RecipeQuery selects recipes.
type RecipeQuery struct {
	// Owner is the id of the owner.
	Owner string `example:"ada" jsonschema:"maxLength=320" query:"owner" required:"true"`

	// Text is words that the title or the ingredients contain, all of them.
	Text string `example:"soup" jsonschema:"maxLength=1024" query:"q"`

	// Limit is the largest number of recipes.
	Limit int `example:"10" jsonschema:"minimum=1,maximum=1000,default=100" query:"limit"`
}

// RecipeList has recipes of an owner.
type RecipeList struct {
	Recipes []store.Summary `json:"recipes"`

	// More reports whether there are more than the limit.
	More bool `json:"more"`
}

func (a *api) list(ctx context.Context, r RecipeQuery) (RecipeList, error) {
	var wrong contracts.Mistakes
	wrong.Add(len(r.Owner) > contracts.MaxID, "?owner", "must be the id of an owner")
	wrong.Add(len(r.Text) > contracts.MaxText, "?q", "is too long")
	if err := wrong.In("query"); err != nil {
		return RecipeList{}, err
	}
	if err := owned(ctx, r.Owner); err != nil {
		return RecipeList{}, err
	}
	list, more, err := a.recipes.List(ctx, store.Query{OwnerID: r.Owner, Text: r.Text, Limit: cmp.Or(r.Limit, 100)})
	return RecipeList{Recipes: append([]store.Summary{}, list...), More: more}, err
}

// RecipeRequest names a recipe.
type RecipeRequest struct {
	// RecipeID is the id of the recipe.
	RecipeID string `example:"7e05da03-189a-5154-9802-de5ec980ac2b" json:"recipe_id" path:"recipe"`

	// Format is the form of the recipe.
	Format string `example:"schema.org" json:"-" jsonschema:"enum=json,enum=schema.org,default=json" query:"format"`
}

// recipeAnswer is a recipe, as JSON-LD if the request wants that.
type recipeAnswer struct {
	store.Stored

	ld []byte
}

// HTTP implements [service.Answer].
func (a recipeAnswer) HTTP(http.Header) (status int, body any) {
	if a.ld != nil {
		return http.StatusOK, service.Text{Media: recipe.MediaTypeJSONLD, Data: a.ld}
	}
	return http.StatusOK, a
}

// recipe answers with a recipe and its source.
func (a *api) recipe(ctx context.Context, r RecipeRequest) (answer recipeAnswer, err error) {
	if a.recipes == nil {
		return answer, fmt.Errorf("%w here: another service keeps the recipes", store.ErrNotFound)
	}
	answer.Stored, err = a.recipes.Get(ctx, r.RecipeID)
	if err == nil && !isOwn(ctx, answer.OwnerID) {
		err = fmt.Errorf("%w: %.64q", store.ErrNotFound, r.RecipeID)
	}
	if err != nil {
		return answer, err
	}
	switch r.Format {
	case "", "json":
	case "schema.org":
		answer.ld, err = answer.Recipe.JSONLD()
	default:
		err = contracts.Mistake("query", "?format", "must be json or schema.org")
	}
	return answer, err
}
