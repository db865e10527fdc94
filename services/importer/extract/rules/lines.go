package rules

import (
	"strings"

	"github.com/expediter-io/expediter/services/importer/extract/internal/marks"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Ingredient reads one line of a list of ingredients, such as "2 cups flour, sifted". A line that cannot be taken apart is the
// item as a whole, so only of an empty one the item is empty.
func Ingredient(line string) recipe.Ingredient {
	line = strings.Join(strings.Fields(line), " ")
	if i, ok := ingredientLine(line); ok {
		return i
	}
	return recipe.Ingredient{Item: words.Cut(line, recipe.MaxItem), Raw: words.Cut(line, recipe.MaxNote)}
}

// Step makes a step of an instruction as it stands, with the times and temperatures that it names. Its index is 0.
func Step(text string) recipe.Step {
	step := recipe.Step{Text: words.Cut(strings.Join(strings.Fields(text), " "), recipe.MaxStep)}
	marks.Read(&step)
	return step
}
