package rules

import (
	"fmt"
	"slices"

	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// judge refuses a source in no part of which somebody seems to cook, and warns when that is doubtful. Only English is judged: in
// other languages a written list is required anyway.
func (r *reader) judge() error {
	if !r.english() {
		return nil
	}
	features, err := talk.Observe(r.sentences, r.stop)
	if err != nil {
		return err
	}
	r.scores = talk.Score(features)
	d, err := r.document()
	if err != nil {
		return err
	}
	cooking, err := d.Cooking(r.stop)
	switch {
	case err != nil:
		return err
	case len(r.sentences)+len(r.listed)+len(r.instructions) == 0: // there is nothing to judge
	case cooking < talk.Refused:
		return extract.Failed(false, fmt.Errorf("rules: cooking is %.2f likely: %w", cooking, extract.ErrNoRecipe),
			"no recipe was found in the source: as a whole it does not seem to be about cooking")
	case cooking < talk.Doubtful:
		r.warn(WarnDoubtful, "Little in the source speaks of cooking; this may be no recipe.")
	}
	return nil
}

// document returns the source as it is judged: its title, what is said, and then the list and the method that are written.
func (r *reader) document() (*talk.Document, error) {
	d := &talk.Document{}
	written := make([]talk.Segment, 0, len(r.listed)+len(r.instructions))
	for i := range r.listed {
		if l := &r.listed[i]; (l.Qty != "" || l.Unit != "") && isFood(l.Item) {
			d.Listed++
		}
		written = append(written, talk.Segment{Text: r.listed[i].Raw + "."})
	}
	for _, text := range r.instructions {
		written = append(written, talk.Segment{Text: text + "."})
	}
	sentences, err := talk.Cut(written, r.stop)
	if err != nil {
		return nil, err
	}
	d.Sentences = slices.Concat(talk.Sentences([]talk.Segment{{Text: r.in.Title}}), r.sentences, sentences)
	return d, nil
}

// ofKitchens are the units that are used in kitchens and hardly anywhere else.
var ofKitchens = []string{"teaspoon", "tablespoon", "cup", "pinch", "clove", "sprig"}

func inKitchenUnits(list []recipe.Ingredient) bool {
	return slices.ContainsFunc(list, func(i recipe.Ingredient) bool { return slices.Contains(ofKitchens, i.Unit) })
}
