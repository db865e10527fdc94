package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// recipeCard is a recipe as a text for a person: its title, yield and times, the ingredients, the steps with their times in the video,
// and remarks.
type recipeCard struct {
	bold   bool
	out    strings.Builder
	unsure bool // a field was marked
}

// line writes a line, unless there is no text.
func (c *recipeCard) line(indent, text string) {
	if text = strings.Join(strings.Fields(terminal.Printable(text)), " "); text != "" {
		c.out.WriteString(indent + text + "\n")
	}
}

func (c *recipeCard) heading(text string) {
	if text = terminal.Printable(text); c.bold {
		text = "\x1b[1m" + text + "\x1b[0m"
	}
	c.out.WriteString(text + "\n")
}

// mark returns the mark for fields that the source does not confirm, or "".
func (c *recipeCard) mark(unverified []string, fields ...string) string {
	if !slices.ContainsFunc(fields, func(field string) bool { return slices.Contains(unverified, field) }) {
		return ""
	}
	c.unsure = true
	return " (?)"
}

// newRecipeCard writes a recipe with a source in the reader's words. bold marks headings with ANSI sequences.
func newRecipeCard(r *recipe.Recipe, source string, bold bool) string {
	c := recipeCard{bold: bold}
	c.heading(r.Title + c.mark(r.Unverified, "title"))
	c.line("", yieldAndTimes(r))
	c.line("", source)
	if !repeatsIngredients(r) {
		c.line("\n", r.Description)
	}
	c.out.WriteByte('\n')
	c.heading("Ingredients")
	section := ""
	for _, i := range r.Ingredients {
		if i.Section != section {
			section = i.Section
			c.line("  ", strings.TrimSuffix(section, ":")+":")
		}
		text := string(i.Qty) + " " + i.Unit + " " + i.Item
		if i.Note != "" {
			text += ", " + i.Note
		}
		c.line("  ", text+c.mark(i.Unverified, "item", "qty", "unit"))
	}
	c.out.WriteByte('\n')
	c.heading("Steps")
	for n, s := range r.Steps {
		text := strconv.Itoa(n+1) + ". "
		if s.Timestamp != nil {
			at := time.Duration(*s.Timestamp) * time.Second
			text += fmt.Sprintf("[%s] ", at)
		}
		c.line("  ", text+s.Text+c.mark(s.Unverified, "text", "timestamp_sec", "times", "temperatures"))
	}
	c.remarks(r.Warnings)
	return c.out.String()
}

// yieldAndTimes returns the yield and the times of a recipe.
func yieldAndTimes(r *recipe.Recipe) string {
	var facts []string
	switch s := r.Servings; {
	case s == "":
	case strings.ContainsFunc(s, unicode.IsLetter):
		facts = append(facts, "Makes "+s)
	default:
		facts = append(facts, "Serves "+s)
	}
	for _, t := range []struct {
		name    string
		seconds int
	}{{"prep", r.Times.PrepSec}, {"cook", r.Times.CookSec}, {"total", r.Times.TotalSec}} {
		if t.seconds > 0 {
			took := time.Duration(t.seconds) * time.Second
			facts = append(facts, t.name+" "+strings.Replace(took.String(), "m0s", "m", 1))
		}
	}
	return strings.Join(facts, ", ")
}

// repeatsIngredients reports whether the description contains the list that follows it, as descriptions of videos often do.
func repeatsIngredients(r *recipe.Recipe) bool {
	found := 0
	for _, i := range r.Ingredients {
		if i.Raw != "" && strings.Contains(r.Description, i.Raw) {
			found++
		}
	}
	return found > 1
}

// remarks writes remarks for the reader.
func (c *recipeCard) remarks(warnings []recipe.Warning) {
	var texts []string
	for _, w := range warnings {
		if w.Code != extract.WarnUnverified { // which the marks show
			texts = append(texts, cmp.Or(w.Text, w.Code))
		}
	}
	if c.unsure {
		texts = append(texts, "What is marked (?) was not found in the source.")
	}
	if len(texts) > 0 {
		c.out.WriteByte('\n')
	}
	for _, text := range texts {
		c.line("! ", text)
	}
}
