// Package recipe defines the result of an import: a recipe with the data of its source, as it is sent.
//
// An extractor fills in a [Recipe] and calls [Recipe.Validate], which names every field that is missing, too long or out of
// range. All sizes are bounded, so a valid recipe is at most about a megabyte of JSON.
//
// A claim of an extractor that the source does not confirm is kept and marked: the JSON name of the field is listed in
// Unverified of the ingredient, the step or the recipe.
package recipe
