package export

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/expediter-io/expediter/services/importer/recipe"
)

// document is a schema.org/Recipe.
type document struct {
	Context      string    `json:"@context"`
	Type         string    `json:"@type"`
	Name         string    `json:"name"`
	Description  string    `json:"description,omitempty"`
	Language     string    `json:"inLanguage,omitempty"`
	Yield        string    `json:"recipeYield,omitempty"`
	PrepTime     string    `json:"prepTime,omitempty"`
	CookTime     string    `json:"cookTime,omitempty"`
	TotalTime    string    `json:"totalTime,omitempty"`
	Ingredients  []string  `json:"recipeIngredient"`
	Instructions []howTo   `json:"recipeInstructions"`
	BasedOn      string    `json:"isBasedOn,omitempty"`
	Video        *video    `json:"video,omitempty"`
	Comments     []comment `json:"comment,omitempty"`
}

type howTo struct {
	Type     string `json:"@type"`
	Position int    `json:"position"`
	Text     string `json:"text"`
	URL      string `json:"url,omitempty"`
}

type video struct {
	Type string `json:"@type"`
	Name string `json:"name"`
	URL  string `json:"url"`
}

type comment struct {
	Type string `json:"@type"`
	Text string `json:"text"`
}

// JSONLD returns a recipe as schema.org/Recipe in JSON-LD. It is safe in a script element of a page: "<", ">" and "&" are
// escaped.
//
// A step with a time has a link to this time in the source, by a media fragment, "#t=120". Ingredients are lines, "2.5
// cup flour, sifted".
func JSONLD(r *recipe.Recipe) ([]byte, error) {
	ref := address(r.Source.Ref)
	d := document{
		Context: "https://schema.org", Type: "Recipe",
		Name: r.Title, Description: r.Description, Language: r.Language, Yield: r.Servings,
		PrepTime: isoDuration(r.Times.PrepSec), CookTime: isoDuration(r.Times.CookSec), TotalTime: isoDuration(r.Times.TotalSec),
		Ingredients: make([]string, 0, len(r.Ingredients)), Instructions: make([]howTo, 0, len(r.Steps)), BasedOn: ref,
	}
	for i := range r.Ingredients {
		d.Ingredients = append(d.Ingredients, ingredientLine(&r.Ingredients[i]))
	}
	for i := range r.Steps {
		step := howTo{Type: "HowToStep", Position: i + 1, Text: r.Steps[i].Text}
		if at := r.Steps[i].Timestamp; at != nil && ref != "" {
			step.URL = moment(ref, *at)
			d.Video = &video{Type: "VideoObject", Name: r.Title, URL: ref}
		}
		d.Instructions = append(d.Instructions, step)
	}
	for _, text := range remarks(r) {
		d.Comments = append(d.Comments, comment{Type: "Comment", Text: text})
	}
	out, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("export: write JSON-LD: %w", err)
	}
	return append(out, '\n'), nil
}

func ingredientLine(i *recipe.Ingredient) string {
	var parts []string
	for _, part := range []string{string(i.Qty), i.Unit, i.Item} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	text := strings.Join(parts, " ")
	if i.Note != "" {
		text += ", " + i.Note
	}
	return text
}

// isoDuration returns an ISO 8601 duration, "PT1H30M", and "" for 0.
func isoDuration(seconds int) string {
	if seconds <= 0 {
		return ""
	}
	return "PT" + strings.ToUpper(clock(seconds))
}

// address returns an http or https address in a form that is safe in a document, and "" for anything else.
func address(ref string) string {
	u, err := url.Parse(ref)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return ""
	}
	return u.String()
}

// moment returns an address with a temporal media fragment (W3C Media Fragments URI 1.0), to the millisecond.
func moment(ref string, seconds float64) string {
	base, _, _ := strings.Cut(ref, "#")
	return base + "#t=" + strconv.FormatFloat(math.Round(seconds*1000)/1000, 'f', -1, 64)
}

// draft is the text of a step in which parts are to be marked up.
type draft struct {
	text, folded string
	marks        []mark
}

// mark is the markup that replaces a part of the text.
type mark struct {
	from, to int
	markup   string
}

func newDraft(text string) *draft {
	text = line(text)
	return &draft{text: text, folded: fold(text)}
}

// fold returns a text in lower case, with every character at its position.
func fold(text string) string {
	return strings.Map(func(r rune) rune {
		if lower := unicode.ToLower(r); utf8.RuneLen(lower) == utf8.RuneLen(r) {
			return lower
		}
		return r
	}, text)
}

// mention returns the position of the first unmarked occurrence of whole words in the text, -1 if there is none.
func (d *draft) mention(folded string) (from int) {
	for at := 0; folded != ""; at++ {
		next := strings.Index(d.folded[at:], folded)
		if next < 0 {
			return -1
		}
		at += next
		if d.free(at, at+len(folded)) {
			return at
		}
	}
	return -1
}

// free reports whether a part of the text begins and ends at the bounds of words, and is unmarked.
func (d *draft) free(from, to int) bool {
	before, _ := utf8.DecodeLastRuneInString(d.text[:from])
	after, _ := utf8.DecodeRuneInString(d.text[to:])
	first, _ := utf8.DecodeRuneInString(d.text[from:])
	last, _ := utf8.DecodeLastRuneInString(d.text[:to])
	if inWord(before) && inWord(first) || inWord(after) && inWord(last) {
		return false
	}
	return !slices.ContainsFunc(d.marks, func(m mark) bool { return from < m.to && m.from < to })
}

func inWord(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r))
}

// replace replaces a part of the text by markup.
func (d *draft) replace(from, to int, markup string) {
	d.marks = append(d.marks, mark{from: from, to: to, markup: markup})
}

// String returns the text with its marks, the rest escaped.
func (d *draft) String() string {
	slices.SortFunc(d.marks, func(a, b mark) int { return a.from - b.from })
	var b strings.Builder
	at := 0
	for _, m := range d.marks {
		b.WriteString(between(d.text[at:m.from], at) + m.markup)
		at = m.to
	}
	b.WriteString(between(d.text[at:], at))
	return b.String()
}

// between escapes a part of a step that begins at a position. Some characters have a meaning at the beginning of the line,
// and others right after a mark.
func between(text string, at int) string {
	first := "({"
	if at == 0 {
		first = ">="
	}
	return escapeFirst(escape(text, inText), first)
}
