package page

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// WarnSeveral means that the page has more recipes than the one that was read.
const WarnSeveral = "several_recipes"

// Recipe returns the recipe of the page, unchanged: it may lack ingredients or steps. Of several recipes it returns the one
// that names the page as its address, or else the first complete one, or else the first.
func (p *Page) Recipe() (*recipe.Recipe, bool) {
	best, bestScore, whole := thing(nil), -1, 0
	for _, t := range p.things {
		if !t.is("Recipe") {
			continue
		}
		score := 0
		if len(ingredients(t)) > 0 && len(instructions(t)) > 0 {
			score += 2
			whole++
		}
		if score == 2 && p.isOwn(t) {
			score++
		}
		if score > bestScore {
			best, bestScore = t, score
		}
	}
	if best == nil {
		return nil, false
	}
	out := p.convert(best)
	if whole > 1 && bestScore < 3 {
		out.Warnings = append(out.Warnings, recipe.Warning{Code: WarnSeveral, Text: "The page has several recipes; this is the first of them."})
	}
	return out, true
}

// isOwn reports whether a recipe names the page as its address.
func (p *Page) isOwn(t thing) bool {
	for _, property := range []string{"url", "mainEntityOfPage", "@id"} {
		for _, value := range t[property] {
			if reference, ok := value.(thing); ok {
				value = reference.text("@id", "url")
			}
			text, ok := value.(string)
			if !ok || text == "" {
				continue
			}
			if u, err := p.address.Parse(text); err == nil && u.Host == p.address.Host && u.Path == p.address.Path {
				return true
			}
		}
	}
	return false
}

// convert makes a recipe of a thing. It leaves out optional fields that cannot be read, with a warning.
func (p *Page) convert(t thing) *recipe.Recipe {
	out := &recipe.Recipe{
		Title: markup(t.text("name", "headline")), Description: markup(t.text("description")), Servings: servings(t),
		Language: t.text("inLanguage"), Ingredients: ingredients(t), Steps: instructions(t),
	}
	var unread []string
	duration := func(to *int, names ...string) {
		text := durationOf(t, names...)
		var ok bool
		if *to, ok = seconds(text); !ok && text != "" {
			unread = append(unread, fmt.Sprintf("%s %.40q", names[0], text))
		}
	}
	duration(&out.Times.PrepSec, "prepTime")
	duration(&out.Times.CookSec, "cookTime", "performTime")
	duration(&out.Times.TotalSec, "totalTime")
	if out.Servings == "" && len(t["recipeYield"]) > 0 {
		unread = append(unread, "recipeYield")
	}
	if p.Author = cmp.Or(p.Author, p.resolve(t, "author", "creator", "publisher")); p.Author == "" && len(t["author"]) > 0 {
		unread = append(unread, "author")
	}
	if len(unread) > 0 {
		out.Warnings = append(out.Warnings, recipe.Warning{
			Code: extract.WarnField, Text: "The page has fields that cannot be read, and were left out: " + strings.Join(unread, ", ") + ".",
		})
	}
	out.Title = cmp.Or(out.Title, p.Title)
	out.Language = cmp.Or(out.Language, p.Language)
	return out
}

// maxReferences is the number of references to other parts of the page that are followed for one property.
const maxReferences = 20

// durationOf returns a duration as text, of a range the upper bound.
func durationOf(t thing, names ...string) string {
	for _, name := range names {
		for _, value := range t[name] {
			if of, ok := value.(thing); ok {
				value = of.text("maxValue", "@value", "value", "minValue", "text", "name", "duration")
			}
			if text, ok := value.(string); ok && strings.TrimSpace(text) != "" {
				return oneLine(text)
			}
		}
	}
	return ""
}

// resolve returns the text of a property whose value may be a reference to another part of the page.
func (p *Page) resolve(t thing, names ...string) string {
	named := map[string]thing{}
	for _, other := range slices.Backward(p.things) { // the first of an id counts
		if len(other["@id"]) > 0 && len(other["name"]) > 0 {
			named[other.text("@id")] = other
		}
	}
	for _, property := range names {
		for _, value := range t[property][:min(len(t[property]), maxReferences)] {
			reference, ok := value.(thing)
			if ok && len(reference["name"]) == 0 && len(reference["@id"]) > 0 {
				if reference, ok = named[reference.text("@id")]; !ok {
					continue
				}
				value = reference
			}
			if text := oneLine(name(value)); text != "" {
				return text
			}
		}
	}
	return ""
}

// servings returns the yield of the recipe. It prefers a text with words to a number alone.
func servings(t thing) string {
	out := ""
	for _, property := range []string{"recipeYield", "yield"} {
		for _, value := range t[property] {
			text := name(value)
			if of, ok := value.(thing); ok {
				text = cmp.Or(quantity(of), text)
			}
			text = markup(oneLine(text))
			if out == "" || !strings.ContainsFunc(out, unicode.IsLetter) && strings.ContainsFunc(text, unicode.IsLetter) {
				out = text
			}
		}
	}
	return out
}

// quantity returns a QuantitativeValue as text: "4 servings", "4-6 pieces". It is empty for a thing without values.
func quantity(t thing) string {
	amount := t.text("value", "amount", "quantity")
	if low, high := t.text("minValue"), t.text("maxValue"); amount == "" && low != high && low != "" && high != "" {
		amount = low + "-" + high
	} else if amount == "" {
		amount = cmp.Or(low, high)
	}
	if amount == "" {
		return ""
	}
	return strings.TrimSpace(amount + " " + t.text("unitText", "unit"))
}

func ingredients(t thing) []recipe.Ingredient {
	var out []recipe.Ingredient
	for _, property := range []string{"recipeIngredient", "ingredients"} {
		section := ""
		for _, value := range t[property] {
			supplies(value, &section, &out)
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

// supplies adds the ingredients of a value: lines of text, a thing with a quantity, or a list with a name, which is a section.
func supplies(value any, section *string, out *[]recipe.Ingredient) {
	text := name(value)
	if t, ok := value.(thing); ok {
		list := slices.Concat(t["itemListElement"], t["recipeIngredient"], t["ingredients"], t["item"])
		if len(list) > 0 {
			if heading := t.text("name"); heading != "" {
				*section = markup(heading)
			}
			for _, item := range list {
				supplies(item, section, out)
			}
			return
		}
		text = t.lines("name", "text", "food", "ingredient", "@value", "description")
		amount := quantity(t)
		for _, needed := range t["requiredQuantity"] {
			if of, ok := needed.(thing); ok {
				amount = cmp.Or(amount, quantity(of))
			}
			amount = cmp.Or(amount, oneLine(name(needed)))
		}
		if !strings.HasPrefix(text, amount) {
			text = amount + " " + text
		}
	}
	for line := range strings.Lines(markup(text)) {
		if len(*out) > recipe.MaxIngredients {
			return
		}
		if heading, ok := strings.CutSuffix(strings.TrimSpace(line), ":"); ok && !strings.ContainsFunc(heading, unicode.IsDigit) {
			*section = heading
		} else if i := rules.Ingredient(line); i.Item != "" {
			i.Section = *section
			*out = append(*out, i)
		}
	}
}

func instructions(t thing) []recipe.Step {
	var out []recipe.Step
	for _, value := range t["recipeInstructions"] {
		steps(value, &out)
	}
	return out
}

var (
	number = regexp.MustCompile(`^(?:(?i:step)\s*)?\d{1,2}\s*[.):]\s+`)

	// numbers are the marks inside of a text that may begin a step.
	numbers = regexp.MustCompile(`(?i)(?:^|[\s.!?])(?:step\s*)?(\d{1,2})\s*[.):]\s*`)

	// label is a name of a step or section without meaning: "Step 1", "Schritt 2:", "Method".
	label = regexp.MustCompile(`(?i)^(?:\pL*\s*\d+|instructions?|directions?|method|preparation|steps?)\s*[.:)]*$`)
)

// steps adds the steps of a value: a text, a HowToStep, or a list or a HowToSection of them. The name of a step or section
// begins its text.
func steps(value any, out *[]recipe.Step) {
	switch value := value.(type) {
	case string:
		for line := range strings.Lines(markup(value)) {
			for _, text := range numbered(strings.TrimSpace(line)) {
				if len(*out) > recipe.MaxSteps {
					return
				}
				if step := rules.Step(number.ReplaceAllString(text, "")); step.Text != "" {
					step.Index = len(*out) + 1
					*out = append(*out, step)
				}
			}
		}
	case thing:
		first := len(*out)
		text := value.lines("text", "description", "@value")
		inner := slices.Concat(value["itemListElement"], value["steps"], value["step"], value["item"])
		if len(inner) == 0 || text != "" && value.is("HowToStep") { // directions and tips repeat the text
			steps(cmp.Or(text, value.lines("name")), out)
		} else {
			for _, item := range inner {
				steps(item, out)
			}
		}
		if first < len(*out) && !value.is("ItemList") {
			titled(&(*out)[first], markup(value.text("name")))
		}
	default:
	}
}

// titled puts a name before the text of a step, unless the text begins with it, or the name has no meaning.
func titled(step *recipe.Step, title string) {
	title = strings.TrimRight(title, " .…:")
	begins := len(step.Text) >= len(title) && strings.EqualFold(step.Text[:len(title)], title)
	if title == "" || label.MatchString(title) || begins {
		return
	}
	index := step.Index
	*step = rules.Step(title + ": " + step.Text)
	step.Index = index
}

// numbered divides a text before each of the numbers 1, 2, 3 and so on that mark its steps.
func numbered(text string) []string {
	var out []string
	begin, next := 0, 1
	for _, m := range numbers.FindAllStringSubmatchIndex(text, -1) {
		if after, _ := utf8.DecodeRuneInString(text[m[1]:]); text[m[2]:m[3]] != strconv.Itoa(next) || unicode.IsDigit(after) {
			continue
		}
		next++
		if m[0] > begin {
			cut := m[0] + len(strings.TrimRight(text[m[0]:m[0]+1], " \t")) // the mark at the end of a sentence stays before the cut
			out, begin = append(out, strings.TrimSpace(text[begin:cut])), cut
		}
	}
	if next == 2 {
		return []string{text}
	}
	return append(out, strings.TrimSpace(text[begin:]))
}

// markup returns a text without tags and entities, which programs put into data, often encoded twice.
func markup(text string) string {
	for range 2 {
		if !strings.Contains(text, "<") {
			text = html.UnescapeString(text)
			continue
		}
		text = plain(strings.ReplaceAll(text, "\n", "<br>"))
	}
	return text
}
