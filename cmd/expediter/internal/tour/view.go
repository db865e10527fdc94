package tour

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
)

var (
	//go:embed tour.html
	pageHTML string

	//go:embed style.css
	style []byte

	page = template.Must(template.New("page").Parse(pageHTML))
)

// policy lets the page load its own files only.
const policy = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// view is the data of the page.
type view struct {
	Console string
	Import  string
	Items   []item
	Job     *job
	Last    uint64 // the revision after which the inbox is followed
	Open    bool   // the search may change
	Places  []row
	Problem string
	Query   string
	Request string
}

// FollowRequest, FollowImport and FollowInbox return the URLs of the event streams for the parts of the page.
func (v view) FollowRequest() string { return live("request", url.Values{"id": {v.Request}}) }

func (v view) FollowImport() string { return live("import", url.Values{"id": {v.Import}}) }

func (v view) FollowInbox() string {
	return live("inbox", url.Values{"last_event_id": {strconv.FormatUint(v.Last, 10)}})
}

func live(of string, query url.Values) string { return "/live/" + of + "?" + query.Encode() }

// row is a place of a search.
type row struct {
	contracts.ProviderState

	Address, ID, Name string
}

// Label returns the state in words.
func (r row) Label() string {
	switch {
	case r.Reason == "ambiguous":
		return "several places could be it"
	case r.Reason != "":
		return "the provider does not answer"
	case r.Status == contracts.StatusNotFound:
		return "does not deliver"
	}
	return string(r.Status)
}

// job is an import with its recipe, which is nil before there is one.
type job struct {
	importer.Job

	Recipe *recipe.Recipe
}

// Steps returns the steps of an import, each with a word for its state.
func (j job) Steps() (steps [][2]string) {
	names := []string{"source", "extract", "create"}
	at := slices.Index(names, j.Step)
	if at < 0 && j.Status != contracts.ImportQueued {
		at = 0
	}
	for i, title := range []string{"read the source", "make the recipe", "keep it"} {
		state := "waits"
		switch {
		case j.Status == contracts.ImportReady, i < at:
			state = "done"
		case i == at && j.Status == contracts.ImportFailed:
			state = "failed"
		case i == at:
			state = "now"
		}
		steps = append(steps, [2]string{title, state})
	}
	return steps
}

// item is an item of the inbox.
type item struct {
	At    time.Time
	Facts [][2]string // names and values of the payload
	Title string
	State inapp.State
}

// newItem returns the view of an item, with the type of the event and the payload instead of a text.
func newItem(i inapp.Item) item {
	title := strings.ToLower(strings.ReplaceAll(i.EventType, "_", " "))
	shown := item{At: i.CreatedAt.UTC(), State: i.State, Title: strings.ToUpper(title[:1]) + title[1:]}
	var payload map[string]any
	_ = json.Unmarshal(i.Payload, &payload) // one that is no object is not shown
	for _, name := range slices.Sorted(maps.Keys(payload)) {
		shown.Facts = append(shown.Facts, [2]string{name, fmt.Sprint(payload[name])})
	}
	return shown
}

// rows returns the views of the places of a request.
func (t *tour) rows(places []api.Place) (rows []row) {
	for _, p := range places {
		rows = append(rows, t.row(p))
	}
	return rows
}

func (t *tour) row(p api.Place) row {
	shown := row{
		// The id of a place is any text, but the id of an element is not.
		ID: "place-" + audit.User(p.PlaceID), Name: strings.TrimPrefix(p.PlaceID, "typed "), ProviderState: p.Providers[contracts.ProviderWolt],
	}
	if i := slices.IndexFunc(t.places, func(r contracts.Restaurant) bool { return r.PlaceID == p.PlaceID }); i >= 0 {
		shown.Address, shown.Name = t.places[i].Address, t.places[i].Name
	}
	return shown
}

func render(w http.ResponseWriter, status int, v view) error {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
	_ = page.Execute(w, v) // the client may have gone
	return nil
}

func showStyle(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	_, _ = w.Write(style)
	return nil
}
