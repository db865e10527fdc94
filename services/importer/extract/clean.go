package extract

import (
	"math"
	"regexp"
	"strings"

	"golang.org/x/net/html"

	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Codes of the warnings that this package gives.
const (
	// WarnCut says that lists or texts were longer than a recipe may be.
	WarnCut = "cut"
	// WarnSourceCut says that the source was longer than is read.
	WarnSourceCut = "source_cut"
	// WarnUnverified says that fields are marked because the source does not bear them out.
	WarnUnverified = "unverified"
	// WarnInstructions says that the source speaks to a model; those sentences were not read.
	WarnInstructions = "instructions_ignored"
)

// Untitled is the title of a recipe whose source names none. It claims nothing, so there is nothing to verify about it.
const Untitled = "Untitled recipe"

var addresses = regexp.MustCompile(`(?i)\b(?:https?|ftp|file|javascript|data):[^\s<>"]*|\bwww\.[^\s<>"]+|` +
	`\b[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:com|net|org|io|tv|ly|gl|be|co|me|app|shop|store)\b(?:/[^\s<>"]*)?`)

// Clean takes HTML, addresses and invisible characters out of every text of a recipe, cuts texts and lists to their bounds,
// drops entries that are then empty, and counts the steps anew. It adds a warning when it had to cut.
func Clean(r *recipe.Recipe) {
	c := cleaner{}
	r.Title = c.line(r.Title, recipe.MaxTitle)
	r.Description = c.prose(r.Description, recipe.MaxDescription)
	r.Servings = c.line(r.Servings, recipe.MaxItem)
	r.Ingredients = keep(&c, r.Ingredients, recipe.MaxIngredients, c.ingredient)
	r.Steps = keep(&c, r.Steps, recipe.MaxSteps, c.step)
	for i := range r.Steps {
		r.Steps[i].Index = i + 1
	}
	r.Times.PrepSec, r.Times.CookSec, r.Times.TotalSec = seconds(r.Times.PrepSec), seconds(r.Times.CookSec), seconds(r.Times.TotalSec)
	r.Unverified = c.names(r.Unverified)
	r.Source.Type, r.Source.Extractor = c.line(r.Source.Type, recipe.MaxWord), c.line(r.Source.Extractor, recipe.MaxWord)
	r.Warnings = keep(&c, r.Warnings, recipe.MaxWarnings-3, func(w *recipe.Warning) bool {
		w.Code, w.Text = c.line(w.Code, recipe.MaxWord), c.line(w.Text, recipe.MaxNote)
		return w.Code != "" && w.Text != ""
	})
	if c.cut {
		warn(r, WarnCut, "The recipe was longer than may be; something was left out.")
	}
}

// warn adds a warning, once for each code.
func warn(r *recipe.Recipe, code, text string) {
	for _, w := range r.Warnings {
		if w.Code == code {
			return
		}
	}
	r.Warnings = append(r.Warnings, recipe.Warning{Code: code, Text: text})
}

type cleaner struct{ cut bool }

// keep cleans every entry, drops those that do not hold, and cuts the list.
func keep[T any](c *cleaner, list []T, most int, clean func(*T) bool) []T {
	var out []T
	for i := range list {
		if len(out) == most {
			c.cut = true
			break
		}
		if clean(&list[i]) {
			out = append(out, list[i])
		}
	}
	return out
}

func (c *cleaner) ingredient(i *recipe.Ingredient) bool {
	i.Qty = recipe.Quantity(c.line(string(i.Qty), recipe.MaxWord))
	i.Unit, i.Item = c.line(i.Unit, recipe.MaxWord), c.line(i.Item, recipe.MaxItem)
	i.Note, i.Section, i.Raw = c.line(i.Note, recipe.MaxNote), c.line(i.Section, recipe.MaxItem), c.line(i.Raw, recipe.MaxNote)
	i.Unverified = c.names(i.Unverified)
	return i.Item != ""
}

func (c *cleaner) step(s *recipe.Step) bool {
	s.Text = c.line(s.Text, recipe.MaxStep)
	if s.Timestamp != nil && !isTime(*s.Timestamp) {
		s.Timestamp = nil
	}
	if s.End != nil && (s.Timestamp == nil || !isTime(*s.End) || *s.End < *s.Timestamp) {
		s.End = nil
	}
	s.Times = keep(c, s.Times, recipe.MaxMarks, func(d *recipe.Duration) bool {
		d.MinSec, d.MaxSec = seconds(d.MinSec), seconds(d.MaxSec)
		d.MaxSec = max(d.MinSec, d.MaxSec)
		d.Until, d.Raw = c.line(d.Until, recipe.MaxNote), c.line(d.Raw, recipe.MaxNote)
		return d.Raw != ""
	})
	s.Temperatures = keep(c, s.Temperatures, recipe.MaxMarks, func(t *recipe.Temperature) bool {
		t.Level, t.Raw = c.line(t.Level, recipe.MaxWord), c.line(t.Raw, recipe.MaxNote)
		t.MaxDegrees = max(t.Degrees, t.MaxDegrees)
		if t.Scale != "F" && t.Scale != "C" && t.Scale != "gas" {
			t.Scale = ""
		}
		return t.Raw != "" && math.Abs(t.Degrees) <= recipe.MaxDegrees && math.Abs(t.MaxDegrees) <= recipe.MaxDegrees
	})
	s.Unverified = c.names(s.Unverified)
	return s.Text != ""
}

func (c *cleaner) names(list []string) []string {
	return keep(c, list, recipe.MaxMarks, func(name *string) bool {
		*name = c.line(*name, recipe.MaxWord)
		return *name != ""
	})
}

func isTime(s float64) bool { return s >= 0 && s <= recipe.MaxSeconds }

func seconds(s int) int { return min(max(s, 0), recipe.MaxSeconds) }

// line returns a text of one line within a bound.
func (c *cleaner) line(text string, most int) string {
	return c.short(strings.Join(strings.Fields(c.plain(text, most)), " "), most)
}

// prose keeps line breaks.
func (c *cleaner) prose(text string, most int) string {
	var lines []string
	for line := range strings.Lines(c.plain(text, most)) {
		line = strings.Join(strings.Fields(line), " ")
		if line != "" || len(lines) > 0 && lines[len(lines)-1] != "" {
			lines = append(lines, line)
		}
	}
	return c.short(strings.TrimSpace(strings.Join(lines, "\n")), most)
}

// PlainText returns a text without tags, with entities decoded, and without characters that cannot be seen. Addresses stay.
func PlainText(text string) string {
	text = words.Plain(text)
	// Twice, because what is left when tags and entities are gone may be tags again.
	for range 2 {
		if strings.ContainsAny(text, "<&") {
			text = withoutTags(text)
		}
	}
	return words.Plain(strings.NewReplacer("<", "", ">", "").Replace(text))
}

// plain takes out HTML and addresses. What is far over the bound is cut before, so that nobody makes it work for long.
func (c *cleaner) plain(text string, most int) string {
	if len(text) > 4*most+1000 {
		c.cut = true
		text = words.Cut(text, 4*most+1000)
	}
	text = PlainText(text)
	if strings.ContainsAny(text, ".:") {
		text = addresses.ReplaceAllString(text, "")
	}
	return strings.TrimSpace(text)
}

// withoutTags returns the text between tags, with entities decoded, without scripts and styles.
func withoutTags(text string) string {
	var b strings.Builder
	z := html.NewTokenizer(strings.NewReader(text))
	hidden := false
	for {
		switch z.Next() {
		case html.ErrorToken:
			return b.String()
		case html.TextToken:
			if !hidden {
				b.Write(z.Text())
			}
		case html.StartTagToken:
			name, _ := z.TagName()
			hidden = string(name) == "script" || string(name) == "style"
			b.WriteByte(' ')
		case html.EndTagToken:
			hidden = false
			b.WriteByte(' ')
		default:
			b.WriteByte(' ')
		}
	}
}

// short cuts at a character.
func (c *cleaner) short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	c.cut = true
	return strings.TrimSpace(words.Cut(text, most))
}
