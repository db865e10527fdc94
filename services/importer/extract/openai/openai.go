// Package openai extracts recipes with a model behind any endpoint that implements OpenAI's chat completions: OpenAI itself,
// Gemini's compatible endpoint, vLLM, Ollama, llama.cpp and the like.
//
// The answer is bound to a JSON Schema that is made of package recipe. When a server refuses strict schemas, the extractor
// asks it for a JSON object from then on, with the schema in the prompt.
//
// The text of a source is data: it stands between two lines with a word that the author of a source cannot foresee, after a
// system message that declares it as data. These lines alone are no protection, so the output of the model is treated like
// any other claim: it is cleaned, looked up in the source, and marked where the source does not bear it out. Lines that
// address a model are not sent at all.
//
// A call is made once, and once more for each format that a server refuses. The service that runs imports repeats the
// call, if [extract.Failure] allows that for the error. The Idempotency-Key of a call is the hash of its body.
package openai

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/ask"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Name is the name of the extractor in recipes.
const Name = "openai"

const (
	// maxImage bounds a photo, in bytes. A larger photo is not sent; without a text, it is an error.
	maxImage = 8 << 20

	// maxTranscript bounds the transcript that is sent, in bytes: some 50,000 tokens of English. The rest is left out, with a
	// warning in the recipe.
	maxTranscript = 200_000
)

// schema is the JSON schema of the answer. A test makes it from package recipe.
//
//go:embed recipe.schema.json
var schema []byte

// Extractor asks a model. It is safe for concurrent use, and owns no goroutines between calls.
type Extractor struct {
	client *remote.Client
	config Config
	level  atomic.Int32 // of formats: the strictest that the server has not refused
}

var _ extract.Extractor = (*Extractor)(nil)

// New sets up an extractor and makes no call. The error names everything that is wrong with the configuration.
func New(config Config) (*Extractor, error) {
	config.Timeout = cmp.Or(config.Timeout, 2*time.Minute)
	client, err := remote.New(config.Config, "Authorization", "Bearer ")
	if config.Model == "" {
		err = errors.Join(err, errors.New("a Model is required"))
	}
	return &Extractor{client: client, config: config}, err
}

// Version identifies, for caches, the inputs of the recipes other than the source: the model, the prompt and the
// schema.
func (e *Extractor) Version() string {
	sum := sha256.New()
	for _, part := range []string{e.config.Model, system, string(schema)} {
		sum.Write([]byte(part + "\x00"))
	}
	if e.config.Vision {
		sum.Write([]byte("vision"))
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// Extract implements [extract.Extractor]. It makes one call, and further calls only to a server that refuses a format. The recipe
// is as the model has made it: see [extract.Checked]. The error is one that [extract.Failure] knows.
func (e *Extractor) Extract(ctx context.Context, in extract.Input) (recipe.Recipe, error) {
	shown := ask.NewDigest(in, maxTranscript)
	image := in.Image
	if !e.config.Vision || len(image) > maxImage {
		image = nil
	}
	if len(in.Image) > 0 && image == nil && shown.Transcript == "" && shown.Description == "" {
		return recipe.Recipe{}, extract.Failed(false, nil, "the model cannot see the photo, or it is larger than %d bytes", maxImage)
	}
	content, err := e.complete(ctx, user(in, shown), image, in.ImageType)
	if err != nil {
		return recipe.Recipe{}, err
	}
	out, err := decode(content)
	if err != nil {
		return recipe.Recipe{}, err
	}
	if _, err := language.Parse(out.Language); in.Language != "" || err != nil {
		out.Language = in.Language
	}
	out.Source = in.Source
	out.Source.Extractor = Name
	out.Unverified, out.Warnings = nil, shown.Warnings()
	return out, nil
}

// complete returns the model's answer. When the server refuses a format, complete uses the next format from then on.
func (e *Extractor) complete(ctx context.Context, text string, image []byte, imageType string) (string, error) {
	for {
		level := e.level.Load()
		answer, err := ask.Post(ctx, e.client, "/chat/completions", e.request(formats[level], text, image, imageType))
		if err == nil {
			return contentOf(answer)
		}
		status, ok := errors.AsType[*ask.StatusError](err)
		if !ok {
			return "", err
		}
		problem := problemOf(status.Body)
		if int(level) == len(formats)-1 || !problem.refusesFormat(status.Status) {
			return "", e.explain(err, problem)
		}
		e.level.CompareAndSwap(level, level+1)
	}
}

// Format is the way in which the model is made to answer in JSON.
type Format string

// The formats, from the strictest to the loosest.
const (
	// FormatSchema is response_format json_schema with strict set: the server makes no other answer possible.
	FormatSchema Format = "json_schema"
	// FormatObject is response_format json_object, with the schema in the prompt.
	FormatObject Format = "json_object"
	// FormatText sends no response_format; the schema is in the prompt.
	FormatText Format = "text"
)

// formats has the formats in the order in which they are tried.
var formats = []Format{FormatSchema, FormatObject, FormatText}

// Config sets up an [Extractor]. BaseURL is the address of the API, with its version, such as https://api.openai.com/v1, to which
// /chat/completions is appended, and Token is sent as a bearer token. Timeout defaults to 2 minutes.
type Config struct {
	remote.Config

	// Model is the name of the model. Required.
	Model string

	// Vision is true for a model that reads images, so that photos are sent. Defaults to false.
	Vision bool
}
