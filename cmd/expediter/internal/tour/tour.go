// Package tour has the page that a newcomer sees first: a search whose PENDING places turn into links, the import of a pasted recipe,
// and an inbox in which a notification arrives. Each part follows the event stream of its service. The page repeats each event as HTML
// under the service's event id, so that a browser that reconnects continues after the last one.
package tour

import (
	"context"
	"crypto/rand"
	_ "embed" // the page
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

const (
	// maxFound is the number of places that a search shows, and maxItems the number of items of the inbox that are
	// shown.
	maxFound, maxItems = 12, 5

	// maxComplete is the number of complete answers that can be loaded again.
	maxComplete = 100

	// maxForm bounds a pasted text, in bytes.
	maxForm = 256 << 10

	// maxTitle bounds the first line of a text, which is its title.
	maxTitle = 100

	// owner owns the recipes, staff is the user with the inbox, and guest is the user that asks for tables.
	owner, staff, guest = "me", "ada", "carla"
)

// Config configures the page. All fields are required.
type Config struct {
	Console string // the path of the console, such as /console; the page uses the console's scripts

	// Enricher, Importer and Notifier are the URLs of the services.
	Enricher, Importer, Notifier string
}

// tour answers the requests of the page.
type tour struct {
	console string

	enricher, importer, notifier *api.Client

	places []contracts.Restaurant
	texts  map[string]string // the searched words of places, by place id

	mu       sync.Mutex // guards complete
	complete []search   // the last searches that were answered in full at once: the enricher keeps no record of them
}

// search is the answer to a search.
type search struct {
	request string
	places  []row
}

// Add adds the routes of the page to a router.
func Add(router *service.Router, cfg Config) error {
	s, err := pipeline.Load()
	if err != nil {
		return err
	}
	client := &http.Client{}
	t := &tour{
		console: cfg.Console, enricher: &api.Client{HTTP: client, Service: "enricher", URL: cfg.Enricher},
		importer: &api.Client{HTTP: client, Service: "importer", URL: cfg.Importer},
		notifier: &api.Client{HTTP: client, Service: "notifier", URL: cfg.Notifier}, places: s.Places, texts: map[string]string{},
	}
	for _, p := range s.Places {
		t.texts[p.PlaceID] = strings.ToLower(strings.Join([]string{p.Name, p.Address, p.CityText}, " "))
	}
	for i, r := range s.Requests {
		for _, p := range r.Results {
			t.texts[p.PlaceID] += " " + s.Queries[i]
		}
	}
	router.Handle("GET /{$}", access.All(access.Read), t.show)
	router.Handle("GET /tour.css", access.Public(), showStyle)
	router.Handle("POST /search", access.All(access.Publish), t.form(t.search))
	router.Handle("POST /import", access.All(access.Publish), t.form(t.paste))
	router.Handle("POST /ask", access.All(access.Publish), t.form(t.ask))
	router.HandleStream("GET /live/request", access.All(access.Read), t.followRequest)
	router.HandleStream("GET /live/import", access.All(access.Read), t.followImport)
	router.HandleStream("GET /live/inbox", access.All(access.Read), t.followInbox)
	return nil
}

// form answers a form by redirecting to the page with the query that do returns.
func (t *tour) form(do func(*http.Request) (url.Values, error)) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			return errors.Join(service.ErrBody, err)
		}
		next, err := do(r)
		if err != nil {
			return render(w, http.StatusBadGateway, view{Console: t.console, Problem: err.Error()})
		}
		http.Redirect(w, r, "/?"+next.Encode(), http.StatusSeeOther)
		return nil
	}
}

// search asks the enricher for the places that a search finds.
func (t *tour) search(r *http.Request) (url.Values, error) {
	query := r.PostForm.Get("q")
	req := contracts.EnrichRequest{RequestID: "tour-" + rand.Text(), Results: t.find(query)}
	next := url.Values{"q": {query}, "request": {req.RequestID}}
	answer, err := t.enricher.Enrich(r.Context(), req)
	if err == nil && answer.Pending == 0 {
		t.keep(answer)
	}
	return next, err
}

// keep keeps a complete answer for the page that the search redirects to.
func (t *tour) keep(answer contracts.EnrichResponse) {
	done := search{request: answer.RequestID}
	for _, r := range answer.Results {
		state, _ := r.State(contracts.ProviderWolt)
		place := api.Place{PlaceID: r.PlaceID, Providers: map[string]contracts.ProviderState{contracts.ProviderWolt: state}}
		done.places = append(done.places, t.row(place))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.complete = append(t.complete[max(0, len(t.complete)+1-maxComplete):], done)
}

// kept returns the places of a search that was answered in full at once.
func (t *tour) kept(request string) []row {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.IndexFunc(t.complete, func(s search) bool { return s.request == request }); i >= 0 {
		return t.complete[i].places
	}
	return nil
}

// find returns the places of the sample that have all words of a query, or else a new place with that name.
func (t *tour) find(query string) (places []contracts.Restaurant) {
	words := strings.Fields(strings.ToLower(query))
	for _, p := range t.places {
		absent := slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(t.texts[p.PlaceID], word) })
		if !absent && len(places) < maxFound {
			places = append(places, p)
		}
	}
	if len(places) == 0 {
		places = append(places, contracts.Restaurant{Name: query, PlaceID: "typed " + strings.Join(words, " ")})
	}
	return places
}

// paste submits an address or a text to the importer.
func (t *tour) paste(r *http.Request) (url.Values, error) {
	source := strings.TrimSpace(r.PostForm.Get("source"))
	sub := api.Submission{ImportJob: contracts.ImportJob{OwnerID: owner}}
	if u, err := url.Parse(source); err == nil && (u.Scheme == "https" || u.Scheme == "http") {
		sub.URL = source
	} else {
		sub.Content, sub.Name = []byte(source), "Recipe.txt"
		if title, rest, more := strings.Cut(source, "\n"); more && len(title) <= maxTitle {
			sub.Content, sub.Name = []byte(rest), strings.TrimSpace(title)+".txt" // a text has no other place for its title
		}
	}
	job, _, err := t.importer.Submit(r.Context(), sub)
	return url.Values{"import": {job.JobID}}, err
}

// ask publishes a guest's request for a table, which notifies the staff.
func (t *tour) ask(r *http.Request) (url.Values, error) {
	guests, err := strconv.Atoi(r.PostForm.Get("guests"))
	if err != nil || guests < 1 {
		return nil, errors.New("the number of guests must be 1 or more")
	}
	payload, _ := json.Marshal(map[string]any{"guests": guests, "name": r.PostForm.Get("name")})
	e := recipient.Event{
		EventID: "tour-" + rand.Text(), EventType: "RESERVATION_REQUESTED", AggregateType: pipeline.Restaurant.Type,
		RestaurantID: json.RawMessage(pipeline.Restaurant.ID), UserID: guest,
		Payload: payload,
	}
	body, err := json.Marshal(e)
	if err == nil {
		_, err = t.notifier.Do(r.Context(), http.MethodPost, "/v1/events", nil, body, &[]byte{})
	}
	return url.Values{}, err
}

// show answers GET /, with the search or the import that its query names.
func (t *tour) show(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	v := view{Console: t.console, Query: q.Get("q"), Request: q.Get("request"), Import: q.Get("import")}
	var problems []error
	if v.Places = t.kept(v.Request); v.Places == nil && v.Request != "" {
		v.Open = true
		var s struct {
			Places []api.Place `json:"places"`
		}
		_, err := t.enricher.Do(r.Context(), http.MethodGet, "/v1/requests/"+service.PathEscape(v.Request), nil, nil, &s)
		problems = append(problems, err)
		v.Places = t.rows(s.Places)
	}
	if v.Import != "" {
		job, err := t.importer.Job(r.Context(), v.Import)
		if err == nil {
			v.Job, err = t.job(r.Context(), job)
		}
		problems = append(problems, err)
	}
	var err error
	v.Items, v.Last, err = t.inbox(r.Context())
	status := http.StatusOK
	if err = errors.Join(append(problems, err)...); err != nil {
		v.Problem, status = err.Error(), http.StatusBadGateway
	}
	return render(w, status, v)
}

// inbox returns the newest items of the staff, and the revision of the last changed item.
func (t *tour) inbox(ctx context.Context) (items []item, last uint64, err error) {
	var list struct {
		Items []inapp.Item `json:"items"`
	}
	_, err = t.notifier.Do(ctx, http.MethodGet, "/v1/users/"+staff+"/inbox?limit="+strconv.Itoa(maxItems), nil, nil, &list)
	for _, i := range list.Items {
		items, last = append(items, newItem(i)), max(last, i.Revision)
	}
	return items, last, err
}

// job returns the view of a job, with its recipe when there is one.
func (t *tour) job(ctx context.Context, j importer.Job) (*job, error) {
	shown := &job{Job: j}
	if j.Status != contracts.ImportReady {
		return shown, nil
	}
	stored, err := t.importer.Recipe(ctx, j.RecipeID)
	shown.Recipe = &stored.Recipe
	return shown, err
}
