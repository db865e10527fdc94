package recipe

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// MediaTypeJSONLD is the media type of [Recipe.JSONLD].
const MediaTypeJSONLD = "application/ld+json"

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

// JSONLD returns a valid recipe as schema.org/Recipe in JSON-LD. Strangers wrote its texts: "<", ">" and "&" are escaped,
// so that it is safe in a script element of a page.
//
// A step with a time has a link to this time in the source, by a media fragment, "#t=120". Ingredients are lines, "2.5
// cup flour, sifted". schema.org has no place for sections of ingredients, nor for times and temperatures of steps: they
// are left out. Comments have the warnings and name the fields that were not found in the source.
func (r *Recipe) JSONLD() ([]byte, error) {
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
	for _, text := range r.remarks() {
		d.Comments = append(d.Comments, comment{Type: "Comment", Text: text})
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
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return "PT" + strings.ToUpper(text)
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

// remarks returns remarks on a recipe for its reader.
func (r *Recipe) remarks() []string {
	var out, fields []string
	for _, w := range r.Warnings {
		out = append(out, w.Text)
	}
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
	if len(fields) > 0 {
		out = append(out, "Not found in the source: "+strings.Join(fields, "; ")+".")
	}
	return out
}
