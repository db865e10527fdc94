package extract_test

import (
	"math"
	"strings"
	"testing"
	"unicode"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

func TestCleanTexts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"Plain text", "Plain text"},
		{"  two\n lines\tand  gaps ", "two lines and gaps"},
		{"<b>bold</b> move", "bold move"},
		{"a<br>b", "a b"},
		{"<script>alert(1)</script>safe", "safe"},
		{"<style>x{}</style>safe", "safe"},
		{"<img src=x onerror=alert(1)>safe", "safe"},
		{"<!-- hidden -->safe", "safe"},
		{"&lt;b&gt;twice&lt;/b&gt; hidden", "twice hidden"},
		{"&amp;lt;script&amp;gt;x", "scriptx"},
		{"salt &amp; pepper", "salt & pepper"},
		{"2 < 3 and 4 > 3", "2 3 and 4 3"},
		{"unclosed <b", "unclosed"},
		{"see https://a.example/x?y=1 now", "see now"},
		{"see www.a.example/x now", "see now"},
		{"see a-b.com/x now", "see now"},
		{"javascript:alert(1) salt", "salt"},
		{"bake at 350.Then cool", "bake at 350.Then cool"},
		{"zero\u200bwidth\u202e and \x00nul", "zerowidth and nul"},
		{"broken \xff bytes", "broken bytes"},
	} {
		r := recipe.Recipe{Title: c.text, Steps: []recipe.Step{{Text: c.text}}, Ingredients: []recipe.Ingredient{{Item: c.text, Note: c.text}}}
		extract.Clean(&r)
		for field, got := range map[string]string{
			"title": r.Title, "step": r.Steps[0].Text, "item": r.Ingredients[0].Item, "note": r.Ingredients[0].Note,
		} {
			if got != c.want {
				t.Errorf("%s: %q is %q, want %q", field, c.text, got, c.want)
			}
		}
	}
}

func TestCleanKeepsLinesOfDescriptions(t *testing.T) {
	t.Parallel()
	r := recipe.Recipe{Description: "One.\n\n\n  Two.  \n"}
	extract.Clean(&r)
	if r.Description != "One.\n\nTwo." {
		t.Errorf("%q", r.Description)
	}
}

func TestCleanDropsWhatIsEmptyAndCountsAnew(t *testing.T) {
	t.Parallel()
	r := recipe.Recipe{
		Title:       "x",
		Ingredients: []recipe.Ingredient{{Item: " "}, {Item: "salt"}},
		Steps:       []recipe.Step{{Index: 5, Text: "<b></b>"}, {Index: 7, Text: "Stir."}, {Index: 7, Text: "Serve."}},
	}
	extract.Clean(&r)
	if len(r.Ingredients) != 1 || len(r.Steps) != 2 || r.Steps[0].Index != 1 || r.Steps[1].Index != 2 {
		t.Errorf("%+v", r)
	}
	check.Is(t, r.Validate(), nil)
}

// TestCleanMakesAnythingValid puts too much into every field.
func TestCleanMakesAnythingValid(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é long ", 4000)
	r := recipe.Recipe{
		Title: long, Description: long, Servings: long, Language: "en", Unverified: strings.Fields(long),
		Times:  recipe.Times{PrepSec: -5, CookSec: math.MaxInt, TotalSec: 1},
		Source: recipe.Source{Type: long, Extractor: long},
	}
	for range recipe.MaxIngredients + 5 {
		r.Ingredients = append(r.Ingredients, recipe.Ingredient{
			Qty: recipe.Quantity(long), Unit: long, Item: long, Note: long, Section: long, Raw: long, Unverified: []string{long},
		})
	}
	nan, inf := math.NaN(), math.Inf(1)
	for i := range recipe.MaxSteps + 5 {
		s := recipe.Step{Text: long, Timestamp: &nan, End: &inf}
		for range recipe.MaxMarks + 5 {
			if i > 0 {
				break
			}
			s.Times = append(s.Times, recipe.Duration{MinSec: 9, MaxSec: -9, Until: long, Raw: long})
			s.Temperatures = append(s.Temperatures, recipe.Temperature{Degrees: 9, Scale: long, Level: long, Raw: long})
		}
		s.Temperatures = append([]recipe.Temperature{{Degrees: nan, Raw: "x"}}, s.Temperatures...)
		r.Steps = append(r.Steps, s)
	}
	for range recipe.MaxWarnings + 5 {
		r.Warnings = append(r.Warnings, recipe.Warning{Code: long, Text: long})
	}
	extract.Clean(&r)
	check.Is(t, r.Validate(), nil)
	if !warned(&r, extract.WarnCut) {
		t.Error("nobody says that it was cut")
	}
}

func FuzzClean(f *testing.F) {
	for _, seed := range []string{"<b>x</b>", "&lt;&amp;lt;", "https://x.example", "<<script>>", "\xff\x00<", "a.com.com/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := recipe.Recipe{Title: text, Steps: []recipe.Step{{Text: "a " + text}}, Ingredients: []recipe.Ingredient{{Item: "a " + text}}}
		extract.Clean(&r)
		for _, got := range []string{r.Title, r.Steps[0].Text, r.Ingredients[0].Item} {
			if strings.ContainsAny(got, "<>") || strings.Contains(strings.ToLower(got), "http://") || strings.ContainsFunc(got, unicode.IsControl) {
				t.Errorf("%q is left of %q", got, text)
			}
		}
		if r.Title != "" {
			check.Is(t, r.Validate(), nil)
		}
	})
}
