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
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/digest"
	"github.com/expediter-io/expediter/services/importer/extract/internal/remote"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Name is the name of the extractor in recipes.
const Name = "openai"

const (
	path = "/chat/completions"

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

// Extractor asks a model. It is safe for concurrent use, and owns no goroutines between calls except those of idle
// connections, which Close ends.
type Extractor struct {
	checked extract.Extractor
	client  *remote.Client
	config  Config
	level   atomic.Int32 // of formats: the strictest that the server has not refused
}

var _ extract.Extractor = (*Extractor)(nil)

// New sets up an extractor and makes no call. The error names everything that is wrong with the configuration.
func New(config Config) (*Extractor, error) {
	client, err := remote.New(config.remote())
	if config.Model == "" {
		err = errors.Join(err, errors.New("openai: Config.Model is missing"))
	}
	if err != nil {
		return nil, err
	}
	e := &Extractor{client: client, config: config}
	e.checked = extract.Checked(call{e})
	return e, nil
}

// Close closes idle connections. Extractions in progress go on.
func (e *Extractor) Close() { e.client.Close() }

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

// Extract implements [extract.Extractor]. It makes one call, bounded by Config.Timeout, and further calls only to a
// server that refuses a format. The recipe is clean, verified and valid. The error is one that [extract.Failure] knows.
func (e *Extractor) Extract(ctx context.Context, in extract.Input) (recipe.Recipe, error) {
	return e.checked.Extract(ctx, in)
}

// call is an extraction without the checks.
type call struct{ *Extractor }

func (c call) Extract(ctx context.Context, in extract.Input) (recipe.Recipe, error) {
	shown := digest.Of(in, maxTranscript)
	image := in.Image
	if !c.config.Vision || len(image) > maxImage {
		image = nil
	}
	if len(in.Image) > 0 && image == nil && shown.Transcript == "" && shown.Description == "" {
		return recipe.Recipe{}, extract.Failed(false, nil, "the model cannot see the photo, or it is larger than %d bytes", maxImage)
	}
	content, err := c.complete(ctx, user(in, shown), image, in.ImageType)
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
func (c call) complete(ctx context.Context, text string, image []byte, imageType string) (string, error) {
	for {
		level := c.level.Load()
		body, err := json.Marshal(c.request(formats[level], text, image, imageType))
		if err != nil {
			return "", extract.Failed(false, err, "the request cannot be made")
		}
		sum := sha256.Sum256(body)
		answer, err := c.client.Post(ctx, path, body, hex.EncodeToString(sum[:]))
		if err == nil {
			return c.content(answer)
		}
		status, ok := errors.AsType[*remote.StatusError](err)
		if !ok {
			return "", err
		}
		problem := problemOf(status.Body)
		if int(level) == len(formats)-1 || !problem.refusesFormat(status.Status) {
			return "", c.explain(err, problem)
		}
		c.level.CompareAndSwap(level, level+1)
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

// Config sets up an [Extractor]. BaseURL and Model have no default.
type Config struct {
	// AllowHTTP permits plain http to a server on another machine. Defaults to false.
	AllowHTTP bool

	// BaseURL is the address of the API, with its version, such as https://api.openai.com/v1; /chat/completions is appended.
	// Required.
	BaseURL string

	// Key is sent as a bearer token. Defaults to none.
	Key string

	// Model is the name of the model. Required.
	Model string

	// Timeout bounds a call from beginning to end. Defaults to 2 minutes.
	Timeout time.Duration

	// Transport makes the calls. Defaults to one that heeds the proxies of the environment.
	Transport http.RoundTripper

	// Vision is true for a model that reads images, so that photos are sent. Defaults to false.
	Vision bool
}

// String names the service, without Key.
func (c Config) String() string { return c.Model + " at " + remote.Address(c.BaseURL) }

// GoString returns String, so that nothing prints Key.
func (c Config) GoString() string { return c.String() }

// LogValue returns String, so that nothing logs Key.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// remote is the configuration of the client.
func (c Config) remote() remote.Config {
	return remote.Config{
		AllowHTTP: c.AllowHTTP, BaseURL: c.BaseURL, Name: Name, Timeout: cmp.Or(c.Timeout, 2*time.Minute),
		Token: c.Key, TokenField: "Key", TokenHeader: "Authorization", TokenPrefix: "Bearer ", Transport: c.Transport,
	}
}
