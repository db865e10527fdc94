package recipe_test

import (
	"fmt"

	"github.com/expediter-io/expediter/services/importer/recipe"
)

func ExampleRecipe_JSONLD() {
	soft := recipe.Recipe{
		Title: "Soft eggs", Times: recipe.Times{TotalSec: 480}, Source: recipe.Source{Ref: "https://video.example/eggs"},
		Ingredients: []recipe.Ingredient{{Qty: "2", Item: "eggs"}},
		Steps:       []recipe.Step{{Index: 1, Text: "Boil the eggs.", Timestamp: new(42.0)}},
	}
	document, err := soft.JSONLD()
	fmt.Printf("%v\n%s", err, document)
	// Output:
	// <nil>
	// {
	//   "@context": "https://schema.org",
	//   "@type": "Recipe",
	//   "name": "Soft eggs",
	//   "totalTime": "PT8M",
	//   "recipeIngredient": [
	//     "2 eggs"
	//   ],
	//   "recipeInstructions": [
	//     {
	//       "@type": "HowToStep",
	//       "position": 1,
	//       "text": "Boil the eggs.",
	//       "url": "https://video.example/eggs#t=42",
	//       "video": {
	//         "@type": "Clip",
	//         "startOffset": 42
	//       }
	//     }
	//   ],
	//   "isBasedOn": "https://video.example/eggs",
	//   "video": {
	//     "@type": "VideoObject",
	//     "name": "Soft eggs",
	//     "url": "https://video.example/eggs"
	//   }
	// }
}
