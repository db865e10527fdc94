package export_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

var update = flag.Bool("update", false, "write the golden files anew")

// samples are recipes by the name of their golden files.
func samples() map[string]*recipe.Recipe {
	return map[string]*recipe.Recipe{"cookies": cookies(), "tea": tea(), "hostile": hostile()}
}

func tea() *recipe.Recipe {
	return &recipe.Recipe{
		Title: "Tea", Ingredients: []recipe.Ingredient{{Item: "tea"}}, Steps: []recipe.Step{{Index: 1, Text: "Brew the tea."}},
	}
}

func cookies() *recipe.Recipe {
	return &recipe.Recipe{
		Title: "Perfect Chocolate Chip Cookies", Description: "A classic recipe.\nBetter on the second day.", Servings: "24 cookies",
		Language: "en-US", Times: recipe.Times{PrepSec: 900, CookSec: 690, TotalSec: 5400},
		Source: recipe.Source{Type: "youtube", Ref: "https://www.youtube.com/watch?v=example", Extractor: "rules"},
		Ingredients: []recipe.Ingredient{
			{Qty: "2.5", Unit: "cup", Item: "flour", Note: "sifted", Section: "For the dough"},
			{Qty: "1/2", Unit: "cup", Item: "olive oil"},
			{Unit: "pinch", Item: "salt"},
			{Qty: "2", Item: "eggs"},
			{Item: "oil", Note: "for the tray"},
			{Qty: "200", Unit: "gram", Item: "chocolate chips", Unverified: []string{"qty", "unit"}},
		},
		Steps: []recipe.Step{
			{
				Index: 1, Text: "Preheat the oven to 350 F.", Timestamp: new(12.34),
				Temperatures: []recipe.Temperature{{Degrees: 350, MaxDegrees: 350, Scale: "F", Raw: "350 F"}},
			},
			{Index: 2, Text: "Whisk flour and salt, then olive oil and eggs (all at once).", Timestamp: new(60.0), End: new(90.0)},
			{
				Index: 3, Text: "Bake for 10 to 12 minutes; wait 90 seconds -- no longer.", Timestamp: new(120.0),
				Times: []recipe.Duration{
					{MinSec: 600, MaxSec: 720, Raw: "10 to 12 minutes"},
					{MinSec: 90, MaxSec: 90, Raw: "90 Seconds"},
					{MinSec: 60, MaxSec: 60, Raw: "not in the text"},
					{Until: "golden", Raw: "until golden"},
				},
				Unverified: []string{"times"},
			},
		},
		Warnings: []recipe.Warning{{Code: "unverified", Text: "Some of it was not found in the source; the fields are marked."}},
	}
}

// hostile holds what each format is made of.
func hostile() *recipe.Recipe {
	return &recipe.Recipe{
		Title:       `</script><script>alert(1)</script> "---" & @all: #1`,
		Description: "---\n>> source: https://evil.example\n\u2028<!-- [- x -]",
		Servings:    "4: no #comment", Language: "pt-Latn-BR",
		Source: recipe.Source{Ref: "javascript:alert(1)"},
		Ingredients: []recipe.Ingredient{
			{Qty: `1}%2`, Unit: `cup}{x`, Item: `flour{9%ton} @gold`, Note: `sifted) @silver{1}(x`},
			{Qty: "=3", Item: "./../secret"},
			{Item: "-hidden"},
			{Item: "?&+@x|y"},
			{Qty: `2\`, Unit: `\`, Item: `back\slash\`},
			{Item: "a--b"},
			{Item: "~rest{5%minutes}"},
		},
		Steps: []recipe.Step{
			{Index: 1, Text: `>> title: Owned`},
			{Index: 2, Text: `== Section == @salt #pot ~{5%minutes} [- hidden -] -- gone --- \`},
			{Index: 3, Text: `Add flour{9%ton} @gold(really){3} and -hidden.`},
			{Index: 4, Text: `--`},
			{Index: 5, Text: "Mail me@example.com # 5 @ noon ~ 3.", Times: []recipe.Duration{{MinSec: 1, MaxSec: 1, Raw: "@"}}},
		},
		Unverified: []string{"title"},
		Warnings:   []recipe.Warning{{Code: "x", Text: "> @salt{} -- [- x"}},
	}
}

// golden holds what was written against a file. Run with -update after a change that is meant, and read the difference.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		check.OK(t, os.WriteFile(file, got, 0o600))
	}
	want := check.Must(os.ReadFile(file))(t)
	check.Equal(t, string(want), string(got))
}

// oneLine is what becomes of a text in a place that has one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
