package export_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/recipe/export"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// biggest is a recipe as large as may be, of names that almost stand in every step.
func biggest() *recipe.Recipe {
	r := tea()
	r.Ingredients, r.Steps = nil, nil
	for range recipe.MaxIngredients {
		r.Ingredients = append(r.Ingredients, recipe.Ingredient{Item: strings.Repeat("a ", recipe.MaxItem/2-1) + "ab"})
	}
	for i := range recipe.MaxSteps {
		step := recipe.Step{Index: i + 1, Text: strings.Repeat("a ", recipe.MaxStep/2)}
		for range recipe.MaxMarks {
			step.Times = append(step.Times, recipe.Duration{MinSec: 1, MaxSec: 1, Raw: "a"})
		}
		r.Steps = append(r.Steps, step)
	}
	return r
}

func TestBiggestRecipe(t *testing.T) {
	t.Parallel()
	r := biggest()
	check.OK(t, r.Validate())
	if n := len(export.Cooklang(r)); n < 400_000 || n > 4<<20 {
		t.Errorf("%d bytes of Cooklang", n)
	}
	document, err := export.JSONLD(r)
	if n := len(document); err != nil || n < 400_000 || n > 4<<20 {
		t.Errorf("%d bytes of JSON-LD, %v", n, err)
	}
}

func BenchmarkBiggestRecipe(b *testing.B) {
	r := biggest()
	for b.Loop() {
		export.Cooklang(r)
	}
}
