package recipe

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Recipe is one dish: what goes in, and what is done with it.
type Recipe struct {
	// Title names the dish. Required.
	Title string `json:"title"`
	// Description is a short text about the dish, without HTML.
	Description string `json:"description,omitempty"`
	// Servings is what the recipe makes, as the source says it: "4", "4-6", "12 cookies".
	Servings string `json:"servings,omitempty"`
	// Ingredients has at least one.
	Ingredients []Ingredient `json:"ingredients"`
	// Steps has at least one, in the order in which they are done.
	Steps []Step `json:"steps"`
	// Times is what the source says about the whole recipe.
	Times Times `json:"times,omitzero"`
	// Language is the BCP 47 tag of the text, "en" or "pt-BR"; empty when it is not known.
	Language string `json:"language,omitempty"`
	// Source says where the recipe came from.
	Source Source `json:"source,omitzero"`
	// Unverified lists the fields of the recipe itself that the source does not bear out.
	Unverified []string `json:"unverified,omitempty"`
	// Warnings say what could not be done, or not fully.
	Warnings []Warning `json:"warnings,omitempty"`
}

// Ingredient is one line of the list.
type Ingredient struct {
	// Qty is how much, in digits: "2.5", "1/2", "2-3"; empty when the source does not say.
	Qty Quantity `json:"qty,omitempty"`
	// Unit is in the singular and written out, as "cup" or "gram"; empty for what is counted.
	Unit string `json:"unit,omitempty"`
	// Item is what it is: "flour". Required.
	Item string `json:"item"`
	// Note is what is to be done with it, or may be left: "sifted", "optional".
	Note string `json:"note,omitempty"`
	// Section is the heading in whose list it stands: "For the dough".
	Section string `json:"section,omitempty"`
	// Raw is the text that the ingredient was read from.
	Raw string `json:"raw,omitempty"`
	// Unverified lists the fields that the source does not bear out: "item", "qty", "unit".
	Unverified []string `json:"unverified,omitempty"`
}

// Step is one thing that is done.
type Step struct {
	// Index counts from 1.
	Index int `json:"index"`
	// Text says what is done. Required.
	Text string `json:"text"`
	// Timestamp is where in the video the step begins, in seconds; nil when the source has no time.
	Timestamp *float64 `json:"timestamp_sec,omitempty"`
	// End is where it ends, in seconds; nil when that is not known.
	End *float64 `json:"end_sec,omitempty"`
	// Times are the durations named in the step.
	Times []Duration `json:"times,omitempty"`
	// Temperatures are the temperatures and levels of heat named in the step.
	Temperatures []Temperature `json:"temperatures,omitempty"`
	// Unverified lists the fields that the source does not bear out: "text", "timestamp_sec", "times", "temperatures".
	Unverified []string `json:"unverified,omitempty"`
}

// Duration is how long something takes, or until when.
type Duration struct {
	// MinSec and MaxSec are the bounds in seconds, equal unless the source names a range, and 0 when it names none.
	MinSec int `json:"min_sec,omitempty"`
	MaxSec int `json:"max_sec,omitempty"`
	// Until is the sign by which it is done: "golden brown".
	Until string `json:"until,omitempty"`
	// Raw is the text that it was read from.
	Raw string `json:"raw"`
}

// Temperature is how hot.
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

// Times are those of the whole recipe in seconds, 0 when the source does not say.
type Times struct {
	PrepSec  int `json:"prep_sec,omitempty"`
	CookSec  int `json:"cook_sec,omitempty"`
	TotalSec int `json:"total_sec,omitempty"`
}

// Source is where a recipe came from.
type Source struct {
	// Type is a source type of the import job, such as "youtube".
	Type string `json:"source_type,omitempty"`
	// Ref is the address of the video or page.
	Ref string `json:"source_ref,omitempty"`
	// Extractor names what made the recipe: "rules".
	Extractor string `json:"extractor,omitempty"`
}

// Warning says in one word and in a sentence what a reader of the recipe should know.
type Warning struct {
	// Code is for programs, such as "language_unsupported".
	Code string `json:"code"`
	// Text is for people.
	Text string `json:"text"`
}

// Quantity is an amount as text. It reads numbers and null as well, because writers of JSON do not agree.
type Quantity string

// UnmarshalJSON accepts a string, a number, which keeps its digits, or null, which is no quantity.
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
