// Package orchestrator extracts recipes with a service that has one endpoint, POST /extract. The service takes a transcript
// and answers with a title, ingredients and steps.
//
// A call is made once: the service that runs imports repeats the call, if [extract.Failure] allows that for the error.
// The Idempotency-Key of a call is the hash of its body, so that a service that keeps its answers does not pay for the
// same answer twice.
package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/ask"
	"github.com/expediter-io/expediter/services/importer/extract/internal/measure"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Name is the name of the extractor in recipes.
const Name = "orchestrator"

// Version identifies, for caches, the inputs of the recipes other than the source.
const Version = "1"

// maxTranscript bounds the transcript that is sent, in bytes. The rest is left out, with a warning in the recipe.
const maxTranscript = 1 << 20

// Extractor asks the service. It is safe for concurrent use, and owns no goroutines between calls.
type Extractor struct{ client *remote.Client }

var _ extract.Extractor = (*Extractor)(nil)

// New sets up an extractor and makes no call. /extract is appended to the address, and the token is sent in the header
// x-service-token. The error names everything that is wrong with the configuration.
func New(config remote.Config) (*Extractor, error) {
	client, err := remote.New(config, "X-Service-Token", "")
	return &Extractor{client: client}, err
}

// Extract implements [extract.Extractor]: one call. The recipe is as the service has made it: see [extract.Checked]. The error is
// one that [extract.Failure] knows.
func (e *Extractor) Extract(ctx context.Context, in extract.Input) (recipe.Recipe, error) {
	shown := ask.NewDigest(in, maxTranscript)
	answer, err := ask.Post(ctx, e.client, "/extract", request{
		SourceType: in.Source.Type, SourceRef: in.Source.Ref, Options: options{IncludeTimestamps: shown.Timed},
		Transcript: cmp.Or(shown.Transcript, shown.Description), // of a page or a photo, its text is all there is
	})
	if err != nil {
		return recipe.Recipe{}, err
	}
	if object := ask.Object(string(answer)); object != nil {
		answer = object
	}
	var r response
	if err := json.Unmarshal(answer, &r); err != nil {
		return recipe.Recipe{}, extract.Failed(true, fmt.Errorf("orchestrator: decode %d bytes: %w", len(answer), err),
			"the answer is not the JSON of a recipe")
	}
	out := r.recipe()
	out.Language = in.Language
	out.Source = in.Source
	out.Source.Extractor = Name
	out.Warnings = shown.Warnings()
	return out, nil
}

// request is the body of POST /extract.
type request struct {
	SourceType string  `json:"source_type"`
	SourceRef  string  `json:"source_ref"`
	Transcript string  `json:"transcript"`
	Options    options `json:"options"`
}

type options struct {
	IncludeTimestamps bool `json:"include_timestamps"`
}

// response is the body of an answer. Members that are not listed are ignored. Listed members must have their types; null
// is the same as absent.
type response struct {
	Title       string          `json:"title"`
	Description string          `json:"description"`
	Servings    recipe.Quantity `json:"servings"`
	Ingredients []struct {
		Qty     recipe.Quantity `json:"qty"`
		Unit    string          `json:"unit"`
		Item    string          `json:"item"`
		Note    string          `json:"note"`
		Section string          `json:"section"`
	} `json:"ingredients"`
	Steps []struct {
		Text      string   `json:"text"`
		Timestamp *float64 `json:"timestamp_sec"`
	} `json:"steps"`
}

// recipe returns the recipe with the steps in the order of the answer, whatever their index is. It reads their times and
// temperatures, which the answer does not have, from their texts.
func (r response) recipe() recipe.Recipe {
	out := recipe.Recipe{Title: r.Title, Description: r.Description, Servings: string(r.Servings)}
	for _, i := range r.Ingredients {
		out.Ingredients = append(out.Ingredients, recipe.Ingredient{
			Qty: i.Qty, Unit: i.Unit, Item: i.Item, Note: i.Note, Section: i.Section,
		})
	}
	for _, s := range r.Steps {
		step := recipe.Step{Text: s.Text, Timestamp: s.Timestamp}
		measure.ReadStep("", &step)
		out.Steps = append(out.Steps, step)
	}
	return out
}
