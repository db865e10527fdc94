package export_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/recipe/export"
)

func TestCooklang(t *testing.T) {
	t.Parallel()
	for name, r := range samples() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := export.Cooklang(r)
			golden(t, name+".cook", got)
			roundTrip(t, r, string(got))
		})
	}
}

// TestTheParserOfTheseTests holds it against examples of the specification.
func TestTheParserOfTheseTests(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]step{
		"Then add @salt and @ground black pepper{} to taste.": {text: "Then add salt and ground black pepper to taste.", ingredients: []component{{name: "salt"}, {name: "ground black pepper"}}},
		"@syrup{1/2%tbsp}.":                                 {text: "syrup.", ingredients: []component{{name: "syrup", qty: "1/2", unit: "tbsp"}}},
		"Mash @potato{2%kg} -- alternatively":               {text: "Mash potato", ingredients: []component{{name: "potato", qty: "2", unit: "kg"}}, comments: []string{"alternatively"}},
		"Add @milk{4%cup} [- TODO -], mix":                  {text: "Add milk , mix", ingredients: []component{{name: "milk", qty: "4", unit: "cup"}}, comments: []string{"TODO"}},
		"Boil for ~eggs{3%minutes}.":                        {text: "Boil for .", timers: []component{{name: "eggs", qty: "3", unit: "minutes"}}},
		"@onion{1}(peeled and chopped)":                     {text: "onion", ingredients: []component{{name: "onion", qty: "1", note: "peeled and chopped"}}},
		"Message @ example{}":                               {text: "Message @ example{}"},
		"It is ~ 5, Recipe # 10{}":                          {text: "It is ~ 5, Recipe # 10{}"},
		"hello --- there":                                   {text: "hello", comments: []string{"- there"}},
		`me\@example.com \-- \[- @a\@b{1\}2%c\%d}(\)) \\ x`: {text: `me@example.com -- [- a@b \ x`, ingredients: []component{{name: "a@b", qty: "1}2", unit: "c%d", note: ")"}}},
	} {
		c, err := parseCook("---\ntitle: x\n---\n\n" + text + "\n")
		if err != nil || len(c.steps) != 1 {
			t.Errorf("%s: %+v, %v", text, c, err)
			continue
		}
		check.Same(t, text, cmp.Diff(want, c.steps[0], cmp.AllowUnexported(step{}, component{})), "")
	}
}

// roundTrip parses a file again and compares all that the format has a place for.
func roundTrip(t *testing.T, r *recipe.Recipe, file string) {
	t.Helper()
	c, err := parseCook(file)
	check.Require(t, err == nil, "%v in\n%s", err, file)
	for key, want := range map[string]string{
		"title": oneLine(r.Title), "description": r.Description, "servings": oneLine(r.Servings), "source": r.Source.Ref,
	} {
		got, ok := c.meta[key]
		if !ok && want == "" {
			continue
		}
		check.Same(t, key, fmt.Sprint(got), want)
	}
	check.That(t, c.sections == 0 && c.cookware == 0, "%d sections and %d cookware in\n%s", c.sections, c.cookware, file)
	var want, got []string
	for i := range r.Ingredients {
		in := &r.Ingredients[i]
		qty := oneLine(string(in.Qty))
		if qty == "" && oneLine(in.Unit) != "" {
			qty = "some"
		}
		want = append(want, fmt.Sprintf("%q %q %q %q", strings.ToLower(oneLine(in.Item)), qty, oneLine(in.Unit), oneLine(in.Note)))
	}
	for _, s := range c.steps {
		for _, in := range s.ingredients {
			got = append(got, fmt.Sprintf("%q %q %q %q", strings.ToLower(in.name), in.qty, in.unit, in.note))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	diff := cmp.Diff(want, got)
	check.That(t, diff == "", "ingredients: %s in\n%s", diff, file)
	stepsRoundTrip(t, r, c, file)
}

// stepsRoundTrip compares the steps; the ingredients that none of them names stand in one more before them.
func stepsRoundTrip(t *testing.T, r *recipe.Recipe, c *cook, file string) {
	t.Helper()
	extra := len(c.steps) - len(r.Steps)
	check.Require(t, extra == 0 || extra == 1, "%d steps of %d in\n%s", len(c.steps), len(r.Steps), file)
	for i, s := range c.steps[extra:] {
		want := oneLine(r.Steps[i].Text)
		check.That(t, len(s.timers) != 0 || s.text == want, "step %d is %q, want %q", i+1, s.text, want)
		check.That(t, len(s.timers) <= len(r.Steps[i].Times), "step %d has %d timers", i+1, len(s.timers))
		var comments []string
		if at := r.Steps[i].Timestamp; at != nil {
			comments = []string{strconv.FormatFloat(*at, 'f', -1, 64) + "s"}
		}
		diff := cmp.Diff(comments, s.comments)
		check.That(t, diff == "", "comments of step %d: %s", i+1, diff)
	}
}

// TestTitlesStayText: a title stays text, also one that YAML would take for another type.
func TestTitlesStayText(t *testing.T) {
	t.Parallel()
	for _, title := range []string{
		"null", "Null", "~", "yes", "No", "true", "off", "y", "1e3", "0x1F", "0o7", "1_000", "2001-01-01", "1:30", ".inf", "- a", "? a", "a: b", "a #b", "#a",
		"[a]", "{a}", "&a", "*a", "!a", "|", ">", "%a", "@a", "`a", "'a", `"a"`, "a:", "---", "...", "\u2028a\u2029b", "\ufeffa", "\u0085a", `a\nb`, "a\tb", "=", "<<",
		"Mac & cheese", "Crème brûlée (easy!)", "שקשוקה", "it's", "24 cookies", "15m", "1h30m", "12", "007", "x.", "v1.2", "a - b", "a, b",
	} {
		r := tea()
		r.Title = title
		c, err := parseCook(string(export.Cooklang(r)))
		if err != nil {
			t.Errorf("%q: %v", title, err)
			continue
		}
		check.Same(t, fmt.Sprintf("%q", title), fmt.Sprint(c.meta["title"]), oneLine(title))
	}
}

func TestCooklangTimers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		low, high int
		want      string
	}{
		{60, 60, "~{1%minutes}"},
		{90, 90, "~{90%seconds}"},
		{7200, 7200, "~{2%hours}"},
		{3600, 5400, "~{60-90%minutes}"},
		{0, 300, "~{5%minutes}"},
	} {
		r := tea()
		r.Steps[0].Text = "Brew for a while, a while."
		r.Steps[0].Times = []recipe.Duration{{MinSec: c.low, MaxSec: c.high, Raw: "A while"}}
		got := string(export.Cooklang(r))
		check.That(t, strings.Contains(got, "\nBrew for "+c.want+", a while.\n"), "%+v gives\n%s", c, got)
	}
}

// FuzzCooklang tries to break out of the format from every field.
func FuzzCooklang(f *testing.F) {
	for _, r := range samples() {
		for i := range r.Ingredients {
			in := &r.Ingredients[i]
			f.Add(r.Title, r.Description, string(in.Qty), in.Unit, in.Item, in.Note, r.Steps[i%len(r.Steps)].Text)
		}
	}
	f.Add("null", "1e3", "~", "0x1F", "2001-01-01", "[x]", "!!binary aGk=")
	f.Fuzz(func(t *testing.T, title, description, qty, unit, item, note, text string) {
		r := &recipe.Recipe{
			Title: title, Description: description, Servings: note,
			Ingredients: []recipe.Ingredient{
				{Qty: recipe.Quantity(qty), Unit: unit, Item: item, Note: note}, {Item: title}, {Qty: "1", Item: "salt"},
			},
			Steps: []recipe.Step{
				{Index: 1, Text: text, Timestamp: new(1.5)},
				{Index: 2, Text: text + " " + item + " for 5 minutes", Times: []recipe.Duration{{MinSec: 300, MaxSec: 300, Raw: "5 minutes"}}},
			},
			Warnings: []recipe.Warning{{Code: "x", Text: "See " + text}},
		}
		got := string(export.Cooklang(r))
		if r.Validate() == nil {
			roundTrip(t, r, got)
		}
	})
}

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

// hostile has the special characters of each format.
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

// golden compares an output with a file. Run with -update after a change that is meant, and read the difference.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		check.OK(t, os.WriteFile(file, got, 0o600))
	}
	want := check.Must(os.ReadFile(file))(t)
	check.Equal(t, string(want), string(got))
}

// oneLine returns a text as it is in a place that has one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
