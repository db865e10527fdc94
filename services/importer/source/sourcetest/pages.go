// Package sourcetest has a stand-in for YouTube, for tests, from which yt-dlp fetches videos as from the real site.
package sourcetest

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/unicode"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/source"
)

//go:embed pages.txt
var pages string

// Page is a page with a recipe.
type Page struct {
	// Name describes the case.
	Name string
	// Body is the page in its encoding.
	Body []byte
	// Want are the facts of the recipe, see [Facts].
	Want []string
}

// Pages returns pages with recipes in the forms that occur. The error names a page whose description has a mistake.
func Pages() ([]Page, error) {
	var out []Page
	for text := range strings.SplitSeq("\n"+pages, "\n== ") {
		name, text, _ := strings.Cut(text, "\n")
		head, body, ok := strings.Cut(text, "\n--\n")
		if !ok {
			continue
		}
		p := Page{Name: name, Body: []byte(body), Want: strings.Split(head, "\n")}
		if label, ok := strings.CutPrefix(p.Want[0], "encoding: "); ok {
			p.Want = p.Want[1:]
			encoding, err := htmlindex.Get(label)
			if label == "utf-16" {
				encoding = unicode.UTF16(unicode.LittleEndian, unicode.UseBOM)
			}
			if err == nil {
				p.Body, err = encoding.NewEncoder().Bytes(p.Body)
			}
			if err != nil {
				return nil, fmt.Errorf("sourcetest: page %q: %w", name, err)
			}
		}
		slices.Sort(p.Want)
		out = append(out, p)
	}
	return out, nil
}

// Get implements [source.Files] for the body of the page.
func (p Page) Get(context.Context, [sha256.Size]byte) ([]byte, error) { return p.Body, nil }

// Read reads the page, and returns the facts of its recipe.
func (p Page) Read(ctx context.Context) ([]string, error) {
	s, err := source.New(source.Config{Files: p})
	if err != nil {
		return nil, fmt.Errorf("sourcetest: %w", err)
	}
	m, err := s.Fetch(ctx, source.Request{Type: contracts.SourceWeb, URL: contracts.NewFile("", p.Body).URL()}, nil)
	if err != nil {
		return nil, fmt.Errorf("sourcetest: read page %q: %w", p.Name, err)
	}
	if m.Recipe == nil {
		return nil, nil
	}
	made := *m.Recipe
	made.Warnings = slices.Concat(made.Warnings, m.Warnings)
	return Facts(made), nil
}

// Facts returns the contents of a recipe, as sorted lines: "title: Soup", "times: 60 0 60", "ingredient:
// 2|cup|flour|sifted|Crust", "step: Mix.", "warning: cut".
func Facts(r recipe.Recipe) []string {
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
