// Package openai extracts recipes with a model behind any endpoint that implements OpenAI's chat completions: OpenAI itself,
// Gemini's compatible endpoint, vLLM, Ollama, llama.cpp and the like.
//
// The answer is bound to a JSON Schema that is made of package recipe. When a server refuses strict schemas, the extractor
// asks it for a JSON object from then on, with the schema in the prompt.
//
// The text of a source is data: it stands between two lines with a word that the author of a source cannot foresee, after a
// system message that declares it as data. That alone is no protection, so the output of the model is treated like any other
// claim: it is cleaned, looked up in the source, and marked where the source does not have it. Lines that address a model
// are not sent at all.
//
// A call is made once, and once more for each format that a server refuses. The service that runs imports repeats it, if
// [extract.Failure] allows that for the error. The Idempotency-Key of a call is the hash of its body.
package openai
