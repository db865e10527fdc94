// Package card writes a recipe for a person at a terminal.
package card

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/rivo/uniseg"

	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

const (
	defaultWidth = 80
	minWidth     = 40
	maxWidth     = 100 // longer lines are hard to read

	// maxAmount is the largest width of the column with the amounts, in cells. A longer amount sticks out.
	maxAmount = 16

	// unsure marks fields that the source does not confirm.
	unsure = " (?)"
)

// Options configure how a recipe is written.
type Options struct {
	// Bold marks headings with ANSI sequences. Defaults to false.
	Bold bool

	// Source is the source of the recipe, in the reader's words. Defaults to the recipe's own reference.
	Source string

	// Width is the width of the terminal, in cells. Defaults to 80. At least 40 and at most 100 cells are used.
	Width int
}

// Write writes a recipe: its title, yield and times, the ingredients, the steps with their times in the video, and
// remarks for the reader.
func Write(w io.Writer, r *recipe.Recipe, opts Options) error {
	c := card{bold: opts.Bold, recipe: r, width: min(max(cmp.Or(opts.Width, defaultWidth), minWidth), maxWidth)}
	c.heading(r.Title + c.mark(r.Unverified, "title"))
	c.paragraph("", c.facts())
	c.paragraph("", cmp.Or(opts.Source, r.Source.Ref))
	if r.Description != "" && !c.repeats(r.Description) {
		c.out.WriteByte('\n')
		c.paragraph("", r.Description)
	}
	c.ingredients()
	c.steps()
	c.remarks()
	_, err := w.Write(c.out.Bytes())
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// card is a recipe that is being written.
type card struct {
	bold   bool
	out    bytes.Buffer
	recipe *recipe.Recipe
	unsure bool // a field was marked
	width  int
}

func (c *card) heading(text string) {
	text = table.Printable(text)
	if c.bold {
		text = "\x1b[1m" + text + "\x1b[0m"
	}
	c.out.WriteString(text + "\n")
}

// mark returns the mark for fields that the source does not confirm, or "".
func (c *card) mark(unverified []string, fields ...string) string {
	for _, field := range fields {
		if slices.Contains(unverified, field) {
			c.unsure = true
			return unsure
		}
	}
	return ""
}

// repeats reports whether a description contains the lists that follow it, as descriptions of videos often do.
func (c *card) repeats(description string) bool {
	found := 0
	for _, i := range c.recipe.Ingredients {
		if i.Raw != "" && strings.Contains(description, i.Raw) {
			found++
		}
	}
	return found > 1
}

// facts returns the yield and the times of the recipe.
func (c *card) facts() string {
	var facts []string
	switch s := c.recipe.Servings; {
	case s == "":
	case strings.ContainsFunc(s, unicode.IsLetter):
		facts = append(facts, "Makes "+s)
	default:
		facts = append(facts, "Serves "+s)
	}
	for _, t := range []struct {
		name    string
		seconds int
	}{{"prep", c.recipe.Times.PrepSec}, {"cook", c.recipe.Times.CookSec}, {"total", c.recipe.Times.TotalSec}} {
		if t.seconds > 0 {
			facts = append(facts, t.name+" "+span(t.seconds))
		}
	}
	return strings.Join(facts, ", ")
}

// span returns a time in words: "1 h 30 min".
func span(seconds int) string {
	d := time.Duration(seconds) * time.Second
	var parts []string
	for _, p := range []struct {
		unit time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "min"}, {time.Second, "s"}} {
		if n := d / p.unit; n > 0 {
			parts = append(parts, strconv.Itoa(int(n))+" "+p.name)
		}
		d %= p.unit
	}
	return strings.Join(parts, " ")
}

func (c *card) ingredients() {
	c.out.WriteByte('\n')
	c.heading("Ingredients")
	amounts := make([]string, len(c.recipe.Ingredients))
	column := 0
	for n, i := range c.recipe.Ingredients {
		amounts[n] = table.Printable(c.amount(i))
		if cells := uniseg.StringWidth(amounts[n]); cells <= maxAmount {
			column = max(column, cells)
		}
	}
	section := ""
	for n, i := range c.recipe.Ingredients {
		if i.Section != section {
			section = i.Section
			c.paragraph("  ", strings.TrimSuffix(section, ":")+":")
		}
		text := i.Item
		if i.Note != "" {
			text += ", " + i.Note
		}
		first := "  " + amounts[n] + strings.Repeat(" ", max(column-uniseg.StringWidth(amounts[n]), 0))
		if column > 0 {
			first += "  "
		}
		c.hanging(first, text+c.mark(i.Unverified, "item", "qty", "unit"))
	}
}

// amount returns the amount of an ingredient, with the unit in the plural where English requires it.
func (c *card) amount(i recipe.Ingredient) string {
	unit := i.Unit
	if english := c.recipe.Language == "" || strings.HasPrefix(c.recipe.Language, "en"); english && many(string(i.Qty)) {
		unit = plural(unit)
	}
	return strings.TrimSpace(string(i.Qty) + " " + unit)
}

// many reports whether an amount is more than one.
func many(qty string) bool {
	if strings.ContainsAny(qty, "-–") {
		return true
	}
	whole, fraction, mixed := strings.Cut(qty, " ")
	if n, err := strconv.ParseFloat(whole, 64); err == nil {
		return n > 1 || mixed && fraction != ""
	}
	return false
}

func plural(unit string) string {
	switch {
	case unit == "":
		return ""
	case unit == "leaf":
		return "leaves"
	case strings.HasSuffix(unit, "ch"), strings.HasSuffix(unit, "sh"), strings.HasSuffix(unit, "s"), strings.HasSuffix(unit, "x"):
		return unit + "es"
	}
	return unit + "s"
}

func (c *card) steps() {
	c.out.WriteByte('\n')
	c.heading("Steps")
	digits := len(strconv.Itoa(len(c.recipe.Steps)))
	stamps := 0
	for _, s := range c.recipe.Steps {
		stamps = max(stamps, len(stamp(s.Timestamp)))
	}
	for n, s := range c.recipe.Steps {
		first := fmt.Sprintf("  %*d. ", digits, n+1)
		if stamps > 0 {
			first += fmt.Sprintf("%*s  ", stamps, stamp(s.Timestamp))
		}
		c.hanging(first, s.Text+c.mark(s.Unverified, "text", "timestamp_sec", "times", "temperatures"))
	}
}

// stamp returns a time in a video, as players show it: "1:05".
func stamp(at *float64) string {
	if at == nil {
		return ""
	}
	seconds := int(*at)
	if seconds >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
	}
	return fmt.Sprintf("%d:%02d", seconds/60, seconds%60)
}

// remarks writes remarks for the reader.
func (c *card) remarks() {
	var texts []string
	for _, warning := range c.recipe.Warnings {
		if warning.Code == extract.WarnUnverified {
			continue // the marks show it
		}
		texts = append(texts, cmp.Or(warning.Text, warning.Code))
	}
	if c.unsure {
		texts = append(texts, "What is marked (?) was not found in the source.")
	}
	if len(texts) > 0 {
		c.out.WriteByte('\n')
	}
	for _, text := range texts {
		c.hanging("! ", text)
	}
}

// paragraph writes text in lines of the width, each indented. It writes nothing for an empty text.
func (c *card) paragraph(indent, text string) {
	if strings.TrimSpace(text) != "" {
		c.hanging(indent, text)
	}
}

// hanging writes text in lines of the width. All lines after the first are indented by the width of first.
func (c *card) hanging(first, text string) {
	indent := strings.Repeat(" ", uniseg.StringWidth(first))
	line, cells, empty := first, uniseg.StringWidth(first), true
	for word := range strings.FieldsSeq(table.Printable(text)) {
		size := uniseg.StringWidth(word)
		if !empty && cells+1+size > c.width {
			c.out.WriteString(strings.TrimRight(line, " ") + "\n")
			line, cells, empty = indent, len(indent), true
		}
		if !empty {
			line, cells = line+" ", cells+1
		}
		line, cells, empty = line+word, cells+size, false
	}
	c.out.WriteString(strings.TrimRight(line, " ") + "\n")
}
