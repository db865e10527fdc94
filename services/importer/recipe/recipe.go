package recipe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

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
	// Steps are in the order in which they are done. A recipe of a written source may have none.
	Steps []Step `json:"steps"`
	// Times are the times of the whole recipe.
	Times Times `json:"times,omitzero"`
	// Details are what the page adds about the dish.
	Details Details `json:"details,omitzero"`
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

// Details are what the structured data of a page says about a dish, as the publisher wrote it. No extractor reads them from
// speech or text.
type Details struct {
	// Image is the http or https address of a photo of the dish, without credentials.
	Image string `json:"image,omitempty" jsonschema:"format=uri"`
	// Video is the http or https address of the video in which the steps have their timestamps, without credentials.
	Video string `json:"video,omitempty" jsonschema:"format=uri"`
	// Authors are the names of people or organizations.
	Authors []string `json:"authors,omitempty"`
	// Keywords are words such as "quick".
	Keywords []string `json:"keywords,omitempty"`
	// Categories are such as "main course".
	Categories []string `json:"categories,omitempty"`
	// Cuisines are such as "Italian".
	Cuisines []string `json:"cuisines,omitempty"`
	// Nutrition has the amounts in one serving, "270 kcal", by the names in [Nutrients].
	Nutrition map[string]string `json:"nutrition,omitempty"`
	// Notes are the publisher's remarks, such as tips, variations and storage.
	Notes []string `json:"notes,omitempty"`
}

// Nutrients returns the properties of schema.org/NutritionInformation.
func Nutrients() []string {
	return strings.Fields(`calories carbohydrateContent cholesterolContent fatContent fiberContent proteinContent
		saturatedFatContent servingSize sodiumContent sugarContent transFatContent unsaturatedFatContent`)
}

// Facts returns the details as labels and texts for display, without those that are empty. Each note is one.
func (d *Details) Facts() (out [][2]string) {
	var amounts []string
	for _, name := range Nutrients() {
		if amount := d.Nutrition[name]; amount != "" {
			label := capital.ReplaceAllString(strings.TrimSuffix(name, "Content"), " $0")
			amounts = append(amounts, strings.ToLower(label)+" "+amount)
		}
	}
	lists := [][]string{d.Authors, d.Categories, d.Cuisines, d.Keywords, amounts, {d.Image}, {d.Video}}
	for i, label := range strings.Fields("By Category Cuisine Keywords Nutrition Photo Video") {
		if text := strings.Join(lists[i], ", "); text != "" {
			out = append(out, [2]string{label, text})
		}
	}
	for _, note := range d.Notes {
		out = append(out, [2]string{"Note", note})
	}
	return out
}

var capital = regexp.MustCompile(`[A-Z]`)

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
	// MaxStep bounds the text of a step, and a note of the details.
	MaxStep = 2000
	// MaxAddress bounds the addresses of the details.
	MaxAddress = 2048
	// MaxMarks bounds times, temperatures and unverified fields of one entry.
	MaxMarks = 20
	// MaxWarnings bounds the warnings, and each list of the details.
	MaxWarnings = 50
	// MaxSeconds bounds times and timestamps: one week.
	MaxSeconds = 7 * 24 * 60 * 60
	// MaxDegrees bounds temperatures.
	MaxDegrees = 2000
)

// Validate reports which of the parts that make a recipe are missing: title and ingredients. It does not check bounds:
// extract.Clean keeps them. The error is a *contracts.ValidationError, which names each missing field by its JSON Pointer and
// matches contracts.ErrInvalid.
func (r *Recipe) Validate() error {
	var missing contracts.Mistakes
	missing.Add(r.Title == "", "/title", "is required")
	missing.Add(len(r.Ingredients) == 0, "/ingredients", "is required")
	return missing.In("Recipe")
}
