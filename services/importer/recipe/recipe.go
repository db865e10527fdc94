package recipe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// Recipe is one dish: what goes in, and what is done with it.
type Recipe struct {
	// Title names the dish. Required.
	Title string `json:"title"`
	// Description is a short text about the dish, without HTML.
	Description string `json:"description,omitempty"`
	// Servings is the yield of the recipe, as the source has it: "4", "4-6", "12 cookies".
	Servings string `json:"servings,omitempty"`
	// Ingredients has at least one.
	Ingredients []Ingredient `json:"ingredients"`
	// Steps has at least one, in the order in which they are done.
	Steps []Step `json:"steps"`
	// Times are the times of the whole recipe.
	Times Times `json:"times,omitzero"`
	// Language is the BCP 47 tag of the text, "en" or "pt-BR"; empty when it is not known.
	Language string `json:"language,omitempty"`
	// Source is the source of the recipe.
	Source Source `json:"source,omitzero"`
	// Unverified lists the fields of the recipe itself that the source does not bear out.
	Unverified []string `json:"unverified,omitempty"`
	// Warnings are remarks on what was left out or is uncertain.
	Warnings []Warning `json:"warnings,omitempty"`
}

// Ingredient is one line of the list.
type Ingredient struct {
	// Qty is the amount, in digits: "2.5", "1/2", "2-3"; empty when the source has none.
	Qty Quantity `json:"qty,omitempty"`
	// Unit is in the singular and written out, as "cup" or "gram"; empty for what is counted.
	Unit string `json:"unit,omitempty"`
	// Item is the food: "flour". Required.
	Item string `json:"item"`
	// Note is a remark: "sifted", "optional".
	Note string `json:"note,omitempty"`
	// Section is the heading of the part of the list: "For the dough".
	Section string `json:"section,omitempty"`
	// Raw is the text from which the ingredient was read.
	Raw string `json:"raw,omitempty"`
	// Unverified lists the fields that the source does not bear out: "item", "qty", "unit".
	Unverified []string `json:"unverified,omitempty"`
}

// Step is one step of the method.
type Step struct {
	// Index counts from 1.
	Index int `json:"index"`
	// Text is the instruction. Required.
	Text string `json:"text"`
	// Timestamp is the time in the video at which the step begins, in seconds; nil when the source has no times.
	Timestamp *float64 `json:"timestamp_sec,omitempty"`
	// End is the time at which the step ends, in seconds; nil when it is not known.
	End *float64 `json:"end_sec,omitempty"`
	// Times are the durations named in the step.
	Times []Duration `json:"times,omitempty"`
	// Temperatures are the temperatures and levels of heat named in the step.
	Temperatures []Temperature `json:"temperatures,omitempty"`
	// Unverified lists the fields that the source does not bear out: "text", "timestamp_sec", "times", "temperatures".
	Unverified []string `json:"unverified,omitempty"`
}

// Duration is the time that an action takes, or a sign of its end.
type Duration struct {
	// MinSec and MaxSec are the bounds in seconds: equal unless the source names a range, and 0 when it names no time.
	MinSec int `json:"min_sec,omitempty"`
	MaxSec int `json:"max_sec,omitempty"`
	// Until is the sign that the action is done: "golden brown".
	Until string `json:"until,omitempty"`
	// Raw is the text that it was read from.
	Raw string `json:"raw"`
}

// Temperature is a temperature or a level of heat.
type Temperature struct {
	// Degrees and MaxDegrees are the bounds, equal unless the source names a range, and 0 when it names a level only.
	Degrees    float64 `json:"degrees,omitempty"`
	MaxDegrees float64 `json:"max_degrees,omitempty"`
	// Scale is "F", "C" or "gas"; empty when the source names none and the number fits both.
	Scale string `json:"scale,omitempty"`
	// Level is a level of heat: "medium-high", "simmer".
	Level string `json:"level,omitempty"`
	// Raw is the text that it was read from.
	Raw string `json:"raw"`
}

// Times are the times of the whole recipe in seconds, 0 when the source has none.
type Times struct {
	PrepSec  int `json:"prep_sec,omitempty"`
	CookSec  int `json:"cook_sec,omitempty"`
	TotalSec int `json:"total_sec,omitempty"`
}

// Source is the source of a recipe.
type Source struct {
	// Type is a source type of the import job, such as "youtube".
	Type string `json:"source_type,omitempty"`
	// Ref is the address of the video or page.
	Ref string `json:"source_ref,omitempty"`
	// Extractor is the name of the extractor that made the recipe: "rules".
	Extractor string `json:"extractor,omitempty"`
}

// Warning is a remark for readers of the recipe, as one word and as a sentence.
type Warning struct {
	// Code is for programs, such as "language_unsupported".
	Code string `json:"code"`
	// Text is for people.
	Text string `json:"text"`
}

// Quantity is an amount as text. It also accepts numbers and null, which some programs write.
type Quantity string

// UnmarshalJSON accepts a string, a number, whose digits it keeps, or null, which is "".
func (q *Quantity) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	if len(data) > 0 && (data[0] == '-' || data[0] >= '0' && data[0] <= '9') {
		var n json.Number
		if err := json.Unmarshal(data, &n); err != nil {
			return fmt.Errorf("recipe: decode qty %.40q: %w", data, err)
		}
		*q = Quantity(n)
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("recipe: decode qty %.40q, which is no string, number or null: %w", data, err)
	}
	*q = Quantity(text)
	return nil
}

// Bounds of a recipe: lengths in bytes of UTF-8, lists in entries.
const (
	MaxTitle       = 300
	MaxDescription = 5000
	MaxIngredients = 200
	MaxSteps       = 200
	// MaxWord bounds quantities, units, names of fields, scales and levels.
	MaxWord = 64
	// MaxItem bounds items, sections and servings.
	MaxItem = 200
	// MaxNote bounds notes and raw texts.
	MaxNote = 500
	// MaxStep bounds the text of a step.
	MaxStep = 2000
	// MaxMarks bounds times, temperatures and unverified fields of one entry.
	MaxMarks = 20
	// MaxWarnings bounds the warnings.
	MaxWarnings = 50
	// MaxSeconds bounds times and timestamps: one week.
	MaxSeconds = 7 * 24 * 60 * 60
	// MaxDegrees bounds temperatures.
	MaxDegrees = 2000
)

// Validate checks all fields. The error is a *contracts.ValidationError, which names each failing field by its JSON
// Pointer and matches contracts.ErrInvalid.
func (r *Recipe) Validate() error {
	var c checks
	c.required("/title", r.Title, MaxTitle)
	c.prose("/description", r.Description, MaxDescription)
	c.text("/servings", r.Servings, MaxItem)
	c.count("/ingredients", len(r.Ingredients), 1, MaxIngredients)
	for i := range min(len(r.Ingredients), MaxIngredients) {
		r.Ingredients[i].validate(&c, fmt.Sprintf("/ingredients/%d", i))
	}
	c.count("/steps", len(r.Steps), 1, MaxSteps)
	for i := range min(len(r.Steps), MaxSteps) {
		path, step := fmt.Sprintf("/steps/%d", i), &r.Steps[i]
		if step.Index != i+1 {
			c.add(path+"/index", fmt.Sprintf("is %d, must be %d", step.Index, i+1))
		}
		step.validate(&c, path)
	}
	c.seconds("/times/prep_sec", float64(r.Times.PrepSec))
	c.seconds("/times/cook_sec", float64(r.Times.CookSec))
	c.seconds("/times/total_sec", float64(r.Times.TotalSec))
	if _, err := language.Parse(r.Language); r.Language != "" && (err != nil || len(r.Language) > MaxWord) {
		c.add("/language", "is not a BCP 47 tag")
	}
	c.text("/source/source_type", r.Source.Type, MaxWord)
	c.text("/source/source_ref", r.Source.Ref, contracts.MaxURL)
	c.text("/source/extractor", r.Source.Extractor, MaxWord)
	c.names("/unverified", r.Unverified)
	c.count("/warnings", len(r.Warnings), 0, MaxWarnings)
	for i := range min(len(r.Warnings), MaxWarnings) {
		path := fmt.Sprintf("/warnings/%d", i)
		c.required(path+"/code", r.Warnings[i].Code, MaxWord)
		c.required(path+"/text", r.Warnings[i].Text, MaxNote)
	}
	return c.err()
}

func (i *Ingredient) validate(c *checks, path string) {
	c.text(path+"/qty", string(i.Qty), MaxWord)
	c.text(path+"/unit", i.Unit, MaxWord)
	c.required(path+"/item", i.Item, MaxItem)
	c.text(path+"/note", i.Note, MaxNote)
	c.text(path+"/section", i.Section, MaxItem)
	c.text(path+"/raw", i.Raw, MaxNote)
	c.names(path+"/unverified", i.Unverified)
}

func (s *Step) validate(c *checks, path string) {
	c.required(path+"/text", s.Text, MaxStep)
	if s.Timestamp != nil {
		c.seconds(path+"/timestamp_sec", *s.Timestamp)
	}
	if s.End != nil {
		c.seconds(path+"/end_sec", *s.End)
		if s.Timestamp == nil || *s.End < *s.Timestamp {
			c.add(path+"/end_sec", "must come with a timestamp_sec that is not after it")
		}
	}
	c.count(path+"/times", len(s.Times), 0, MaxMarks)
	for i := range min(len(s.Times), MaxMarks) {
		s.Times[i].validate(c, fmt.Sprintf("%s/times/%d", path, i))
	}
	c.count(path+"/temperatures", len(s.Temperatures), 0, MaxMarks)
	for i := range min(len(s.Temperatures), MaxMarks) {
		s.Temperatures[i].validate(c, fmt.Sprintf("%s/temperatures/%d", path, i))
	}
	c.names(path+"/unverified", s.Unverified)
}

func (d *Duration) validate(c *checks, path string) {
	c.seconds(path+"/min_sec", float64(d.MinSec))
	c.seconds(path+"/max_sec", float64(d.MaxSec))
	if d.MaxSec < d.MinSec {
		c.add(path+"/max_sec", "is less than min_sec")
	}
	c.text(path+"/until", d.Until, MaxNote)
	c.required(path+"/raw", d.Raw, MaxNote)
}

func (t *Temperature) validate(c *checks, path string) {
	c.degrees(path+"/degrees", t.Degrees)
	c.degrees(path+"/max_degrees", t.MaxDegrees)
	if t.MaxDegrees < t.Degrees {
		c.add(path+"/max_degrees", "is less than degrees")
	}
	switch t.Scale {
	case "", "F", "C", "gas":
	default:
		c.add(path+"/scale", "must be F, C, gas or empty")
	}
	c.text(path+"/level", t.Level, MaxWord)
	c.required(path+"/raw", t.Raw, MaxNote)
}

// checks collects the failing fields.
type checks struct{ fields []contracts.FieldError }

func (c *checks) add(path, problem string) {
	c.fields = append(c.fields, contracts.FieldError{Path: path, Problem: problem})
}

func (c *checks) err() error {
	if len(c.fields) == 0 {
		return nil
	}
	return &contracts.ValidationError{Type: "Recipe", Fields: c.fields}
}

func (c *checks) required(path, text string, most int) {
	if strings.TrimSpace(text) == "" {
		c.add(path, "is required")
		return
	}
	c.text(path, text, most)
}

// text checks a text of one line.
func (c *checks) text(path, text string, most int) {
	if strings.ContainsFunc(text, unicode.IsControl) {
		c.add(path, "has control characters or line breaks")
		return
	}
	c.prose(path, text, most)
}

// prose checks a text that may have several lines.
func (c *checks) prose(path, text string, most int) {
	switch {
	case len(text) > most:
		c.add(path, fmt.Sprintf("has %d bytes, at most %d", len(text), most))
	case !utf8.ValidString(text):
		c.add(path, "is not valid UTF-8")
	}
}

func (c *checks) count(path string, n, least, most int) {
	switch {
	case n < least:
		c.add(path, "is required")
	case n > most:
		c.add(path, fmt.Sprintf("has %d entries, at most %d", n, most))
	}
}

func (c *checks) names(path string, names []string) {
	c.count(path, len(names), 0, MaxMarks)
	for i := range min(len(names), MaxMarks) {
		c.required(fmt.Sprintf("%s/%d", path, i), names[i], MaxWord)
	}
}

func (c *checks) seconds(path string, s float64) {
	if math.IsNaN(s) || s < 0 || s > MaxSeconds {
		c.add(path, fmt.Sprintf("is %v, must be 0 to %d seconds", s, MaxSeconds))
	}
}

func (c *checks) degrees(path string, d float64) {
	if math.IsNaN(d) || math.Abs(d) > MaxDegrees {
		c.add(path, fmt.Sprintf("is %v, must be within %d degrees", d, MaxDegrees))
	}
}
