// Package orchestrator extracts recipes with a service that has one endpoint, POST /extract. The service takes a transcript
// and answers with a title, ingredients and steps.
//
// A call is made once: the service that runs imports repeats it, if [extract.Failure] allows that for the error. The
// Idempotency-Key of a call is the hash of its body, so that a service that keeps its answers need not pay for one twice.
package orchestrator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/internal/digest"
	"github.com/expediter-io/expediter/services/importer/extract/internal/remote"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Name is what recipes name as their extractor.
const Name = "orchestrator"

const path = "/extract"

// maxTranscript bounds the transcript that is sent, in bytes; the rest is left out, and the recipe says so with a warning.
const maxTranscript = 1 << 20

// Extractor asks the service. It is safe for concurrent use, and owns no goroutines between calls but those of idle
// connections, which Close ends.
type Extractor struct {
	checked extract.Extractor
	client  *remote.Client
}

var _ extract.Extractor = (*Extractor)(nil)

// New sets up an extractor and makes no call. The error names everything that is wrong with the configuration.
func New(config Config) (*Extractor, error) {
	client, err := remote.New(config.remote())
	if err != nil {
		return nil, err
	}
	e := &Extractor{client: client}
	e.checked = extract.Checked(call{e})
	return e, nil
}

// Close closes idle connections. Extractions in progress go on.
func (e *Extractor) Close() { e.client.Close() }

// Version names what the recipes depend on besides the source, for caches.
func (*Extractor) Version() string { return "1" }

// Extract implements [extract.Extractor]: one call, at most as long as Config.Timeout. The recipe is clean, verified and
// valid. The error is one that [extract.Failure] knows.
func (e *Extractor) Extract(ctx context.Context, in extract.Input) (recipe.Recipe, error) {
	return e.checked.Extract(ctx, in)
}

// call is an extraction without the checks.
type call struct{ *Extractor }

func (c call) Extract(ctx context.Context, in extract.Input) (recipe.Recipe, error) {
	shown := digest.Of(in, maxTranscript)
	body, err := json.Marshal(newRequest(in, shown))
	if err != nil {
		return recipe.Recipe{}, extract.Failed(false, err, "the request cannot be made")
	}
	sum := sha256.Sum256(body)
	answer, err := c.client.Post(ctx, path, body, hex.EncodeToString(sum[:]))
	if err != nil {
		return recipe.Recipe{}, err
	}
	var r response
	if err := json.Unmarshal(answer, &r); err != nil {
		return recipe.Recipe{}, extract.Failed(true, fmt.Errorf("orchestrator: decode %d bytes: %w", len(answer), err),
			"the answer is not the JSON of a recipe")
	}
	out := r.recipe()
	out.Language = in.Language
	out.Source = in.Source
	out.Source.Extractor = Name
	out.Warnings = shown.Warnings()
	return out, nil
}
