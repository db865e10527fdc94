package recipe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// MediaTypeJSONLD is the media type of [Recipe.JSONLD].
const MediaTypeJSONLD = "application/ld+json"

// document is a schema.org/Recipe.
type document struct {
	Context      string            `json:"@context"`
	Type         string            `json:"@type"`
	Name         string            `json:"name"`
	Description  string            `json:"description,omitempty"`
	Language     string            `json:"inLanguage,omitempty"`
	Yield        string            `json:"recipeYield,omitempty"`
	PrepTime     string            `json:"prepTime,omitempty"`
	CookTime     string            `json:"cookTime,omitempty"`
	TotalTime    string            `json:"totalTime,omitempty"`
	Image        string            `json:"image,omitempty"`
	Authors      []person          `json:"author,omitempty"`
	Keywords     string            `json:"keywords,omitempty"`
	Categories   []string          `json:"recipeCategory,omitempty"`
	Cuisines     []string          `json:"recipeCuisine,omitempty"`
	Nutrition    map[string]string `json:"nutrition,omitempty"`
	Ingredients  []string          `json:"recipeIngredient"`
	Instructions []howTo           `json:"recipeInstructions"`
	BasedOn      string            `json:"isBasedOn,omitempty"`
	Video        *video            `json:"video,omitempty"`
	Comments     []comment         `json:"comment,omitempty"`
}

type howTo struct {
	Type     string `json:"@type"`
	Position int    `json:"position"`
	Text     string `json:"text"`
	URL      string `json:"url,omitempty"`
	Video    *clip  `json:"video,omitempty"`
}

type clip struct {
	Type  string   `json:"@type"`
	Start float64  `json:"startOffset"`
	End   *float64 `json:"endOffset,omitempty"`
}

type person struct {
	Type string `json:"@type"`
	Name string `json:"name"`
}

type video struct {
	Type string `json:"@type"`
	Name string `json:"name"`
	URL  string `json:"url"`
}

type comment struct {
	Type string `json:"@type"`
	Name string `json:"name"`
	Text string `json:"text"`
}

// JSONLD returns a valid recipe as schema.org/Recipe in JSON-LD. Strangers wrote its texts: "<", ">" and "&" are escaped,
// so that it is safe in a script element of a page.
//
// The importer reads the document back as the same recipe. Ingredients are lines, "2.5 cup flour, sifted", and a section is a
// line before its ingredients, "For the dough:", as many sites have it; ingredients without a section come first. A step with
// a time is a clip of the video, and has a link by a media fragment, "#t=120". Comments have the notes, the warnings and the
// fields that were not found in the source. Left out are raw texts, and the times and temperatures of steps, which are read
// from the texts again. The source becomes isBasedOn: that of an import of the document is the document.
func (r *Recipe) JSONLD() ([]byte, error) {
	sorted := *r
	sorted.Ingredients = slices.SortedStableFunc(slices.Values(r.Ingredients), func(a, b Ingredient) int {
		return min(len(a.Section), 1) - min(len(b.Section), 1)
	})
	r = &sorted
	ref, more := Address(r.Source.Ref), r.Details
	filmed := cmp.Or(Address(more.Video), ref)
	d := document{
		Context: "https://schema.org", Type: "Recipe",
		Name: r.Title, Description: r.Description, Language: r.Language, Yield: r.Servings,
		PrepTime: isoDuration(r.Times.PrepSec), CookTime: isoDuration(r.Times.CookSec), TotalTime: isoDuration(r.Times.TotalSec),
		Image: Address(more.Image), Keywords: strings.Join(more.Keywords, ", "), Categories: more.Categories, Cuisines: more.Cuisines,
		Ingredients: make([]string, 0, len(r.Ingredients)), Instructions: make([]howTo, 0, len(r.Steps)), BasedOn: ref,
	}
	for _, name := range more.Authors {
		d.Authors = append(d.Authors, person{Type: "Person", Name: name})
	}
	if len(more.Nutrition) > 0 {
		d.Nutrition = maps.Clone(more.Nutrition)
		d.Nutrition["@type"] = "NutritionInformation"
	}
	section, timed := "", more.Video != ""
	for i := range r.Ingredients {
		if s := strings.TrimRight(r.Ingredients[i].Section, ": "); s != section {
			section = s
			if strings.ContainsAny(section, "0123456789") { // which is no heading otherwise
				s = "## " + section
			} else {
				s += ":"
			}
			d.Ingredients = append(d.Ingredients, s)
		}
		d.Ingredients = append(d.Ingredients, ingredientLine(&r.Ingredients[i]))
	}
	for i := range r.Steps {
		step := howTo{Type: "HowToStep", Position: i + 1, Text: r.Steps[i].Text}
		if at := r.Steps[i].Timestamp; at != nil {
			step.Video = &clip{Type: "Clip", Start: *at, End: r.Steps[i].End}
			if timed = true; filmed != "" {
				step.URL = moment(filmed, *at)
			}
		}
		d.Instructions = append(d.Instructions, step)
	}
	if timed && filmed != "" {
		d.Video = &video{Type: "VideoObject", Name: r.Title, URL: filmed}
	}
	for _, text := range more.Notes {
		d.Comments = append(d.Comments, comment{"Comment", "Note", text})
	}
	for _, w := range r.Warnings {
		d.Comments = append(d.Comments, comment{"Comment", warned + w.Code, w.Text})
	}
	if text := r.unverified(); text != "" {
		d.Comments = append(d.Comments, comment{"Comment", "Unverified", text})
	}
	out, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("recipe: write JSON-LD: %w", err)
	}
	return append(out, '\n'), nil
}

func ingredientLine(i *Ingredient) string {
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
	text := (time.Duration(seconds) * time.Second).String()
	return "PT" + strings.ToUpper(strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(text))
}

// Address returns an http or https address in a form that is safe in a document, and "" for anything else.
func Address(ref string) string {
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

const (
	// warned begins the name of a comment that is a warning. The rest is its code.
	warned = "Warning: "
	// unfound begins the text of the comment with the fields that were not found.
	unfound = "Not found in the source: "
)

// unverified lists the fields that were not found in the source, and is empty when there are none.
func (r *Recipe) unverified() string {
	var fields []string
	add := func(where string, unverified []string) {
		if len(unverified) > 0 {
			fields = append(fields, where+strings.Join(unverified, ", "))
		}
	}
	add("", r.Unverified)
	for i := range r.Ingredients {
		add(fmt.Sprintf("ingredient %d: ", i+1), r.Ingredients[i].Unverified)
	}
	for i := range r.Steps {
		add(fmt.Sprintf("step %d: ", i+1), r.Steps[i].Unverified)
	}
	if len(fields) == 0 {
		return ""
	}
	return unfound + strings.Join(fields, "; ") + "."
}

// Remark adds what a comment of [Recipe.JSONLD] says about a recipe: a warning, or the fields that were not found in the
// source. It reports whether the comment is one of these, and not a note.
func (r *Recipe) Remark(name, text string) bool {
	if code, ok := strings.CutPrefix(name, warned); ok && !strings.Contains(code, " ") {
		r.Warnings = append(r.Warnings, Warning{Code: code, Text: text})
		return true
	}
	list, ok := strings.CutPrefix(text, unfound)
	if !ok {
		return false
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(list, "."), "; ") {
		where, fields, found := strings.Cut(part, ": ")
		kind, number, _ := strings.Cut(where, " ")
		at, _ := strconv.Atoi(number)
		var to *[]string
		switch {
		case !found:
			to, fields = &r.Unverified, part
		case kind == "ingredient" && 0 < at && at <= len(r.Ingredients):
			to = &r.Ingredients[at-1].Unverified
		case kind == "step" && 0 < at && at <= len(r.Steps):
			to = &r.Steps[at-1].Unverified
		default:
			continue
		}
		for field := range strings.SplitSeq(fields, ", ") {
			if !slices.Contains(*to, field) {
				*to = append(*to, field)
			}
		}
	}
	return true
}
