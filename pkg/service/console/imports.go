package console

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/url"
	"strings"
	"time"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// importJob is an import as the importer describes it.
type importJob struct {
	contracts.ImportStatus

	CreatedAt    time.Time `json:"created_at"`
	Language     string    `json:"language"`
	OwnerID      string    `json:"owner_id"`
	Priority     string    `json:"priority"`
	Retryable    bool      `json:"retryable"`
	Run          int       `json:"run"`
	SourceType   string    `json:"source_type"`
	Title        string    `json:"title"`
	URL          string    `json:"url"`
	WaitingFor   string    `json:"waiting_for"`
	WaitingSince time.Time `json:"waiting_since"`
	Warnings     []warning `json:"warnings"`
}

type warning struct {
	Code string `json:"code"`
	Text string `json:"text"`
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
func (j importJob) Words() string {
	switch {
	case j.Status == contracts.ImportQueued:
		return "waits for a worker"
	case j.Status == contracts.ImportReady:
		return "ready: there is a recipe"
	case j.Status == contracts.ImportFailed:
		return "failed (" + strings.ReplaceAll(strings.ToLower(string(j.Code)), "_", " ") + "): " + j.Error
	case j.WaitingFor != "":
		return "waits for " + j.WaitingFor + ": " + j.Error
	case j.Error != "":
		return "failed, will be tried again: " + j.Error
	}
	return cmp.Or(map[string]string{"extract": "makes the recipe", "create": "keeps the recipe"}[j.Step], "reads the source")
}

// storedRecipe is a recipe with the source of each part.
type storedRecipe struct {
	CreatedAt time.Time `json:"created_at"`
	Recipe    struct {
		Ingredients []struct {
			Item       string   `json:"item"`
			Note       string   `json:"note"`
			Qty        string   `json:"qty"`
			Raw        string   `json:"raw"`
			Unit       string   `json:"unit"`
			Unverified []string `json:"unverified"`
		} `json:"ingredients"`
		Language string `json:"language"`
		Servings string `json:"servings"`
		Source   struct {
			Extractor string `json:"extractor"`
		} `json:"source"`
		Steps []struct {
			Text         string         `json:"text"`
			Temperatures []evidenceText `json:"temperatures"`
			Times        []evidenceText `json:"times"`
			Timestamp    *float64       `json:"timestamp_sec"`
			Unverified   []string       `json:"unverified"`
		} `json:"steps"`
		Title      string   `json:"title"`
		Unverified []string `json:"unverified"`
	} `json:"recipe"`
}

type evidenceText struct {
	Raw string `json:"raw"`
}

// Doubts returns the number of fields that the source does not confirm.
func (s storedRecipe) Doubts() int {
	n := len(s.Recipe.Unverified)
	for _, i := range s.Recipe.Ingredients {
		n += len(i.Unverified)
	}
	for _, step := range s.Recipe.Steps {
		n += len(step.Unverified)
	}
	return n
}

// at returns the position in a video at which a step begins.
func at(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	return time.Unix(int64(*seconds), 0).UTC().Format("15:04:05")
}

// importPage is the data of the screen.
type importPage struct {
	ID     string
	Job    *importJob
	Recipe *storedRecipe
	Why    string // the reason that no recipe is shown
}

// addImports adds the screen of an import. A page costs two requests to the importer.
func (c *Console) addImports() {
	c.page("GET /imports", func(r *request) error {
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
		c.action("POST /imports/"+action, "import-"+action, func(r *request) (deed, error) {
			id, err := r.required("id")
			return deed{
				Do: func(ctx context.Context) (int, error) {
					return 1, r.ask(ctx, "importer.v1."+action, map[string]string{"job_id": id}, &importJob{})
				},
				Note: func(int) string { return note }, Target: "import " + id, To: c.href("/imports") + "?" + url.Values{"id": {id}}.Encode(),
			}, err
		})
	}
}
