// Package openai has recipes made by a model behind any endpoint that speaks OpenAI's chat completions: OpenAI itself,
// Gemini's compatible endpoint, vLLM, Ollama, llama.cpp and the like.
//
// The answer is bound to a JSON Schema that is made of package recipe. A server that knows no strict schemas is found out
// by its first refusal, and is asked for a JSON object from then on, with the schema in the prompt.
//
// The text of a source is data: it stands between two lines with a word that nobody can foresee who writes a source, after
// a system message that says so. That alone proves nothing, so what the model returns is treated like any other claim:
// cleaned, looked up in the source, and marked where it is not there. Lines that speak to a model are not sent at all.
//
// A call is made once, and once more for each format that a server refuses. Whoever runs imports repeats it, by what
// [extract.Failure] says of the error. The Idempotency-Key of a call is the hash of its body.
package openai
