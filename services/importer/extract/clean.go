package extract

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/services/importer/extract/internal/measure"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Codes of the warnings that this package gives.
const (
	// WarnCut means that lists or texts exceeded the bounds of a recipe.
	WarnCut = "cut"
	// WarnSourceCut means that only a part of the source was read, because of its length.
	WarnSourceCut = "source_cut"
	// WarnUnverified means that fields are marked because the source does not bear them out.
	WarnUnverified = "unverified"
	// WarnField means that an optional field did not have its form, and was left out.
	WarnField = "field_dropped"
	// WarnDescription means that sentences were left out of the description because the source does not bear them out.
	WarnDescription = "description_cut"
	// WarnNoSteps means that the source has a list of ingredients and no method.
	WarnNoSteps = "no_steps"
	// WarnInstructions means that sentences of the source address a model, and were not read.
	WarnInstructions = "instructions_ignored"
)

// Untitled is the title of a recipe whose source names none. It makes no claim, so it is not verified.
const Untitled = "Untitled recipe"

var addresses = lazyregexp.New(`(?i)\b(?:https?|ftp|file|javascript|data):[^\s<>"]*|\bwww\.[^\s<>"]+|` +
	`\b[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:com|net|org|io|tv|ly|gl|be|co|me|app|shop|store)\b(?:/[^\s<>"]*)?`)

// Clean takes HTML, addresses and invisible characters out of every text of a recipe, splits a step that is too long, cuts
// texts and lists to their bounds, drops entries that are then empty, and renumbers the steps. It adds a warning when it
// has cut, and when an optional field could not be read.
func Clean(r *recipe.Recipe) {
	c := cleaner{}
	r.Title = c.line(r.Title, recipe.MaxTitle)
	r.Description = c.prose(r.Description, recipe.MaxDescription)
	r.Servings = c.line(r.Servings, recipe.MaxItem)
	r.Ingredients = keep(&c, r.Ingredients, recipe.MaxIngredients, c.ingredient)
	r.Steps = append([]recipe.Step{}, keep(&c, c.split(r.Steps, r.Language), recipe.MaxSteps, c.step)...) // in JSON [], and never null
	for i := range r.Steps {
		r.Steps[i].Index = i + 1
	}
	for _, seconds := range []*int{&r.Times.PrepSec, &r.Times.CookSec, &r.Times.TotalSec} {
		if !c.holds(0 <= *seconds && *seconds <= recipe.MaxSeconds, "a time of the recipe") {
			*seconds = 0
		}
	}
	if _, err := language.Parse(r.Language); !c.holds(r.Language == "" || err == nil && len(r.Language) <= recipe.MaxWord,
		fmt.Sprintf("the language %.40q, which is no tag such as en or pt-BR", r.Language)) {
		r.Language = ""
	}
	c.details(&r.Details)
	r.Unverified = c.names(r.Unverified)
	r.Source.Type, r.Source.Extractor = c.line(r.Source.Type, recipe.MaxWord), c.line(r.Source.Extractor, recipe.MaxWord)
	r.Warnings = keep(&c, r.Warnings, recipe.MaxWarnings-10, func(w *recipe.Warning) bool {
		w.Code, w.Text = c.line(w.Code, recipe.MaxWord), c.line(w.Text, recipe.MaxNote)
		return w.Code != "" && w.Text != ""
	})
	if len(c.dropped) > 0 {
		warn(r, WarnField, "What is not of its form was left out: "+strings.Join(c.dropped, ", ")+".")
	}
	if c.cut {
		warn(r, WarnCut, "The recipe was longer than may be; something was left out.")
	}
}

// warn adds a warning, once.
func warn(r *recipe.Recipe, code, text string) {
	if w := (recipe.Warning{Code: code, Text: text}); !slices.Contains(r.Warnings, w) {
		r.Warnings = append(r.Warnings, w)
	}
}

type cleaner struct {
	cut     bool
	dropped []string
}

// holds reports whether a field has its form. It records the name of a field that has not.
func (c *cleaner) holds(ok bool, name string) bool {
	if !ok && !slices.Contains(c.dropped, name) {
		c.dropped = append(c.dropped, name)
	}
	return ok
}

// keep cleans every entry, drops those for which clean reports false, and cuts the list.
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

// details drops an address or an amount that is too long, for its beginning is another.
func (c *cleaner) details(d *recipe.Details) {
	for _, link := range []*string{&d.Image, &d.Video} {
		if *link = recipe.Address(*link); !c.holds(len(*link) <= recipe.MaxAddress, "an address longer than may be") {
			*link = ""
		}
	}
	for _, list := range []*[]string{&d.Authors, &d.Keywords, &d.Categories, &d.Cuisines} {
		*list = c.lines(*list, recipe.MaxWarnings, recipe.MaxItem)
	}
	d.Notes = c.lines(d.Notes, recipe.MaxWarnings, recipe.MaxStep)
	maps.DeleteFunc(d.Nutrition, func(name, amount string) bool {
		return !slices.Contains(recipe.Nutrients(), name) || !c.holds(len(amount) <= recipe.MaxItem, "the nutrition's "+name)
	})
	for name, amount := range d.Nutrition {
		if d.Nutrition[name] = c.line(amount, recipe.MaxItem); d.Nutrition[name] == "" {
			delete(d.Nutrition, name)
		}
	}
}

// split makes several steps of each step that is too long. The first keeps the time in the video.
func (c *cleaner) split(steps []recipe.Step, tag string) []recipe.Step {
	var out []recipe.Step
	for _, s := range steps {
		if len(s.Text) <= recipe.MaxStep || len(out) > recipe.MaxSteps {
			out = append(out, s)
			continue
		}
		for i, text := range pieces(c.line(s.Text, recipe.MaxSteps*recipe.MaxStep), recipe.MaxStep) {
			if len(out) > recipe.MaxSteps {
				break
			}
			piece := recipe.Step{Text: text, Unverified: s.Unverified}
			if i == 0 {
				piece.Timestamp, piece.End = s.Timestamp, s.End
			}
			measure.ReadStep(tag, &piece)
			out = append(out, piece)
		}
	}
	return out
}

var sentenceEnd = lazyregexp.New(`[.!?…]["')\]]*\s|[。！？]`)

// pieces divides a text into pieces of at most so many bytes: after the last sentence that fits, or else after the
// last word.
func pieces(text string, most int) []string {
	var out []string
	for len(text) > most {
		head := redact.Clip(text, most)
		if ends := sentenceEnd.FindAllStringIndex(head, -1); len(ends) > 0 {
			head = head[:ends[len(ends)-1][1]]
		} else if i := strings.LastIndexByte(head, ' '); i > 0 {
			head = head[:i]
		}
		out = append(out, strings.TrimSpace(head))
		text = strings.TrimSpace(text[len(head):])
	}
	return append(out, text)
}

func (c *cleaner) step(s *recipe.Step) bool {
	s.Text = c.line(s.Text, recipe.MaxStep)
	if s.Timestamp != nil && !c.holds(isTime(*s.Timestamp), "the timestamp of a step") {
		s.Timestamp = nil
	}
	if s.End != nil && !c.holds(s.Timestamp != nil && isTime(*s.End) && *s.End >= *s.Timestamp, "the end of a step") {
		s.End = nil
	}
	s.Times = keep(c, s.Times, recipe.MaxMarks, func(d *recipe.Duration) bool {
		d.MaxSec = max(d.MinSec, d.MaxSec)
		d.Until, d.Raw = c.line(d.Until, recipe.MaxNote), c.line(d.Raw, recipe.MaxNote)
		return d.Raw != "" && c.holds(0 <= d.MinSec && d.MaxSec <= recipe.MaxSeconds, "the duration of a step")
	})
	s.Temperatures = keep(c, s.Temperatures, recipe.MaxMarks, func(t *recipe.Temperature) bool {
		t.Level, t.Raw = c.line(t.Level, recipe.MaxWord), c.line(t.Raw, recipe.MaxNote)
		t.MaxDegrees = max(t.Degrees, t.MaxDegrees)
		if !c.holds(slices.Contains([]string{"", "F", "C", "gas"}, t.Scale), "the scale of a temperature") {
			t.Scale = ""
		}
		return t.Raw != "" && c.holds(math.Abs(t.Degrees) <= recipe.MaxDegrees && math.Abs(t.MaxDegrees) <= recipe.MaxDegrees,
			"the temperature of a step")
	})
	s.Unverified = c.names(s.Unverified)
	return s.Text != ""
}

func (c *cleaner) names(list []string) []string {
	return c.lines(list, recipe.MaxMarks, recipe.MaxWord)
}

func (c *cleaner) lines(list []string, most, longest int) []string {
	return keep(c, list, most, func(text *string) bool {
		*text = c.line(*text, longest)
		return *text != ""
	})
}

func isTime(s float64) bool { return s >= 0 && s <= recipe.MaxSeconds }

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
	// Twice, because the text may have tags again when tags and entities are gone.
	for range 2 {
		if strings.ContainsAny(text, "<&") {
			text = withoutTags(text)
		}
	}
	return words.Plain(strings.NewReplacer("<", "", ">", "").Replace(text))
}

// plain takes out HTML and addresses. It first cuts a text far over the bound, to bound its own work.
func (c *cleaner) plain(text string, most int) string {
	if text == "" {
		return ""
	}
	if len(text) > 4*most+1000 {
		c.cut = true
		text = redact.Clip(text, 4*most+1000)
	}
	text = PlainText(text)
	if strings.ContainsAny(text, ".:") {
		whole := text
		text = addresses.ReplaceAllString(text, "")
		c.holds(text == whole, "addresses within texts")
	}
	return strings.TrimSpace(text)
}

// withoutTags returns the text between tags, with entities decoded, without scripts and styles.
func withoutTags(text string) string {
	var b strings.Builder
	z := html.NewTokenizer(strings.NewReader(text))
	hidden := false
	for kind := z.Next(); kind != html.ErrorToken; kind = z.Next() {
		if kind != html.TextToken {
			name, _ := z.TagName()
			hidden = kind == html.StartTagToken && (string(name) == "script" || string(name) == "style")
			b.WriteByte(' ')
		} else if !hidden {
			b.Write(z.Text())
		}
	}
	return b.String()
}

// short cuts a text after a whole character.
func (c *cleaner) short(text string, most int) string {
	if len(text) <= most {
		return text
	}
	c.cut = true
	return strings.TrimSpace(redact.Clip(text, most))
}
