package source_test

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
)

//go:embed testdata/pages.txt
var pages string

// page is a page with a recipe in its encoding, as a [source.Files].
type page []byte

func (p page) Get(context.Context, [sha256.Size]byte) ([]byte, error) { return p, nil }

// Each page gives the recipe that a person reads on it. The pages have recipes in the forms that occur.
func TestPages(t *testing.T) {
	t.Parallel()
	count := 0
	for text := range strings.SplitSeq("\n"+pages, "\n== ") {
		name, text, _ := strings.Cut(text, "\n")
		head, body, ok := strings.Cut(text, "\n--\n")
		if !ok {
			continue
		}
		count++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, want := page(body), strings.Split(head, "\n")
			if label, ok := strings.CutPrefix(want[0], "encoding: "); ok {
				want = want[1:]
				encoding, err := htmlindex.Get(label)
				if label == "utf-16" {
					encoding, err = unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), nil
				}
				check.OK(t, err)
				data = check.Must(encoding.NewEncoder().Bytes(data))(t)
			}
			s := check.Must(source.New(source.Config{Files: data}))(t)
			request := source.Request{Type: contracts.SourceWeb, URL: contracts.NewFile("", data).URL()}
			m := check.Must(s.Fetch(t.Context(), request, nil))(t)
			var got []string
			if m.Recipe != nil {
				made := *m.Recipe
				made.Warnings = slices.Concat(made.Warnings, m.Warnings)
				got = facts(made)
			}
			slices.Sort(want)
			check.Equal(t, want, got)
		})
	}
	check.That(t, count >= 40, "%d pages", count)
}

// facts returns the contents of a recipe, as sorted lines: "title: Soup", "times: 60 0 60", "ingredient:
// 2|cup|flour|sifted|Crust", "step: Mix.", "warning: cut".
func facts(r recipe.Recipe) []string {
	out := []string{"title: " + r.Title}
	add := func(kind, text string) {
		if text != "" {
			out = append(out, kind+": "+text)
		}
	}
	add("serves", r.Servings)
	add("language", r.Language)
	if t := r.Times; t != (recipe.Times{}) {
		add("times", fmt.Sprintf("%d %d %d", t.PrepSec, t.CookSec, t.TotalSec))
	}
	for _, i := range r.Ingredients {
		add("ingredient", strings.Join([]string{string(i.Qty), i.Unit, i.Item, i.Note, i.Section}, "|"))
	}
	for _, s := range r.Steps {
		add("step", s.Text)
	}
	for _, w := range r.Warnings {
		add("warning", w.Code)
	}
	slices.Sort(out)
	return out
}
