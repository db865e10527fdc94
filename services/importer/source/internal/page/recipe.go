package page

import (
	"regexp"
	"strings"
	"unicode"

	"golang.org/x/net/html"

	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// WarnSeveral says that the page has more recipes than the one that was read.
const WarnSeveral = "several_recipes"

// Recipe returns the recipe of the page, as it stands there: it may lack ingredients or steps. Of several it is the one that
// names the page as its own, then the first that is whole, then the first.
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

// convert makes a recipe of a thing.
func (p *Page) convert(t thing) *recipe.Recipe {
	out := &recipe.Recipe{
		Title: t.text("name", "headline"), Description: markup(t.text("description")), Servings: servings(t),
		Language: t.text("inLanguage"), Ingredients: ingredients(t), Steps: instructions(t),
		Times: recipe.Times{
			PrepSec: seconds(t.text("prepTime")), CookSec: seconds(t.text("cookTime", "performTime")), TotalSec: seconds(t.text("totalTime")),
		},
	}
	if out.Title = markup(out.Title); out.Title == "" {
		out.Title = p.Title
	}
	if out.Language == "" {
		out.Language = p.Language
	}
	if p.Author == "" {
		p.Author = p.resolve(t, "author", "creator", "publisher")
	}
	return out
}

// resolve is the text of a property whose value may stand elsewhere on the page and be referred to.
func (p *Page) resolve(t thing, names ...string) string {
	for _, property := range names {
		for _, value := range t[property] {
			reference, ok := value.(thing)
			if ok && len(reference["name"]) == 0 && len(reference["@id"]) > 0 {
				for _, other := range p.things {
					if other.text("@id") == reference.text("@id") && len(other["name"]) > 0 {
						reference = other
						break
					}
				}
				if len(reference["name"]) == 0 {
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

// servings is what the recipe makes. Of several ways to say so the one in words tells most.
func servings(t thing) string {
	out := ""
	for _, property := range []string{"recipeYield", "yield"} {
		for _, value := range t[property] {
			text := markup(oneLine(name(value)))
			if out == "" || !strings.ContainsFunc(out, unicode.IsLetter) && strings.ContainsFunc(text, unicode.IsLetter) {
				out = text
			}
		}
	}
	return out
}

func ingredients(t thing) []recipe.Ingredient {
	var out []recipe.Ingredient
	for _, property := range []string{"recipeIngredient", "ingredients"} {
		for _, value := range t[property] {
			for line := range strings.Lines(markup(name(value))) {
				if i := rules.Ingredient(line); i.Item != "" && len(out) <= recipe.MaxIngredients {
					out = append(out, i)
				}
			}
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

func instructions(t thing) []recipe.Step {
	var out []recipe.Step
	for _, value := range t["recipeInstructions"] {
		steps(value, 0, &out)
	}
	return out
}

var number = regexp.MustCompile(`^(?:(?i:step)\s*)?\d{1,2}\s*[.):]\s+`)

// steps adds the steps of a value: a text, a HowToStep, or a list or a HowToSection of them.
func steps(value any, depth int, out *[]recipe.Step) {
	switch value := value.(type) {
	case string:
		for line := range strings.Lines(markup(value)) {
			step := rules.Step(number.ReplaceAllString(strings.TrimSpace(line), ""))
			if step.Text != "" && len(*out) <= recipe.MaxSteps {
				step.Index = len(*out) + 1
				*out = append(*out, step)
			}
		}
	case thing:
		if depth > maxDepth {
			return
		}
		inner := value["itemListElement"]
		if len(inner) == 0 {
			inner = value["steps"]
		}
		if value.is("HowToStep") && len(value["text"]) > 0 {
			inner = nil // directions and tips say it once more
		}
		for _, item := range inner {
			steps(item, depth+1, out)
		}
		if len(inner) == 0 {
			for _, property := range []string{"text", "description", "name", "@value"} {
				if len(value[property]) > 0 {
					steps(name(value[property][0]), depth+1, out)
					break
				}
			}
		}
	default:
	}
}

// markup is text without tags and entities, which writers of data put into it, often twice.
func markup(text string) string {
	for range 2 {
		if !strings.Contains(text, "<") {
			text = html.UnescapeString(text)
			continue
		}
		root, err := html.Parse(strings.NewReader(strings.ReplaceAll(text, "\n", "<br>")))
		if err != nil {
			break
		}
		text = plain(root)
	}
	return text
}
