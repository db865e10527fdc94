package recipe_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
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

func TestValidRecipe(t *testing.T) {
	t.Parallel()
	r := valid()
	check.Is(t, r.Validate(), nil)
	minimal := recipe.Recipe{Title: "Tea", Ingredients: []recipe.Ingredient{{Item: "tea"}}, Steps: []recipe.Step{{Index: 1, Text: "Brew."}}}
	check.Is(t, minimal.Validate(), nil)
}

// TestValidateNamesEveryField breaks each field of its own in one recipe.
func TestValidateNamesEveryField(t *testing.T) {
	t.Parallel()
	long := func(n int) string { return strings.Repeat("x", n+1) }
	for _, c := range []struct {
		path  string
		spoil func(*recipe.Recipe)
	}{
		{"/title", func(r *recipe.Recipe) { r.Title = " " }},
		{"/title", func(r *recipe.Recipe) { r.Title = long(recipe.MaxTitle) }},
		{"/title", func(r *recipe.Recipe) { r.Title = "a\nb" }},
		{"/title", func(r *recipe.Recipe) { r.Title = "a\xff" }},
		{"/description", func(r *recipe.Recipe) { r.Description = long(recipe.MaxDescription) }},
		{"/servings", func(r *recipe.Recipe) { r.Servings = long(recipe.MaxItem) }},
		{"/ingredients", func(r *recipe.Recipe) { r.Ingredients = nil }},
		{"/ingredients", func(r *recipe.Recipe) {
			r.Ingredients = make([]recipe.Ingredient, recipe.MaxIngredients+1)
			for i := range r.Ingredients {
				r.Ingredients[i].Item = "salt"
			}
		}},
		{"/ingredients/0/qty", func(r *recipe.Recipe) { r.Ingredients[0].Qty = recipe.Quantity(long(recipe.MaxWord)) }},
		{"/ingredients/0/unit", func(r *recipe.Recipe) { r.Ingredients[0].Unit = long(recipe.MaxWord) }},
		{"/ingredients/0/item", func(r *recipe.Recipe) { r.Ingredients[0].Item = "" }},
		{"/ingredients/0/note", func(r *recipe.Recipe) { r.Ingredients[0].Note = long(recipe.MaxNote) }},
		{"/ingredients/0/section", func(r *recipe.Recipe) { r.Ingredients[0].Section = long(recipe.MaxItem) }},
		{"/ingredients/0/raw", func(r *recipe.Recipe) { r.Ingredients[0].Raw = long(recipe.MaxNote) }},
		{"/ingredients/0/unverified/0", func(r *recipe.Recipe) { r.Ingredients[0].Unverified = []string{""} }},
		{"/steps", func(r *recipe.Recipe) { r.Steps = nil }},
		{"/steps/0/index", func(r *recipe.Recipe) { r.Steps[0].Index = 0 }},
		{"/steps/0/text", func(r *recipe.Recipe) { r.Steps[0].Text = "" }},
		{"/steps/0/text", func(r *recipe.Recipe) { r.Steps[0].Text = long(recipe.MaxStep) }},
		{"/steps/0/timestamp_sec", func(r *recipe.Recipe) { r.Steps[0].Timestamp = new(-1.0) }},
		{"/steps/0/timestamp_sec", func(r *recipe.Recipe) { r.Steps[0].Timestamp = new(math.NaN()) }},
		{"/steps/0/end_sec", func(r *recipe.Recipe) { r.Steps[0].End = new(119.0) }},
		{"/steps/0/end_sec", func(r *recipe.Recipe) { r.Steps[0].Timestamp = nil }},
		{"/steps/0/times/0/min_sec", func(r *recipe.Recipe) { r.Steps[0].Times[0].MinSec = -1 }},
		{"/steps/0/times/0/max_sec", func(r *recipe.Recipe) { r.Steps[0].Times[0].MaxSec = 1 }},
		{"/steps/0/times/0/until", func(r *recipe.Recipe) { r.Steps[0].Times[0].Until = long(recipe.MaxNote) }},
		{"/steps/0/times/0/raw", func(r *recipe.Recipe) { r.Steps[0].Times[0].Raw = "" }},
		{"/steps/0/temperatures/0/degrees", func(r *recipe.Recipe) { r.Steps[0].Temperatures[0].Degrees = -3000 }},
		{"/steps/0/temperatures/0/max_degrees", func(r *recipe.Recipe) { r.Steps[0].Temperatures[0].MaxDegrees = 1 }},
		{"/steps/0/temperatures/0/scale", func(r *recipe.Recipe) { r.Steps[0].Temperatures[0].Scale = "K" }},
		{"/steps/0/temperatures/0/level", func(r *recipe.Recipe) { r.Steps[0].Temperatures[0].Level = long(recipe.MaxWord) }},
		{"/steps/0/temperatures/0/raw", func(r *recipe.Recipe) { r.Steps[0].Temperatures[0].Raw = "" }},
		{"/times/prep_sec", func(r *recipe.Recipe) { r.Times.PrepSec = -1 }},
		{"/times/cook_sec", func(r *recipe.Recipe) { r.Times.CookSec = recipe.MaxSeconds + 1 }},
		{"/times/total_sec", func(r *recipe.Recipe) { r.Times.TotalSec = -1 }},
		{"/language", func(r *recipe.Recipe) { r.Language = "no language" }},
		{"/source/source_type", func(r *recipe.Recipe) { r.Source.Type = long(recipe.MaxWord) }},
		{"/source/source_ref", func(r *recipe.Recipe) { r.Source.Ref = long(contracts.MaxURL) }},
		{"/source/extractor", func(r *recipe.Recipe) { r.Source.Extractor = long(recipe.MaxWord) }},
		{"/unverified", func(r *recipe.Recipe) { r.Unverified = strings.Split(long(recipe.MaxMarks), "") }},
		{"/warnings", func(r *recipe.Recipe) {
			for range recipe.MaxWarnings {
				r.Warnings = append(r.Warnings, r.Warnings[0])
			}
		}},
		{"/warnings/0/code", func(r *recipe.Recipe) { r.Warnings[0].Code = "" }},
		{"/warnings/0/text", func(r *recipe.Recipe) { r.Warnings[0].Text = long(recipe.MaxNote) }},
	} {
		r := valid()
		c.spoil(&r)
		err := r.Validate()
		var invalid *contracts.ValidationError
		if !errors.As(err, &invalid) || !errors.Is(err, contracts.ErrInvalid) {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		check.That(t, len(invalid.Fields) == 1 && invalid.Fields[0].Path == c.path, "%s: %v", c.path, err)
	}
}

func TestValidateNamesAllAtOnce(t *testing.T) {
	t.Parallel()
	r := recipe.Recipe{Language: "?"}
	var invalid *contracts.ValidationError
	check.Require(t, errors.As(r.Validate(), &invalid), "it is valid")
	var paths []string
	for _, f := range invalid.Fields {
		paths = append(paths, f.Path)
	}
	check.Equal(t, []string{"/title", "/ingredients", "/steps", "/language"}, paths)
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
	r := recipe.Recipe{Title: "Toast", Ingredients: []recipe.Ingredient{{Item: "bread"}, {Qty: "1", Unit: "knob"}}}
	fmt.Println(r.Validate())
	// Output: contracts: invalid Recipe: /ingredients/1/item is required; /steps is required
}

func ExampleQuantity_UnmarshalJSON() {
	var i recipe.Ingredient
	if err := json.Unmarshal([]byte(`{"qty": 2.5, "unit": "cup", "item": "flour"}`), &i); err != nil {
		fmt.Println(err)
	}
	fmt.Println(i.Qty, i.Unit, i.Item)
	// Output: 2.5 cup flour
}
