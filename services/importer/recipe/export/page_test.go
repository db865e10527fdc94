package export_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/recipe/export"
	"github.com/expediter-io/expediter/services/importer/source"
)

// TestPagesAreReadAgain imports a page that holds an exported recipe, by the reader that is for other people's pages.
func TestPagesAreReadAgain(t *testing.T) {
	t.Parallel()
	want := cookies()
	// The reader of pages writes numbers in its own way, joins lines, and takes a unit without an amount for a part of the name.
	want.Description, want.Ingredients[0].Qty, want.Ingredients[2].Qty = "A classic recipe.", "2 1/2", "1"
	document, err := export.JSONLD(want)
	check.OK(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!DOCTYPE html><title>x</title><script type="application/ld+json">` + string(document) + `</script>`))
	}))
	t.Cleanup(server.Close)
	sources, err := source.New(source.Config{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	check.OK(t, err)
	m, err := sources.Fetch(t.Context(), source.Request{Type: contracts.SourceWeb, URL: server.URL + "/cookies"}, nil)
	check.OK(t, err)
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
	n := len(export.Cooklang(r))
	check.That(t, n >= 400_000 && n <= 4<<20, "%d bytes of Cooklang", n)
	document, err := export.JSONLD(r)
	n = len(document)
	check.That(t, err == nil && n >= 400_000 && n <= 4<<20, "%d bytes of JSON-LD, %v", n, err)
}

func BenchmarkBiggestRecipe(b *testing.B) {
	r := biggest()
	for b.Loop() {
		export.Cooklang(r)
	}
}
