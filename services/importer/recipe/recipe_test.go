package recipe_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func valid() recipe.Recipe {
	return recipe.Recipe{
		Title: "Perfect Chocolate Chip Cookies",
		Ingredients: []recipe.Ingredient{
			{Qty: "2.5", Unit: "cup", Item: "flour"},
		},
		Steps: []recipe.Step{
			{
				Index: 1, Text: "Preheat oven", Timestamp: new(120.0), End: new(130.0),
				Temperatures: []recipe.Temperature{{Degrees: 350, MaxDegrees: 350, Scale: "F", Raw: "350 F"}},
				Times:        []recipe.Duration{{MinSec: 600, MaxSec: 600, Raw: "ten minutes"}},
			},
		},
		Language: "en-US",
		Warnings: []recipe.Warning{{Code: "cut", Text: "Something was left out."}},
	}
}

func TestValidateNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	r := valid()
	check.Is(t, r.Validate(), nil)
	r = recipe.Recipe{}
	var invalid *contracts.ValidationError
	check.Require(t, errors.As(r.Validate(), &invalid) && errors.Is(invalid, contracts.ErrInvalid), "it is valid")
	var paths []string
	for _, f := range invalid.Fields {
		paths = append(paths, f.Path)
	}
	check.Equal(t, []string{"/title", "/ingredients", "/steps"}, paths)
}

func TestJSONHasTheNamesOfTheDocument(t *testing.T) {
	t.Parallel()
	r := valid()
	r.Language, r.Warnings, r.Steps[0].End, r.Steps[0].Times, r.Steps[0].Temperatures = "", nil, nil, nil, nil
	got := check.Must(json.Marshal(r))(t)
	want := `{"title":"Perfect Chocolate Chip Cookies","ingredients":[{"qty":"2.5","unit":"cup","item":"flour"}],` +
		`"steps":[{"index":1,"text":"Preheat oven","timestamp_sec":120}]}`
	check.Equal(t, want, string(got))
}

func TestQuantityReadsNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]recipe.Quantity{
		`"2.5"`: "2.5", `2.50`: "2.50", `2`: "2", `null`: "", `"a pinch"`: "a pinch", `-1`: "-1",
	} {
		var i recipe.Ingredient
		err := json.Unmarshal([]byte(`{"item":"x","qty":`+text+`}`), &i)
		check.That(t, err == nil && i.Qty == want, "%s is %q, %v, want %q", text, i.Qty, err, want)
	}
	for _, text := range []string{`{}`, `[1]`, `true`} {
		var i recipe.Ingredient
		check.Failsf(t, json.Unmarshal([]byte(`{"qty":`+text+`}`), &i), "%s is %q", text, i.Qty)
	}
}

func ExampleRecipe_Validate() {
	r := recipe.Recipe{Title: "Toast", Ingredients: []recipe.Ingredient{{Item: "bread"}}}
	fmt.Println(r.Validate())
	// Output: contracts: invalid Recipe: /steps is required
}

func ExampleQuantity_UnmarshalJSON() {
	var i recipe.Ingredient
	if err := json.Unmarshal([]byte(`{"qty": 2.5, "unit": "cup", "item": "flour"}`), &i); err != nil {
		fmt.Println(err)
	}
	fmt.Println(i.Qty, i.Unit, i.Item)
	// Output: 2.5 cup flour
}
