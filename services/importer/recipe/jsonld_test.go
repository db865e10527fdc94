package recipe_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
)

func TestJSONLD(t *testing.T) {
	t.Parallel()
	for name, r := range samples() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := check.Must(r.JSONLD())(t)
			golden(t, name+".jsonld", got)
			readAgain(t, r, got)
		})
	}
}

// schemaOrg is a recipe as a reader of schema.org sees it.
type schemaOrg struct {
	Context      string   `json:"@context"`
	Type         string   `json:"@type"`
	Name         string   `json:"name"`
	Description  string   `json:"description"`
	Language     string   `json:"inLanguage"`
	Yield        string   `json:"recipeYield"`
	PrepTime     string   `json:"prepTime"`
	CookTime     string   `json:"cookTime"`
	TotalTime    string   `json:"totalTime"`
	Ingredients  []string `json:"recipeIngredient"`
	Instructions []struct {
		Type     string `json:"@type"`
		Position int    `json:"position"`
		Text     string `json:"text"`
		URL      string `json:"url"`
	} `json:"recipeInstructions"`
	BasedOn string `json:"isBasedOn"`
	Video   *struct {
		Type string `json:"@type"`
		Name string `json:"name"`
		URL  string `json:"url"`
	} `json:"video"`
	Comments []struct {
		Type string `json:"@type"`
		Text string `json:"text"`
	} `json:"comment"`
}

// readAgain parses a document, out of a page that it stands in, and compares all that the format has a place for.
func readAgain(t *testing.T, r *recipe.Recipe, document []byte) {
	t.Helper()
	text := inPage(t, document)
	check.Require(t, text == string(document), "a page holds\n%s\nof\n%s", text, document)
	var got schemaOrg
	decoder := json.NewDecoder(strings.NewReader(string(document)))
	decoder.DisallowUnknownFields()
	check.OK(t, decoder.Decode(&got))
	for name, pair := range map[string][2]string{
		"context": {"https://schema.org", got.Context}, "type": {"Recipe", got.Type}, "name": {r.Title, got.Name},
		"description": {r.Description, got.Description}, "language": {r.Language, got.Language}, "yield": {r.Servings, got.Yield},
	} {
		check.Same(t, name, pair[0], pair[1])
	}
	times := recipe.Times{PrepSec: seconds(t, got.PrepTime), CookSec: seconds(t, got.CookTime), TotalSec: seconds(t, got.TotalTime)}
	check.Same(t, "times", times, r.Times)
	check.Require(t, len(got.Ingredients) == len(r.Ingredients) && len(got.Instructions) == len(r.Steps),
		"%d ingredients and %d steps", len(got.Ingredients), len(got.Instructions))
	for i, text := range got.Ingredients {
		for _, part := range []string{string(r.Ingredients[i].Qty), r.Ingredients[i].Unit, r.Ingredients[i].Item, r.Ingredients[i].Note} {
			check.That(t, strings.Contains(text, part), "ingredient %d is %q, without %q", i+1, text, part)
		}
	}
	for i, step := range got.Instructions {
		check.That(t, step.Type == "HowToStep" && step.Position == i+1 && step.Text == r.Steps[i].Text, "step %d is %+v", i+1, step)
		at := r.Steps[i].Timestamp
		if at == nil || got.BasedOn == "" {
			check.That(t, step.URL == "", "step %d is at %s", i+1, step.URL)
			continue
		}
		base, moment, _ := strings.Cut(step.URL, "#t=")
		s, err := strconv.ParseFloat(moment, 64)
		check.That(t, err == nil && s == *at && strings.HasPrefix(got.BasedOn, base), "step %d is at %s", i+1, step.URL)
	}
}

// inPage returns the content of the script element with a document, as a browser reads it.
func inPage(t *testing.T, document []byte) string {
	t.Helper()
	page, err := html.Parse(strings.NewReader(`<title>x</title><script type="application/ld+json">` + string(document) + `</script><p>end`))
	check.OK(t, err)
	var scripts []string
	for node := range page.Descendants() {
		if node.Type == html.ElementNode && node.Data == "script" {
			scripts = append(scripts, node.FirstChild.Data)
		}
	}
	check.Same(t, "scripts", len(scripts), 1)
	return scripts[0]
}

var duration = regexp.MustCompile(`^PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?$`)

// seconds reads an ISO 8601 duration without days.
func seconds(t *testing.T, text string) int {
	t.Helper()
	if text == "" {
		return 0
	}
	parts := duration.FindStringSubmatch(text)
	if parts == nil || text == "PT" {
		t.Errorf("%q is no duration", text)
		return 0
	}
	total := 0
	for i, size := range []int{3600, 60, 1} {
		n, err := strconv.Atoi("0" + parts[i+1])
		check.Is(t, err, nil)
		total += n * size
	}
	return total
}

func TestJSONLDDurations(t *testing.T) {
	t.Parallel()
	for s, want := range map[int]string{
		1: "PT1S", 60: "PT1M", 90: "PT1M30S", 600: "PT10M", 3600: "PT1H", 3601: "PT1H0M1S", 5400: "PT1H30M", 36000: "PT10H",
		recipe.MaxSeconds: "PT168H",
	} {
		r := tea()
		r.Times.TotalSec = s
		got, err := r.JSONLD()
		check.That(t, err == nil && strings.Contains(string(got), fmt.Sprintf(`"totalTime": %q`, want)), "%d gives %s, %v", s, got, err)
		check.Same(t, want, seconds(t, want), s)
	}
}

// TestAddresses links to the web and to nothing else.
func TestJSONLDAddresses(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string]string{
		"https://video.example/watch?v=1":      "https://video.example/watch?v=1#t=12.5",
		"https://video.example/page#comments":  "https://video.example/page#t=12.5",
		"javascript:alert(1)//https://a.b":     "",
		"https://user:secret@video.example/":   "",
		"javascript://x.example/%0Aalert(1)":   "",
		"ftp://video.example/x":                "",
		"file:///etc/passwd":                   "",
		"https://video.example/\"><script>x":   "https://video.example/%22%3E%3Cscript%3Ex#t=12.5",
		"":                                     "",
		"/watch?v=1":                           "",
		"https://video.example/a b":            "https://video.example/a%20b#t=12.5",
		"HTTPS://video.example/?q=</script>&x": "https://video.example/?q=</script>&x#t=12.5",
	} {
		r := tea()
		r.Source.Ref, r.Steps[0].Timestamp = ref, new(12.5)
		data := check.Must(r.JSONLD())(t)
		var got schemaOrg
		check.OK(t, json.Unmarshal(data, &got))
		check.Same(t, ref, cmp.Diff(want, got.Instructions[0].URL), "")
		check.That(t, (got.Video != nil) == (want != "") && !strings.Contains(string(data), "secret") && !strings.Contains(string(data), "</script>"),
			"%s gives %s", ref, data)
	}
}

// FuzzJSONLD tries to break out of the document, and of the page that it stands in.
func FuzzJSONLD(f *testing.F) {
	f.Add(`</script><!--<script>`, `" , "@type": "Evil`, `https://x.example/?a=</script>#t=1`, 5400, 1.5)
	f.Add("\u2028]]>", "\xff\x00", "javascript:alert(1)", -1, 1e9)
	f.Fuzz(func(t *testing.T, title, text, ref string, total int, at float64) {
		r := &recipe.Recipe{
			Title: title, Description: text, Servings: title, Times: recipe.Times{TotalSec: total}, Source: recipe.Source{Ref: ref},
			Ingredients: []recipe.Ingredient{{Qty: recipe.Quantity(title), Unit: text, Item: title, Note: text, Unverified: []string{title}}},
			Steps:       []recipe.Step{{Index: 1, Text: text, Timestamp: &at}},
		}
		if all := title + " " + text + " " + ref; !utf8.ValidString(all) || strings.ContainsFunc(all, unicode.IsControl) ||
			strings.TrimSpace(title) == "" || strings.TrimSpace(text) == "" || total < 0 || !(at >= 0 && at <= recipe.MaxSeconds) {
			return // extract.Clean lets none of it through
		}
		r.Steps[0].Timestamp = new(float64(int(at*1000)) / 1000)
		got := check.Must(r.JSONLD())(t)
		readAgain(t, r, got)
	})
}

// TestPagesAreReadAgain imports a page that holds an exported recipe, by the reader that is for other people's pages.
func TestPagesAreReadAgain(t *testing.T) {
	t.Parallel()
	want := cookies()
	// The reader of pages writes numbers in its own way, joins lines, and takes a unit without an amount for a part of the name.
	want.Description, want.Ingredients[0].Qty, want.Ingredients[2].Qty = "A classic recipe.", "2 1/2", "1"
	document := check.Must(want.JSONLD())(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!DOCTYPE html><title>x</title><script type="application/ld+json">` + string(document) + `</script>`))
	}))
	t.Cleanup(server.Close)
	sources := check.Must(source.New(source.Config{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}))(t)
	m := check.Must(sources.Fetch(t.Context(), source.Request{Type: contracts.SourceWeb, URL: server.URL + "/cookies"}, nil))(t)
	check.Require(t, m.Recipe != nil, "no recipe was found in the page")
	type part struct {
		Title, Description, Servings string
		Times                        recipe.Times
		Ingredients                  [][4]string
		Steps                        []string
	}
	of := func(r *recipe.Recipe) part {
		p := part{Title: r.Title, Description: r.Description, Servings: r.Servings, Times: r.Times}
		for _, i := range r.Ingredients {
			p.Ingredients = append(p.Ingredients, [4]string{string(i.Qty), i.Unit, i.Item, i.Note})
		}
		for _, s := range r.Steps {
			p.Steps = append(p.Steps, s.Text)
		}
		return p
	}
	check.Equal(t, of(want), of(m.Recipe))
}

// biggest is a recipe as large as may be.
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

func TestBiggestRecipeAsJSONLD(t *testing.T) {
	t.Parallel()
	r := biggest()
	check.OK(t, r.Validate())
	document, err := r.JSONLD()
	n := len(document)
	check.That(t, err == nil && n >= 400_000 && n <= 4<<20, "%d bytes of JSON-LD, %v", n, err)
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

// hostile has what would end a script element, and addresses that are none.
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
