package orchestrator

import (
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/digest"
	"github.com/expediter-io/expediter/services/importer/extract/internal/marks"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

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

func newRequest(in extract.Input, shown digest.Digest) request {
	r := request{
		SourceType: in.Source.Type, SourceRef: in.Source.Ref, Transcript: shown.Transcript,
		Options: options{IncludeTimestamps: shown.Timed},
	}
	if r.Transcript == "" {
		r.Transcript = shown.Description // A page or a photo: its text is all there is.
	}
	return r
}

// response is the body of an answer. Members that are not listed are ignored, those that are listed must have their types;
// null is the same as absent.
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

// recipe returns the steps in the order in which they came: that is the one that counts, whatever their index. Their times
// and temperatures, for which the answer has no place, are read out of their texts.
func (r response) recipe() recipe.Recipe {
	out := recipe.Recipe{Title: r.Title, Description: r.Description, Servings: string(r.Servings)}
	for _, i := range r.Ingredients {
		out.Ingredients = append(out.Ingredients, recipe.Ingredient{
			Qty: i.Qty, Unit: i.Unit, Item: i.Item, Note: i.Note, Section: i.Section,
		})
	}
	for _, s := range r.Steps {
		step := recipe.Step{Text: s.Text, Timestamp: s.Timestamp}
		marks.Read(&step)
		out.Steps = append(out.Steps, step)
	}
	return out
}
