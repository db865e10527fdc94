// Package extract turns what a source says about a dish into a recipe, and checks what an extractor claims against the
// source.
//
// An [Extractor] reads an [Input]: the timed text of a video, or the text of a page, with its title, description and
// chapters. Package rules has one that needs no network, orchestrator one that asks a service, and openai one that asks a
// model. Whatever the extractor, [Checked] puts its output through the same three gates: HTML and addresses are taken out of
// every field and sizes are cut to their bounds ([Clean]), every claim is looked up in the source and marked where it cannot
// be found ([Verify]), and the result is validated. [Failure] says what an error means to an import.
//
// The text of a source is whatever a stranger wrote. Sentences that speak to a model ("ignore previous instructions") are
// no evidence for anything, and the rules extractor does not read them.
package extract
