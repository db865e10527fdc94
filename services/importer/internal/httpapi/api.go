package httpapi

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/internal/imports"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
)

// OpenAPI describes the API. It is made of openapi.yaml by `go generate` in pkg/contracts.
//
//go:embed openapi.json
var OpenAPI []byte

// api answers requests about jobs and recipes.
type api struct {
	files   *imports.Files
	jobs    *imports.Service
	recipes *store.Bucket
	router  *service.Router
	uploads *room
}

// Add adds the routes to the router. recipes is nil when another service keeps the recipes.
func Add(router *service.Router, jobs *imports.Service, files *imports.Files, recipes *store.Bucket) {
	a := &api{files: files, jobs: jobs, recipes: recipes, router: router, uploads: &room{freed: make(chan struct{}), of: map[string]int{}}}
	router.Handle("POST /v1/imports", access.Own(access.Publish), a.submit)
	router.Handle("GET /v1/imports/{job}", access.Own(access.Read), a.change(jobs.Get))
	router.HandleStream("GET /v1/imports/{job}/events", access.Own(access.Read), a.events)
	router.HandleSocket("GET /v1/imports/{job}/ws", access.Own(access.Read), a.webSocket)
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
		return contracts.Mistake("header", "Idempotency-Key", fmt.Sprintf("must have at most %d bytes", maxKey))
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

// follow subscribes to the changes of the job that a request names, after the change last, which may be empty.
func (a *api) follow(r *http.Request, last string) (*imports.Subscription, error) {
	if err := a.allowed(r); err != nil {
		return nil, err
	}
	seen, _ := strconv.ParseUint(last, 10, 64) // a change that is none counts as 0
	return a.jobs.Subscribe(r.Context(), r.PathValue("job"), seen)
}

// events answers GET /v1/imports/{job}/events with server-sent events: the job, unless Last-Event-ID names its last
// change, and again after each change. The stream ends with the job. A client that comes back after that gets 204, on
// which EventSource stops.
func (a *api) events(w http.ResponseWriter, r *http.Request) error {
	sub, err := a.follow(r, service.LastEventID(r))
	if err != nil {
		return err
	}
	defer sub.Close()
	if sub.Over() {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	stream, err := service.OpenStream(w, r, service.Retry)
	if err == nil {
		_ = service.Relay(r.Context(), stream, service.Heartbeat, sub.Next, func(u imports.Update) error {
			return stream.Event(strconv.FormatUint(u.Change, 10), "status", u.Job)
		})
	}
	return nil // the client has gone, and comes back with the id of the last event
}

// webSocket answers GET /v1/imports/{job}/ws?last_event_id=... with the events of events, one JSON object in each frame. It closes with
// 1000 when the job has ended.
func (a *api) webSocket(w http.ResponseWriter, r *http.Request) error {
	sub, err := a.follow(r, r.URL.Query().Get("last_event_id"))
	if err != nil {
		return err
	}
	defer sub.Close()
	a.router.ServeSocket(w, r, func(ctx context.Context, s *service.Socket) error {
		return service.Relay(ctx, s, service.Heartbeat, sub.Next, func(u imports.Update) error {
			return s.Frame(map[string]any{"type": "status", "id": strconv.FormatUint(u.Change, 10), "job": u.Job})
		})
	})
	return nil
}

// list answers GET /v1/recipes?owner=...&q=...&limit=...
func (a *api) list(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	q := store.Query{OwnerID: query.Get("owner"), Text: query.Get("q"), Limit: 100}
	var wrong contracts.Mistakes
	wrong.Add(q.OwnerID == "" || len(q.OwnerID) > contracts.MaxID, "?owner", "must be the id of an owner")
	wrong.Add(len(q.Text) > contracts.MaxText, "?q", "is too long")
	if limit := query.Get("limit"); limit != "" {
		n, err := strconv.Atoi(limit)
		wrong.Add(err != nil || n < 1 || n > store.MaxList, "?limit", "must be 1 to "+strconv.Itoa(store.MaxList))
		q.Limit = n
	}
	if err := wrong.In("query"); err != nil {
		return err
	}
	if err := owned(r, q.OwnerID); err != nil {
		return err
	}
	list, more, err := a.recipes.List(r.Context(), q)
	if err != nil {
		return err
	}
	service.WriteJSON(w, http.StatusOK, map[string]any{"recipes": append([]store.Summary{}, list...), "more": more})
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
		return contracts.Mistake("query", "?format", "must be json or schema.org")
	}
	return nil
}

var errFileTooLarge = fmt.Errorf("the file is over the limit of %d MiB: %w", maxFile>>20, service.ErrBodyTooLarge)

const (
	// maxFile bounds a file; a larger one is not read to its end.
	maxFile = 8 << 20

	// maxProblems bounds the mistakes that an answer repeats.
	maxProblems = 100

	formType = "multipart/form-data"
)

// isForm reports whether a request has the source in its body.
func isForm(r *http.Request) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == formType
}

// upload reads a submission with its source, and keeps the source: a form (RFC 7578) with the file in the field
// "file", and the members of a submission in fields of their names.
func (a *api) upload(w http.ResponseWriter, r *http.Request) (imports.Submission, error) {
	leave, err := a.uploads.enter(r.Context())
	if err != nil {
		return imports.Submission{}, err
	}
	defer leave()
	r.Body = http.MaxBytesReader(w, r.Body, maxFile+maxRequest)
	form, err := r.MultipartReader()
	if err != nil {
		return imports.Submission{}, errors.Join(service.ErrBody, err)
	}
	f := submissionForm{}
	if err := f.read(form); err != nil {
		return imports.Submission{}, err
	}
	if err := errors.Join(f.complete(), owned(r, f.sub.OwnerID)); err != nil {
		return imports.Submission{}, err
	}
	f.sub.URL, err = a.files.Put(r.Context(), f.sub.OwnerID, f.name, f.content)
	return f.sub, err
}

// submissionForm has the parts of a form that were read.
type submissionForm struct {
	content  []byte
	found    bool
	name     string
	problems contracts.Mistakes
	sub      imports.Submission
}

func (f *submissionForm) read(form *multipart.Reader) error {
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return uploadError(err)
		}
		if part.FormName() == "file" {
			if f.found {
				f.bad("file", "is there twice: one job has one source")
			}
			f.found, f.name = true, part.FileName()
			if f.content, err = io.ReadAll(io.LimitReader(part, maxFile+1)); err != nil {
				return uploadError(err)
			}
			continue
		}
		value, err := io.ReadAll(io.LimitReader(part, maxRequest+1))
		if err != nil {
			return uploadError(err)
		}
		f.set(part.FormName(), string(value))
	}
}

// uploadError returns the error of a form that could not be read.
func uploadError(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return errFileTooLarge
	}
	return errors.Join(service.ErrBody, err)
}

func (f *submissionForm) bad(field, problem string) {
	f.problems.Add(len(f.problems) < maxProblems, "/"+field, problem) // a form can have 100,000 fields
}

func (f *submissionForm) set(field, value string) {
	to, known := map[string]*string{
		"job_id": &f.sub.JobID, "encoding": &f.sub.Encoding, "language": &f.sub.Language, "owner_id": &f.sub.OwnerID,
		"priority": (*string)(&f.sub.Priority), "source_type": &f.sub.SourceType,
	}[field]
	if !known {
		f.bad(field[:min(len(field), 64)], "is not a field of a submission with a file")
		return
	}
	*to = value
}

// complete checks the form before its file is kept.
func (f *submissionForm) complete() error {
	switch {
	case !f.found:
		f.bad("file", "is required")
	case len(f.content) > maxFile:
		return errFileTooLarge
	case len(f.content) == 0:
		f.bad("file", "is empty")
	}
	if f.sub.SourceType == "" {
		f.sub.SourceType = source.KindOf(f.name, f.content)
	}
	if err := f.problems.In("form"); err != nil {
		return err
	}
	checked := f.sub
	checked.URL = contracts.NewFile(f.name, f.content).URL()
	return checked.Validate()
}

const (
	// uploadsAtOnce bounds the files that are in memory at a time. A named caller gets one more only while it has fewer than are free,
	// because a client may send its file slowly: one caller gets half of them, and another one gets in beside two.
	uploadsAtOnce = 8

	// uploadWait bounds the wait for room in memory. It is shorter than the time limit of an answer.
	uploadWait = 10 * time.Second
)

// room counts the files that are in memory.
type room struct {
	mu    sync.Mutex // guards the fields below
	all   int
	freed chan struct{}  // is closed when a file leaves
	of    map[string]int // counts by name of caller
}

// enter waits for room for a file of a request's caller, and reserves it until leave is called. The error matches [service.ErrBusy]
// when there is no room in time.
func (r *room) enter(ctx context.Context) (leave func(), err error) {
	caller := access.From(ctx).Name
	ctx, cancel := context.WithTimeout(ctx, uploadWait)
	defer cancel()
	for {
		entered, freed := r.try(caller)
		if entered {
			return func() { r.leave(caller) }, nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, fmt.Errorf("importer: no room for a file: %w", service.ErrBusy)
		}
	}
}

func (r *room) try(caller string) (entered bool, freed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if free := uploadsAtOnce - r.all; free == 0 || caller != "" && r.of[caller] >= free {
		return false, r.freed
	}
	r.all++
	r.of[caller]++
	return true, nil
}

func (r *room) leave(caller string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all--
	r.of[caller]--
	if r.of[caller] == 0 {
		delete(r.of, caller)
	}
	close(r.freed)
	r.freed = make(chan struct{})
}
