package openai

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync/atomic"

	"golang.org/x/text/language"

	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/digest"
	"github.com/expediter-io/expediter/services/importer/extract/internal/remote"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Name is what recipes name as their extractor.
const Name = "openai"

const (
	path = "/chat/completions"

	// maxImage bounds a photo, in bytes; a larger one is not sent, and is an error when there is no text.
	maxImage = 8 << 20

	// maxTranscript bounds the transcript that is sent, in bytes; the rest is left out, and the recipe says so with a warning.
	// It is some 50,000 tokens of English.
	maxTranscript = 200_000
)

// schema is what the answer has to conform to, made of package recipe by a test.
//
//go:embed recipe.schema.json
var schema []byte

// Extractor asks a model. It is safe for concurrent use, and owns no goroutines between calls but those of idle
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

// Version names what the recipes depend on besides the source, for caches: the model, the prompt and the schema.
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

// Extract implements [extract.Extractor]. A call takes at most as long as Config.Timeout, and there is one, but for a server
// that refuses a format. The recipe is clean, verified and valid. The error is one that [extract.Failure] knows.
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

// complete returns what the model says. A format that the server refuses is not tried again.
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
