// Package recipe is what an import ends in: a recipe as it goes over the wire, with what is known of its source.
//
// Whoever extracts a recipe fills in a [Recipe] and calls [Recipe.Validate], which names every field that is missing, too
// long or out of range. All sizes are bounded, so a valid recipe is at most about a megabyte of JSON.
//
// What an extractor claims and the source does not say is not thrown away and not kept silently: the field's JSON name is
// listed in Unverified of the ingredient, the step or the recipe.
//
// Package export writes recipes in the formats of others.
package recipe
