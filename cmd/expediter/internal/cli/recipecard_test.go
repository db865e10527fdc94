package cli

import (
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

func TestRecipeCard(t *testing.T) {
	t.Parallel()
	r := recipe.Recipe{
		Title: "Leek tart", Description: "A tart for cold days.", Servings: "4-6", Unverified: []string{"servings"},
		Times: recipe.Times{PrepSec: 900, CookSec: 5430, TotalSec: 7200},
		Ingredients: []recipe.Ingredient{
			{Qty: "1 1/2", Unit: "cup", Item: "flour", Note: "sifted"},
			{Qty: "2-3", Item: "leeks"},
			{Qty: "3", Unit: "leaf", Item: "sage", Section: "For the top:", Unverified: []string{"qty"}},
			{Item: "pepper", Section: "For the top:"},
		},
		Steps: []recipe.Step{
			{Index: 1, Text: "Wash the leeks.", Timestamp: new(65.4)},
			{Index: 2, Text: "Bake.", Timestamp: new(3725.0), Unverified: []string{"timestamp_sec"}},
			{Index: 3, Text: "Serve."},
		},
		Warnings: []recipe.Warning{{Code: extract.WarnUnverified, Text: "Fields are marked."}, {Code: "cut", Text: "It was long."}},
	}
	const want = `Leek tart
Serves 4-6, prep 15m, cook 1h30m30s, total 2h0m
https://example.com/tart

A tart for cold days.

Ingredients
  1 1/2 cup flour, sifted
  2-3 leeks
  For the top:
  3 leaf sage (?)
  pepper

Steps
  1. [1m5s] Wash the leeks.
  2. [1h2m5s] Bake. (?)
  3. Serve.

! It was long.
! What is marked (?) was not found in the source.
`
	check.Equal(t, want, newRecipeCard(&r, "https://example.com/tart", false))
	bold := newRecipeCard(&r, "", true)
	for _, heading := range []string{"Leek tart", "Ingredients", "Steps"} {
		check.That(t, strings.Contains(bold, "\x1b[1m"+heading+"\x1b[0m\n"), "%s is not bold", heading)
	}
}

// Texts of strangers cannot move the cursor, and a description that is the list of ingredients once more is left out.
func TestRecipeCardOfStrangers(t *testing.T) {
	t.Parallel()
	evil := "麺 שלום \x1b[2Jevil\r \u202e"
	out := newRecipeCard(&recipe.Recipe{
		Title: evil, Description: "Buy this\n1 cup water\n1 bag tea", Servings: "1 loaf\a",
		Ingredients: []recipe.Ingredient{
			{Qty: "2", Unit: "Tasse\x1b", Item: evil, Raw: "1 cup water", Section: "\x1b[31m"}, {Item: "tea", Raw: "1 bag tea"},
		},
		Steps: []recipe.Step{{Text: evil}}, Warnings: []recipe.Warning{{Code: "x\x07"}},
	}, "a\x00b", false)
	check.That(t, !strings.ContainsAny(out, "\x1b\x07\x00\r\u202e") && !strings.Contains(out, "Buy this"), "%q", out)
	check.Says(t, out, "Makes 1 loaf", "2 Tasse\ufffd ")
}
