package pipeline

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/expediter-io/expediter/cmd/expediter/internal/enrich"
	"github.com/expediter-io/expediter/pkg/contracts"
)

// Embedded answers from the first enricher of this process, with score and evidence.
type Embedded struct{ *Pipeline }

// Enrich implements enrich.Enricher.
func (p Embedded) Enrich(ctx context.Context, req contracts.EnrichRequest) (enrich.Answer, error) {
	resp, err := p.Enrichers[0].Enrich(ctx, req)
	if err != nil {
		return enrich.Answer{}, err
	}
	details, err := p.Enrichers[0].Results(ctx, contracts.ProviderWolt, req)
	if err != nil {
		return enrich.Answer{}, err
	}
	asked := make(map[string]contracts.Restaurant, len(req.Results))
	for _, r := range req.Results {
		if other, twice := asked[r.PlaceID]; twice && !other.Equal(r) {
			delete(details, r.PlaceID) // the details are of another request of the place
		}
		asked[r.PlaceID] = r
	}
	return enrich.Answer{Details: details, Response: resp}, nil
}

// remoteTimeout bounds one request to a service, in addition to the wait that the request asks for.
const remoteTimeout = 10 * time.Second

// defaultClient has no time limit: every request brings its own.
var defaultClient = &http.Client{}

// Remote answers from a running enricher, over HTTP.
type Remote struct {
	// Key is the key of the caller. Defaults to none.
	Key string

	// URL is the address of the enricher, such as http://localhost:8080.
	URL string

	// Client sends the requests. Defaults to a client that all Remotes share.
	Client *http.Client
}

// Enrich implements enrich.Enricher.
func (r Remote) Enrich(ctx context.Context, req contracts.EnrichRequest) (enrich.Answer, error) {
	body, err := contracts.Encode(req)
	if err != nil {
		return enrich.Answer{}, err
	}
	limit, cancel := context.WithTimeout(ctx, time.Duration(req.WaitMS)*time.Millisecond+remoteTimeout)
	defer cancel()
	post, err := http.NewRequestWithContext(limit, http.MethodPost, strings.TrimSuffix(r.URL, "/")+"/v1/enrich", bytes.NewReader(body))
	if err != nil {
		return enrich.Answer{}, fmt.Errorf("ask %s: %w", r.URL, err)
	}
	post.Header.Set("Content-Type", "application/json")
	if r.Key != "" {
		post.Header.Set("Authorization", "Bearer "+r.Key)
	}
	client := r.Client
	client = cmp.Or(client, defaultClient)
	answer, err := client.Do(post)
	if err != nil {
		return enrich.Answer{}, r.silent(ctx, err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, 2*contracts.MaxBody))
	if err != nil {
		return enrich.Answer{}, r.silent(ctx, err)
	}
	if answer.StatusCode != http.StatusOK {
		return enrich.Answer{}, refusal(r.URL, answer.StatusCode, data)
	}
	resp, err := contracts.Decode[contracts.EnrichResponse](data)
	if err != nil {
		return enrich.Answer{}, fmt.Errorf("answer of %s: %w", r.URL, err)
	}
	return enrich.Answer{Response: resp}, nil
}

// silent returns the error for a missing answer: the caller gave up, or the service is unavailable.
func (r Remote) silent(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ask %s: %w", r.URL, err)
	}
	return fmt.Errorf("%w: ask %s: %w", enrich.ErrUnavailable, r.URL, err)
}

// refusal returns the error in a service's answer.
func refusal(url string, status int, body []byte) error {
	var problem struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(body, &problem) != nil || problem.Detail == "" {
		problem.Detail = http.StatusText(status)
	}
	if status >= http.StatusInternalServerError || status == http.StatusTooManyRequests {
		return fmt.Errorf("%w: %s answered %d: %s", enrich.ErrUnavailable, url, status, problem.Detail)
	}
	return fmt.Errorf("%s answered %d: %s", url, status, problem.Detail)
}
