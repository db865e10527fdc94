// Package rules reads recipes out of transcripts and descriptions by rules and word lists, without a network or a model.
//
// # What it does
//
// The transcript is cut into sentences. Each is scored by what is observed of it: verbs of the kitchen and the form in
// which they stand, foods, amounts, times, heat, vessels, and the words of greetings, praise and stories. The weights were
// fitted to sentences that people marked (internal/fit); the word lists are general knowledge. What scores enough is a
// step, and what only goes on with the step before it is joined to it. Ingredients come from the list in the description,
// or else from what is said: amounts of foods, and foods that something is done with.
//
// # What it does not do
//
// It does not understand. Of a language that is not English it knows units, numbers in digits and the headings of lists,
// so it reads the ingredients of a description and takes the chapters of the video for the steps, and says so in a warning.
// Text that speaks to a model is dropped before anything is read.
package rules
