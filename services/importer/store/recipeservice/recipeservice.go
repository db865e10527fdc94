// Package recipeservice stores recipes in a Recipe Service, by its four internal endpoints:
//
//	GET  /internal/import-jobs/:job_id             the status of a job
//	POST /internal/import-jobs/:job_id/status      a new status
//	POST /internal/import-jobs/:job_id/transcript  the transcript of the source
//	POST /internal/recipes/from-import-job         the recipe; idempotent by job id
//
// Every call carries the header x-service-token. A call is made once: the caller repeats it if the error is retryable. No
// error and no log line holds the token, or an answer's body beyond its error message.
package recipeservice

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/retryafter"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/recipe"
	"github.com/expediter-io/expediter/services/importer/store"
)

const (
	// maxAnswer bounds an answer, which is an id or a status.
	maxAnswer = 64 << 10

	// maxReason bounds the part of an error's message that is shown, in bytes.
	maxReason = 200

	// tokenHeader names the header with the secret of the caller.
	tokenHeader = "X-Service-Token"
)

// Store is a [store.Store].
type Store struct {
	base   string
	client *http.Client
	token  string
}

// New returns a store, or an error that names everything that is wrong with its configuration. It makes no call.
func New(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Transport == nil {
		// On a kept connection, an answer that comes twice could be taken for the answer to the next call.
		cfg.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, DisableKeepAlives: true}
	}
	return &Store{
		base: strings.TrimSuffix(cfg.BaseURL, "/"), token: cfg.Token,
		client: &http.Client{
			Timeout: cfg.Timeout, Transport: cfg.Transport,
			// A redirect would send the token to another server.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Close ends idle connections.
func (s *Store) Close() { s.client.CloseIdleConnections() }

// Status implements [store.Store].
func (s *Store) Status(ctx context.Context, jobID string) (*contracts.ImportStatus, error) {
	const op = "check status"
	var status contracts.ImportStatus
	err := s.call(ctx, op, http.MethodGet, s.job(jobID, ""), nil, &status, "")
	if failed, ok := errors.AsType[*store.Error](err); ok && failed.Status == http.StatusNotFound {
		return nil, nil //nolint:nilnil // it does not know the job
	}
	if err != nil {
		return nil, err
	}
	if status.Status == contracts.ImportReady && status.RecipeID == "" {
		return nil, &store.Error{Op: op, Err: errors.New("the job is READY and has no recipe")}
	}
	return &status, nil
}

// SetStatus implements [store.Store].
func (s *Store) SetStatus(ctx context.Context, jobID string, status contracts.ImportStatus) error {
	body := struct {
		Status   contracts.ImportState `json:"status"`
		RecipeID string                `json:"recipe_id,omitempty"`
		Code     contracts.ImportCode  `json:"code,omitempty"`
		Error    string                `json:"error,omitempty"`
	}{Status: status.Status, RecipeID: status.RecipeID, Code: status.Code}
	if status.Status == contracts.ImportFailed {
		body.Error = status.Error
	}
	return s.call(ctx, "update status", http.MethodPost, s.job(jobID, "/status"), body, nil, "")
}

// SaveTranscript implements [store.Store].
func (s *Store) SaveTranscript(ctx context.Context, jobID string, segments []caption.Segment) error {
	body := map[string][]caption.Segment{"segments": segments}
	return s.call(ctx, "store transcript", http.MethodPost, s.job(jobID, "/transcript"), body, nil, "")
}

// created is the answer to the creation of a recipe.
type created struct {
	RecipeID string `json:"recipe_id"`
	ID       string `json:"id"`
}

// Create implements [store.Store]. An answer 409 with a recipe_id names the existing recipe of the job.
func (s *Store) Create(ctx context.Context, d store.Draft) (string, error) {
	const op = "create recipe"
	body := struct {
		JobID       string              `json:"job_id"`
		OwnerID     string              `json:"owner_id"`
		SourceRef   string              `json:"source_ref"`
		Title       string              `json:"title"`
		Description string              `json:"description"`
		Ingredients []recipe.Ingredient `json:"ingredients"`
		Steps       []recipe.Step       `json:"steps"`
		Transcript  string              `json:"raw_transcript"`
	}{
		JobID: d.JobID, OwnerID: d.OwnerID, SourceRef: d.Recipe.Source.Ref, Title: d.Recipe.Title, Description: d.Recipe.Description,
		Ingredients: d.Recipe.Ingredients, Steps: d.Recipe.Steps, Transcript: d.Transcript,
	}
	var answer created
	if err := s.call(ctx, op, http.MethodPost, "/internal/recipes/from-import-job", body, &answer, d.JobID); err != nil {
		return "", err
	}
	id := answer.RecipeID
	id = cmp.Or(id, answer.ID)
	if id == "" || len(id) > contracts.MaxID {
		return "", &store.Error{Op: op, Err: errors.New("the answer has no recipe_id")}
	}
	return id, nil
}

// job returns the path of a job. The id is one segment, with any characters.
func (*Store) job(id, rest string) string {
	return "/internal/import-jobs/" + url.PathEscape(id) + rest
}

func (s *Store) call(ctx context.Context, op, method, path string, body, answer any, key string) error {
	var payload io.Reader = http.NoBody
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return &store.Error{Op: op, Err: fmt.Errorf("encode: %w", err)}
		}
		payload = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, payload)
	if err != nil {
		return &store.Error{Op: op, Err: errors.New("the address is not valid")}
	}
	req.Header.Set(tokenHeader, s.token)
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return &store.Error{Op: op, Retryable: true, Err: withoutAddress(err)}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil {
		return &store.Error{Op: op, Status: resp.StatusCode, Retryable: true, Err: fmt.Errorf("read the answer: %w", withoutAddress(err))}
	}
	if made, ok := answer.(*created); ok && resp.StatusCode == http.StatusConflict {
		if json.Unmarshal(data, made) == nil && made.RecipeID != "" {
			return nil // an earlier call has created it
		}
	}
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices {
		return refusal(op, resp, data)
	}
	if answer == nil {
		return nil
	}
	if len(data) > maxAnswer {
		return &store.Error{Op: op, Status: resp.StatusCode, Err: fmt.Errorf("the answer has more than %d bytes", maxAnswer)}
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return &store.Error{Op: op, Status: resp.StatusCode, Err: errors.New("the answer is not the JSON that is expected")}
	}
	return nil
}

// withoutAddress takes the address out of an error of the client: it may hold private data.
func withoutAddress(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// refusal returns the error for an answer without a status of success.
func refusal(op string, resp *http.Response, data []byte) error {
	failed := &store.Error{Op: op, Status: resp.StatusCode}
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		failed.Refused, failed.Retryable = true, true
	case code >= http.StatusInternalServerError && code != http.StatusNotImplemented, code == http.StatusTooManyRequests,
		code == http.StatusRequestTimeout, code == http.StatusTooEarly:
		failed.Retryable = true
	}
	failed.RetryAfter = retryafter.Parse(resp.Header, 0, time.Hour)
	var said struct {
		Error   any    `json:"error"`
		Message string `json:"message"`
		Detail  string `json:"detail"`
	}
	text := http.StatusText(resp.StatusCode)
	if json.Unmarshal(data, &said) == nil {
		reason, _ := said.Error.(string)
		for _, s := range []string{said.Message, reason, said.Detail} {
			if s != "" {
				text = strings.ToValidUTF8(s[:min(len(s), maxReason)], "")
				break
			}
		}
	}
	failed.Err = errors.New(text)
	return failed
}

// Config sets up a [Store].
type Config struct {
	// AllowHTTP permits plain http to another machine, such as one in the same cluster. Defaults to false.
	AllowHTTP bool

	// BaseURL is the address of the service. Required.
	BaseURL string

	// Timeout bounds a call from beginning to end. Defaults to 10 seconds.
	Timeout time.Duration

	// Token is sent in the header x-service-token. Required.
	Token string

	// Transport makes the calls. Defaults to one of the store's own, which heeds the proxies of the environment.
	Transport http.RoundTripper
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	return c
}

// Validate reports everything that is wrong at once. It repeats neither the address nor the token: both may be secret.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("recipe service: "+format, args...)) }
	switch u, err := url.Parse(c.BaseURL); {
	case c.BaseURL == "":
		bad("its address is missing")
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		bad("its address is not an http or https URL with a host")
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		bad("its address has a user name, a query or a fragment")
	case u.Scheme == "http" && !c.AllowHTTP && !isLoopback(u.Hostname()):
		bad("its address is plain http to another machine, where the token may be read by anybody between: use https, or allow it")
	}
	if c.Token == "" {
		bad("the token is missing")
	} else if !httpguts.ValidHeaderFieldValue(c.Token) {
		bad("the token holds characters that no header may hold")
	}
	if c.Timeout < 0 {
		bad("its timeout is %s: want more than 0", c.Timeout)
	}
	return errors.Join(errs...)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
