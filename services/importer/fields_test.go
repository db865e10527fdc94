package importer_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	importer "github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// A field of a page that a recipe may lack, and that cannot be read, costs the recipe nothing else, and a warning names it. What a
// recipe does not have is not missed.
func TestFieldsThatCannotBeReadAreLeftOut(t *testing.T) {
	t.Parallel()
	i, _ := start(t, natstest.Server(t))
	for field, named := range map[string]string{
		`"inLanguage":"English"`: `"English"`, `"recipeYield":{"@type":"QuantitativeValue","unitText":"servings"}`: "recipeYield", `"cookTime":"a while"`: "cookTime", `"author":{"@type":"Person","jobTitle":"cook"}`: "author",
		`"prepTime":"PT99999999H"`: "prepTime", `"image":{"@list":[[]]}`: "", `"nutrition":7`: "", `"recipeCategory":[[["x"]]]`: "",
	} {
		url, err := i.Keep(t.Context(), "soup.html", []byte(`<html lang=en><script type="application/ld+json">{"@type":"Recipe","name":"Soup",`+field+
			`,"recipeIngredient":["2 onions","1 l water"],"recipeInstructions":["Cut the onions.","Boil them in the water."]}</script>`))
		check.OK(t, err)
		job, _, err := i.Submit(t.Context(), importer.Submission{ImportJob: contracts.ImportJob{OwnerID: "ada", SourceType: contracts.SourceWeb, URL: url}})
		check.OK(t, err)
		last := followed(t, i, job.JobID)
		warned := slices.ContainsFunc(last.Warnings, func(w recipe.Warning) bool {
			return w.Code == extract.WarnField && strings.Contains(w.Text, named)
		})
		check.That(t, last.Status == contracts.ImportReady && last.Title == "Soup" && warned == (named != ""), "%s ended as %+v", field, last)
	}
}
