package rules

import (
	"strings"

	"github.com/expediter-io/expediter/services/importer/extract/internal/marks"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Ingredient reads one line of a list of ingredients, such as "2 cups flour, sifted". A line that cannot be taken apart is the
// item as a whole, so only of an empty one the item is empty. Nothing is cut: extract.Clean does.
func Ingredient(line string) recipe.Ingredient {
	line = strings.Join(strings.Fields(line), " ")
	if len(line) <= 4*recipe.MaxNote { // what is longer has no parts
		if i, ok := ingredientLine(line); ok {
			return i
		}
	}
	return recipe.Ingredient{Item: line, Raw: line}
}

// Step makes a step of an instruction as it stands, with the times and temperatures that it names. Its index is 0. Nothing
// is cut: extract.Clean does.
func Step(text string) recipe.Step {
	step := recipe.Step{Text: strings.Join(strings.Fields(text), " ")}
	if len(step.Text) <= recipe.MaxStep { // else those of each piece are read
		marks.Read(&step)
	}
	return step
}
