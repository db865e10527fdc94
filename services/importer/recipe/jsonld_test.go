package recipe_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"go.uber.org/goleak"
	"golang.org/x/net/html"

	"github.com/expediter-io/expediter/internal/testbed"
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
			testbed.Golden(t, filepath.Join("testdata", name+".jsonld"), got)
		})
	}
}

// schemaOrg is the part of a document that holds texts and addresses of strangers.
type schemaOrg struct {
	Name         string   `json:"name"`
	Description  string   `json:"description"`
	Ingredients  []string `json:"recipeIngredient"`
	Instructions []struct {
		Text string `json:"text"`
		URL  string `json:"url"`
	} `json:"recipeInstructions"`
	Video *struct {
		URL string `json:"url"`
	} `json:"video"`
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
	check.Equal(t, len(scripts), 1, "scripts")
	return scripts[0]
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
		check.Equal(t, got.Instructions[0].URL, want, ref)
		check.That(t,
			(got.Video != nil) == (want != "") && !strings.Contains(string(data), "secret") && !strings.Contains(string(data), "</script>"),
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
		document := check.Must(r.JSONLD())(t)
		check.Equal(t, inPage(t, document), string(document))
		var got schemaOrg
		check.OK(t, json.Unmarshal(document, &got))
		line := got.Ingredients[0]
		check.That(t, got.Name == title && got.Description == text && len(got.Ingredients) == 1 && strings.Contains(line, title) &&
			len(got.Instructions) == 1 && got.Instructions[0].Text == text, "%+v", got)
	})
}

// TestPagesAreReadAgain imports a page that holds an exported recipe, by the reader that is for other people's pages.
func TestPagesAreReadAgain(t *testing.T) {
	t.Parallel()
	want := cookies()
	// The reader of pages writes numbers in its own way.
	want.Ingredients[1].Qty, want.Ingredients[3].Qty = "2 1/2", "1"
	document := check.Must(want.JSONLD())(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/export" {
			w.Header().Set("Content-Type", recipe.MediaTypeJSONLD)
			_, _ = w.Write(document)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!DOCTYPE html><title>x</title><script type="application/ld+json">` + string(document) + `</script>`))
	}))
	t.Cleanup(server.Close)
	sources := check.Must(source.New(source.Config{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}))(t)
	m := check.Must(sources.Fetch(t.Context(), source.Request{Type: source.TypeWeb, URL: server.URL + "/cookies"}, nil))(t)
	check.Require(t, m.Recipe != nil, "no recipe was found in the page")
	check.Equal(t, source.KindOf("", document), source.TypeWeb, "the type of the export")
	export := check.Must(sources.Fetch(t.Context(), source.Request{Type: source.TypeWeb, URL: server.URL + "/export"}, nil))(t)
	export.Recipe.Source = m.Recipe.Source
	check.Equal(t, export.Recipe, m.Recipe)
	check.Equal(t, m.Recipe.Details.Video, want.Source.Ref)
	got := *m.Recipe
	got.Source, got.Details.Video, got.Language = want.Source, "", want.Language
	for i := range got.Ingredients {
		got.Ingredients[i].Raw = ""
	}
	for i := range got.Steps { // read from the text again
		got.Steps[i].Times, got.Steps[i].Temperatures = want.Steps[i].Times, want.Steps[i].Temperatures
	}
	check.Equal(t, &got, want)
	again := check.Must(m.Recipe.JSONLD())(t)
	check.Equal(t, strings.ReplaceAll(string(again), m.Recipe.Source.Ref, want.Source.Ref), string(document), "the second export")
}

// samples are recipes by the name of their golden files.
func samples() map[string]*recipe.Recipe {
	return map[string]*recipe.Recipe{"cookies": cookies(), "hostile": hostile()}
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
			{Item: "oil", Note: "for the tray"},
			{Qty: "2.5", Unit: "cup", Item: "flour", Note: "sifted", Section: "For the dough"},
			{Qty: "1/2", Unit: "cup", Item: "olive oil", Section: "For the dough"},
			{Unit: "pinch", Item: "salt", Section: "For the dough"},
			{Qty: "2", Item: "eggs", Section: "Layer 2"},
			{Qty: "200", Unit: "gram", Item: "chocolate chips", Section: "Layer 2", Unverified: []string{"qty", "unit"}},
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
		Details: recipe.Details{
			Image: "https://cdn.example/cookies.jpg?w=1200", Authors: []string{"A. Cook", "Bäckerei"}, Keywords: []string{"quick", "for children"},
			Categories: []string{"Dessert, sweet", "Snack"}, Cuisines: []string{"American"},
			Nutrition: map[string]string{"calories": "270 kcal", "servingSize": "1 cookie", "saturatedFatContent": "3,5 g"},
			Notes:     []string{"Keep them in a tin.", "Bake 2: they freeze well."},
		},
		Unverified: []string{"servings"},
		Warnings:   []recipe.Warning{{Code: "unverified", Text: "Some of it was not found in the source; the fields are marked."}},
	}
}

// hostile has what would end a script element, and addresses that are none.
func hostile() *recipe.Recipe {
	return &recipe.Recipe{
		Title:       `</script><script>alert(1)</script> "---" & @all: #1`,
		Description: "---\n>> source: https://evil.example\n\u2028<!-- [- x -]",
		Servings:    "4: no #comment", Language: "pt-Latn-BR",
		Source:      recipe.Source{Ref: "javascript:alert(1)"},
		Ingredients: []recipe.Ingredient{{Qty: `</b>`, Unit: `\`, Item: `"salt" & 'pepper'`, Note: "<!--"}},
		Steps:       []recipe.Step{{Index: 1, Text: `</script>`}, {Index: 2, Text: "\u2028--> \\"}},
		Unverified:  []string{"title"},
		Warnings:    []recipe.Warning{{Code: "x", Text: "> @salt{} -- [- x"}},
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestValidateNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	check.OK(t, tea().Validate())
	r := recipe.Recipe{}
	var invalid *contracts.ValidationError
	check.Require(t, errors.As(r.Validate(), &invalid) && errors.Is(invalid, contracts.ErrInvalid), "it is valid")
	var paths []string
	for _, f := range invalid.Fields {
		paths = append(paths, f.Path)
	}
	check.Equal(t, paths, []string{"/title", "/ingredients"})
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
		check.That(t, json.Unmarshal([]byte(`{"qty":`+text+`}`), &i) != nil, "%s is %q", text, i.Qty)
	}
}
