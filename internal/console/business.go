package console

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/expediter-io/expediter/internal/denied"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// ask asks a service over NATS, for the caller of a page. One round trip to the service.
func (r *request) ask(ctx context.Context, subject string, question, into any) error {
	service, _, _ := strings.Cut(subject, ".")
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("console: encode a question: %w", err)
	}
	msg := nats.NewMsg(subject)
	msg.Data = body
	if name := access.From(ctx).Name; name != "" {
		msg.Header.Set(audit.ActorHeader, name)
	}
	denied.Sent(ctx, subject)
	reply, err := r.c.cfg.Conn.RequestMsgWithContext(ctx, msg)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fail(http.StatusServiceUnavailable, "No %s answers. Look whether one runs, and whether this console may ask it.", service)
	case err != nil:
		return fmt.Errorf("console: ask the %s: %w", service, err)
	}
	if code := reply.Header.Get(micro.ErrorCodeHeader); code != "" {
		status, err := strconv.Atoi(code)
		if err != nil || status < http.StatusBadRequest || status >= http.StatusInternalServerError {
			status = http.StatusBadGateway
		}
		var more struct {
			Errors []contracts.FieldError `json:"errors"`
		}
		_ = json.Unmarshal(reply.Data, &more) // most have none
		said := []string{fmt.Sprintf("The %s says: %s", service, reply.Header.Get(micro.ErrorHeader))}
		for _, f := range more.Errors {
			said = append(said, fmt.Sprintf("%s %s", strings.Trim(f.Path, "?/"), f.Problem))
		}
		return fail(status, "%s.", strings.TrimSuffix(strings.Join(said, "; "), "."))
	}
	if err := json.Unmarshal(reply.Data, into); err != nil {
		return fmt.Errorf("console: answer of the %s: %w", service, err)
	}
	return nil
}

func (r *request) required(name string) (string, error) {
	value := r.PostForm.Get(name)
	if value == "" || len(value) > contracts.MaxID {
		return "", fail(http.StatusBadRequest, "The form has no %s. Nothing was done.", name)
	}
	return value, nil
}

type importJob struct {
	contracts.ImportStatus

	CreatedAt  time.Time `json:"created_at"`
	OwnerID    string    `json:"owner_id"`
	Retryable  bool      `json:"retryable"`
	Run        int       `json:"run"`
	SourceType string    `json:"source_type"`
	Title      string    `json:"title"`
	URL        string    `json:"url"`
	WaitingFor string    `json:"waiting_for"`
	Warnings   []struct {
		Text string `json:"text"`
	} `json:"warnings"`
}

// Final reports whether the import has ended.
func (j importJob) Final() bool { return j.Status.Final() }

// Source returns the source for display: a file by its name, and an address without its secrets.
func (j importJob) Source() string {
	if file, err := contracts.ParseFileURL(j.URL); err == nil {
		if file.Name == "" {
			return "a file without a name, " + base64.RawURLEncoding.EncodeToString(file.Digest[:6])
		}
		return file.Name
	}
	u, err := url.Parse(j.URL)
	if err != nil {
		return "an address that cannot be read"
	}
	return u.Redacted()
}

// Words describe the state and the progress.
func (j importJob) Words() string { return operate.ImportWords(j.ImportStatus, j.WaitingFor) }

// storedRecipe is a recipe with the source of each part, as JSON has it.
type storedRecipe struct {
	CreatedAt time.Time `json:"created_at"`
	Recipe    any       `json:"recipe"`
}

// Doubts returns the number of fields that the source does not confirm.
func (s storedRecipe) Doubts() int { return doubts(s.Recipe) }

func doubts(part any) (n int) {
	switch part := part.(type) {
	case []any:
		for _, v := range part {
			n += doubts(v)
		}
	case map[string]any:
		unverified, _ := part["unverified"].([]any)
		n = len(unverified)
		for _, v := range part {
			n += doubts(v)
		}
	}
	return n
}

// at returns the position in a video at which a step begins.
func at(seconds float64) string {
	return time.Unix(int64(seconds), 0).UTC().Format("15:04:05")
}

type importPage struct {
	ID     string
	Job    *importJob
	Recipe *storedRecipe
	Why    string // the reason that no recipe is shown
}

// addImports adds the screen of an import. A page costs two requests to the importer.
func (c *Console) addImports() {
	c.page("GET /imports", []string{"id"}, func(r *request) error {
		p := importPage{ID: r.URL.Query().Get("id")}
		if p.ID == "" {
			return r.render("imports", "Imports", p)
		}
		r.Command = operate.Shell("expediter", "import", "status", p.ID)
		if err := r.ask(r.Context(), "importer.v1.get", map[string]string{"job_id": p.ID}, &p.Job); err != nil {
			return err
		}
		if !p.Job.Final() {
			r.Live = topicTick
		}
		if p.Job.RecipeID != "" {
			if err := r.ask(r.Context(), "importer.v1.recipe", map[string]string{"recipe_id": p.Job.RecipeID}, &p.Recipe); err != nil {
				p.Recipe, p.Why = nil, err.Error()
			}
		}
		return r.render("imports", "Import "+p.ID, p)
	})
	for action, note := range map[string]string{"cancel": "The import is cancelled.", "retry": "The import starts again."} {
		c.action("POST /imports/"+action, nil, func(r *request) (deed, error) {
			id, err := r.required("id")
			do := func(ctx context.Context) (int, string, error) {
				return 1, note, r.ask(ctx, "importer.v1."+action, map[string]string{"job_id": id}, &importJob{})
			}
			return deed{
				Action: operate.Action{Do: do, Name: "import-" + action, Target: "import " + id}, To: c.href("/imports", query("id", id)),
			}, err
		})
	}
}

// lookup is the state of a place at a provider, for one description of the place.
type lookup struct {
	Attempt  int                     `json:"attempt"`
	Provider string                  `json:"provider"`
	Reason   string                  `json:"reason"`
	Result   *contracts.EnrichResult `json:"result"`
	Since    time.Time               `json:"since"`
	State    string                  `json:"state"`
	Variant  int                     `json:"variant"`
}

// Evidence is the comparison of a place with the best venue, as the matcher describes it, nil for evidence of another form.
func (l lookup) Evidence() *evidence {
	var e evidence
	if l.Result == nil || json.Unmarshal(l.Result.Evidence, &e) != nil {
		return nil
	}
	return &e
}

type evidence struct {
	Base     float64 `json:"base"`
	Features []struct {
		Contribution float64 `json:"contribution"`
		Name         string  `json:"name"`
		Value        float64 `json:"value"`
	} `json:"features"`
}

type placePage struct {
	ID      string
	Lookups []lookup `json:"lookups"`
}

// addPlaces adds the screen of a place. A page costs one request to the enricher.
func (c *Console) addPlaces() {
	c.page("GET /places", []string{"id"}, func(r *request) error {
		p := placePage{ID: r.URL.Query().Get("id")}
		if p.ID == "" {
			return r.render("places", "Places", p)
		}
		r.Command = operate.Shell("expediter", "places", p.ID)
		if err := r.ask(r.Context(), "enricher.v1.place", map[string]string{"placeId": p.ID}, &p); err != nil {
			return err
		}
		return r.render("places", "Place "+p.ID, p)
	})
}
