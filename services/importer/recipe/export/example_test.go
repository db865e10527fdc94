package export_test

import (
	"fmt"

	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/recipe/export"
)

func ExampleCooklang() {
	fmt.Printf("%s", export.Cooklang(&recipe.Recipe{
		Title:       "Soft eggs",
		Ingredients: []recipe.Ingredient{{Qty: "2", Item: "eggs"}, {Unit: "pinch", Item: "salt"}},
		Steps: []recipe.Step{{
			Index: 1, Text: "Boil the eggs for six minutes.", Timestamp: new(42.0),
			Times: []recipe.Duration{{MinSec: 360, MaxSec: 360, Raw: "six minutes"}},
		}},
	}))
	// Output:
	// ---
	// title: Soft eggs
	// ---
	//
	// @salt{some%pinch}
	//
	// Boil the @eggs{2} for ~{6%minutes}. [- 42s -]
}

func ExampleJSONLD() {
	document, err := export.JSONLD(&recipe.Recipe{
		Title: "Soft eggs", Times: recipe.Times{TotalSec: 480}, Source: recipe.Source{Ref: "https://video.example/eggs"},
		Ingredients: []recipe.Ingredient{{Qty: "2", Item: "eggs"}},
		Steps:       []recipe.Step{{Index: 1, Text: "Boil the eggs.", Timestamp: new(42.0)}},
	})
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
	//       "url": "https://video.example/eggs#t=42"
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
