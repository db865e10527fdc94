package rules

import (
	"fmt"
	"slices"

	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// judge refuses a source that as a whole is not about cooking, and warns when that is doubtful. Only English is judged: in
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
	traits, err := d.Traits(r.stop)
	if err != nil {
		return err
	}
	r.cooking = traits.Cooking()
	switch {
	case len(d.Sentences) == 0: // there is nothing to judge
		r.cooking = 1
	case r.cooking < d.Refused():
		return r.unlikely()
	case r.cooking < talk.Doubtful:
		r.warn(WarnDoubtful, "Little in the source speaks of cooking; this may be no recipe.")
	}
	return nil
}

// judgeRecipe refuses a recipe of next to nothing, when its source is no mere note and less likely than not about cooking: any talk
// has an order that names a food.
func (r *reader) judgeRecipe() error {
	const little, note = 3, 30 // steps and ingredients, and words
	said := 0
	for i := range r.sentences {
		said += len(r.sentences[i].Words)
	}
	if r.english() && r.cooking < 0.5 && said > note && len(r.recipe.Steps)+len(r.recipe.Ingredients) <= little {
		return r.unlikely()
	}
	return nil
}

// unlikely is the error of a source that does not seem to be about cooking.
func (r *reader) unlikely() error {
	return extract.Failed(false, fmt.Errorf("rules: cooking is %.2f likely: %w", r.cooking, extract.ErrNoRecipe),
		"no recipe was found in the source: as a whole it does not seem to be about cooking")
}

// document returns the source as it is judged: what is said, and then the list and the method that are written.
func (r *reader) document() (*talk.Document, error) {
	d := &talk.Document{Written: len(r.instructions)}
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
	d.Sentences = slices.Concat(r.sentences, sentences)
	if title := talk.Sentences([]talk.Segment{{Text: r.in.Title}}); len(title) > 0 {
		d.Title = title[0]
	}
	return d, nil
}

// ofKitchens are the units that are used in kitchens and hardly anywhere else.
var ofKitchens = []string{"teaspoon", "tablespoon", "cup", "pinch", "clove", "sprig"}

func inKitchenUnits(list []recipe.Ingredient) bool {
	return slices.ContainsFunc(list, func(i recipe.Ingredient) bool { return slices.Contains(ofKitchens, i.Unit) })
}
