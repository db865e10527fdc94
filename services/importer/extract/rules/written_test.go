package rules_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// writtenText is a recipe as people write it down, and what is to be read of it: title, servings, times, and the numbers of ingredients
// and steps.
type writtenText struct{ name, want, text string }

func writtenTexts(t *testing.T) []writtenText {
	t.Helper()
	var out []writtenText
	for part := range strings.SplitSeq("\n"+string(check.Must(os.ReadFile("testdata/written.txt"))(t)), "\n=== ") {
		if head, text, ok := strings.Cut(part, "\n"); ok {
			name, want, _ := strings.Cut(head, " | ")
			out = append(out, writtenText{name, want, text})
		}
	}
	return out
}

// handedIn is the input of a text that was handed in as a file.
func handedIn(text string) extract.Input {
	in := extract.Input{Title: "scan 0001", Description: text, Untimed: true}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			in.Segments = append(in.Segments, caption.Segment{Text: line})
		}
	}
	return in
}

func TestWrittenRecipes(t *testing.T) {
	t.Parallel()
	for _, c := range writtenTexts(t) {
		c.text = strings.TrimSpace(c.text)
		for form, text := range map[string]string{
			"as it is": c.text, "CRLF": strings.ReplaceAll(c.text, "\n", "\r\n"),
			"far apart": strings.ReplaceAll(c.text, "\n\n", "\n\n\n"), "with spaces behind": strings.ReplaceAll(c.text, "\n", "  \n"),
		} {
			r, err := rules.New().Extract(t.Context(), handedIn(text))
			got := fmt.Sprintf("%s | %s | %d/%d/%d | %d | %d", r.Title, r.Servings, r.Times.PrepSec, r.Times.CookSec, r.Times.TotalSec,
				len(r.Ingredients), len(r.Steps))
			check.That(t, len(r.Warnings) > 0 || !strings.HasPrefix(c.name, "for the skin"), "%s: no warning", c.name)
			check.That(t, err == nil && got == c.want, "%s, %s: %v\n got %s\nwant %s\n%s", c.name, form, err, got, c.want, shown(r))
			for _, w := range r.Warnings {
				want := map[string]string{"several recipes": rules.WarnSeveral, "trailing credits": extract.WarnField, "for the": rules.WarnDoubtful}
				check.That(t, w.Code == want[strings.Join(strings.Fields(c.name)[:2], " ")], "%s: warning %+v", c.name, w)
			}
			for _, s := range r.Steps {
				_, err := strconv.Atoi(strings.Trim(s.Text, ". "))
				check.That(t, err != nil && len(s.Unverified) == 0, "%s: step %+v", c.name, s)
				check.That(t, !strings.HasPrefix(s.Text, fmt.Sprint(s.Index, " ")) && !strings.HasPrefix(s.Text, "Step"), "%s: step %+v has its label", c.name, s)
			}
		}
	}
}

// A talk that was written down is read as a talk, though its lines begin with amounts.
func TestATalkWithoutTimesIsNoWrittenRecipe(t *testing.T) {
	t.Parallel()
	r, err := rules.New().Extract(t.Context(), handedIn(`so hello everybody today we are making pancakes
you need two cups of flour and a cup of milk
2 spoons of sugar and then we add
3 eggs to the bowl
mix it all together really well
and fry them in a hot pan with butter for about two minutes on each side
and they are done thank you for watching`))
	check.That(t, err == nil && len(r.Warnings) == 1 && r.Warnings[0].Code == rules.WarnSpoken && len(r.Steps) > 0 && r.Title == "Scan 0001",
		"error %v, warnings %+v: want what is said\n%s", err, r.Warnings, shown(r))
}

// A list of ingredients under a heading is kept without a method: neither its entries nor an introduction or notes become steps.
func TestAListWithoutAMethod(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ title, text string }{
		{"Trail mix", "Trail mix\n\nI mix this for each hike. It keeps for weeks.\n\nIngredients\n2 cups nuts, chopped\n1 cup raisins\n1 tsp salt\n\nNotes\nAdd chocolate in winter."},
		{"Kräutersalz", "Kräutersalz\n\nZutaten:\n- 200 g Salz\n- 2 EL Rosmarin, gehackt\n- 1 TL Thymian\n\nTipp:\nHält 6 Monate."},
		{"Mélange d'épices", "Mélange d'épices\n\nIngrédients\n2 c. à soupe de cumin\n1 c. à café de paprika\n10 g de sel"},
		{"Смесь специй", "Смесь специй\n\nИнгредиенты\n2 ст. л. паприки\n1 ч. л. соли\n10 г перца"},
	} {
		r, err := rules.New().Extract(t.Context(), handedIn(c.text))
		check.That(t, err == nil && r.Title == c.title && len(r.Ingredients) == 3 && r.Steps != nil && len(r.Steps) == 0 && len(r.Warnings) == 1 &&
			r.Warnings[0].Code == extract.WarnNoSteps, "error %v, warnings %+v\n%s\n%s", err, r.Warnings, r.Title, shown(r))
	}
}

// What is said above a list is the method, when it is one.
func TestAMethodAboveTheList(t *testing.T) {
	t.Parallel()
	r, err := rules.New().Extract(t.Context(), handedIn("Chop the onions finely and fry them in butter for ten minutes.\nAdd the flour and stir for one minute.\n"+
		"Pour in the stock and simmer for half an hour.\nBlend the soup until smooth.\n\nIngredients\n4 onions\n1 tbsp flour\n1 litre stock\n50 g butter"))
	check.That(t, err == nil && len(r.Steps) == 4 && len(r.Ingredients) == 4 && len(r.Warnings) == 0, "error %v, warnings %+v\n%s", err, r.Warnings, shown(r))
}

func shown(r recipe.Recipe) string {
	out := []string{"description: " + r.Description}
	for _, i := range r.Ingredients {
		out = append(out, fmt.Sprintf("- %s [%s|%s|%s] %s", i.Raw, i.Qty, i.Unit, i.Item, i.Section))
	}
	for _, s := range r.Steps {
		out = append(out, fmt.Sprintf("%d. %s", s.Index, s.Text))
	}
	return strings.Join(out, "\n")
}

// Every word of a text is in the recipe, but for the words of headings and labels.
func TestNothingOfAWrittenRecipeIsLost(t *testing.T) {
	t.Parallel()
	for _, c := range writtenTexts(t) {
		r, err := rules.New().Extract(t.Context(), handedIn(c.text))
		if err != nil || len(r.Warnings) > 0 {
			continue // TestWrittenRecipes
		}
		kept := strings.ToLower(string(check.Must(json.Marshal(r))(t)))
		for line := range strings.Lines(strings.ToLower(c.text)) {
			words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\n.,:;·*#|()<>/•", r) })
			lost := slices.DeleteFunc(words, func(w string) bool { return strings.Contains(kept, strings.TrimSpace(w)) })
			if len(words) > 6 && !strings.ContainsAny(line, "<|·") && !strings.Contains(c.name, "chat") { // headings and labels are shorter, or stand side by side
				check.That(t, len(lost) < 3, "%s: %q is not in the recipe: %q", c.name, line, lost)
			}
		}
	}
}
