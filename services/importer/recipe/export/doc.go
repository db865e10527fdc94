// Package export writes recipes in the formats of others: schema.org/Recipe as JSON-LD, and Cooklang.
//
// Both take a valid recipe. Its texts were written by strangers, and cannot break out of either format. Fields without a
// place in a format are left out: sections of ingredients in both, times and temperatures of steps in JSON-LD. A comment
// or a note names the fields that were not found in the source, and has the warnings.
package export

import (
	"fmt"
	"strings"

	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Media types of the formats.
const (
	MediaTypeJSONLD   = "application/ld+json"
	MediaTypeCooklang = "text/x-cooklang; charset=utf-8" // not registered; other programs use it
)

// remarks returns remarks on a recipe for its reader.
func remarks(r *recipe.Recipe) []string {
	var out, fields []string
	for _, w := range r.Warnings {
		out = append(out, line(w.Text))
	}
	add := func(where string, unverified []string) {
		if len(unverified) > 0 {
			fields = append(fields, where+line(strings.Join(unverified, ", ")))
		}
	}
	add("", r.Unverified)
	for i := range r.Ingredients {
		add(fmt.Sprintf("ingredient %d: ", i+1), r.Ingredients[i].Unverified)
	}
	for i := range r.Steps {
		add(fmt.Sprintf("step %d: ", i+1), r.Steps[i].Unverified)
	}
	if len(fields) > 0 {
		out = append(out, "Not found in the source: "+strings.Join(fields, "; ")+".")
	}
	return out
}
