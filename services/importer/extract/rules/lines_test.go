package rules_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

func TestIngredientLine(t *testing.T) {
	t.Parallel()
	cut := strings.Repeat("very ", 60) + "good flour"
	const long = "Enough of whatever you have in the house that goes well with fish and is not too sweet"
	for line, want := range map[string]recipe.Ingredient{
		"2 ½ cups  flour, sifted":           {Qty: "2 1/2", Unit: "cup", Item: "flour", Note: "sifted", Raw: "2 ½ cups flour, sifted"},
		"Salt to taste":                     {Item: "Salt", Note: "to taste", Raw: "Salt to taste"},
		long:                                {Item: long, Raw: long},
		"  ":                                {},
		"1 onion ((3/4 cup, packed))":       {Qty: "1", Item: "onion", Note: "3/4 cup, packed", Raw: "1 onion ((3/4 cup, packed))"},
		"2 eggs (large (or 3 small)), cold": {Qty: "2", Item: "eggs", Note: "large or 3 small, cold", Raw: "2 eggs (large (or 3 small)), cold"},
		"Salt (optional, see the notes)":    {Item: "Salt", Note: "optional, see the notes", Raw: "Salt (optional, see the notes)"},
		"Butter ((to taste))":               {Item: "Butter", Note: "to taste", Raw: "Butter ((to taste))"},
		"Oil (for frying":                   {Item: "Oil", Note: "for frying", Raw: "Oil (for frying"},
		"Rice) rinsed":                      {Item: "Rice rinsed", Raw: "Rice) rinsed"},
		"Thyme ( ), fresh":                  {Item: "Thyme", Note: "fresh", Raw: "Thyme ( ), fresh"},
		cut:                                 {Item: cut, Raw: cut},
	} {
		diff := cmp.Diff(want, rules.Ingredient(line))
		check.That(t, diff == "", "%q (-want +got):\n%s", line, diff)
	}
}

func TestStepOfInstruction(t *testing.T) {
	t.Parallel()
	want := recipe.Step{
		Text:         "Bake at 350 F for 20 minutes.",
		Times:        []recipe.Duration{{MinSec: 1200, MaxSec: 1200, Raw: "20 minutes"}},
		Temperatures: []recipe.Temperature{{Degrees: 350, MaxDegrees: 350, Scale: "F", Raw: "350 F"}},
	}
	check.Equal(t, want, rules.Step("Bake at 350 F\n for 20 minutes."))
}

// Without times, what is written as a method is better than what is made of the talk; the ingredients may be spoken of.
func TestWrittenMethodOfUntimedText(t *testing.T) {
	t.Parallel()
	in := extract.Input{
		Title: "Lemon cake", Untimed: true, Description: "Method:\nMix the flour and the eggs.\nBake for 45 minutes.",
		Segments: []caption.Segment{{Text: "Mix two cups of flour and three eggs."}, {Text: "Bake for 45 minutes."}},
	}
	r, err := rules.New().Extract(t.Context(), in)
	check.OK(t, err)
	check.That(t, len(r.Steps) == 2 && r.Steps[0].Text == "Mix the flour and the eggs." && len(r.Ingredients) == 2,
		"steps %+v, ingredients %+v: want the two that are written, and the two that are spoken of", r.Steps, r.Ingredients)
	in.Untimed = false
	r, err = rules.New().Extract(t.Context(), in)
	check.That(t, err == nil && r.Steps[0].Timestamp != nil, "recipe %+v, error %v: want steps with times where there are times", r, err)
}
