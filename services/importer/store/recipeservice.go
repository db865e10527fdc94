package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

const (
	// maxAnswer bounds an answer, which is an id or a status.
	maxAnswer = 64 << 10

	// maxReason bounds the part of an error's message that is shown, in bytes.
	maxReason = 200
)

// RecipeService is a [Store] that keeps recipes in a Recipe Service, by its four internal endpoints:
//
//	GET  /internal/import-jobs/:job_id             the status of a job
//	POST /internal/import-jobs/:job_id/status      a new status
//	POST /internal/import-jobs/:job_id/transcript  the transcript of the source
//	POST /internal/recipes/from-import-job         the recipe; idempotent by job id
//
// Every call carries the header x-service-token. A call is made once: the caller repeats it if the error is retryable. No
// error and no log line holds the token, or an answer's body beyond its error message.
type RecipeService struct{ client *remote.Client }

// NewRecipeService returns a store, or an error that names everything that is wrong with its configuration: it needs a token. It makes no
// call. The timeout defaults to 10 seconds.
func NewRecipeService(config remote.Config) (*RecipeService, error) {
	config.Timeout = cmp.Or(config.Timeout, 10*time.Second)
	client, err := remote.New(config, "X-Service-Token", "")
	if config.Token == "" {
		err = errors.Join(err, errors.New("a Token is required"))
	}
	return &RecipeService{client: client}, err
}

// Status implements [Store].
func (s *RecipeService) Status(ctx context.Context, jobID string) (*contracts.ImportStatus, error) {
	const op = "check status"
	var status contracts.ImportStatus
	err := s.call(ctx, op, http.MethodGet, s.job(jobID, ""), nil, &status, "")
	if failed, ok := errors.AsType[*Error](err); ok && failed.Status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if status.Status == contracts.ImportReady && status.RecipeID == "" {
		return nil, &Error{Op: op, Err: errors.New("the job is READY and has no recipe")}
	}
	return &status, nil
}

// SetStatus implements [Store].
func (s *RecipeService) SetStatus(ctx context.Context, jobID string, status contracts.ImportStatus) error {
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

// SaveTranscript implements [Store].
func (s *RecipeService) SaveTranscript(ctx context.Context, jobID string, segments []caption.Segment) error {
	body := map[string][]caption.Segment{"segments": segments}
	return s.call(ctx, "store transcript", http.MethodPost, s.job(jobID, "/transcript"), body, nil, "")
}

// created is the answer to the creation of a recipe.
type created struct {
	RecipeID string `json:"recipe_id"`
	ID       string `json:"id"`
}

// Create implements [Store]. An answer 409 with a recipe_id names the existing recipe of the job.
func (s *RecipeService) Create(ctx context.Context, d Draft) (string, error) {
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
	id := cmp.Or(answer.RecipeID, answer.ID)
	if id == "" || len(id) > contracts.MaxID {
		return "", &Error{Op: op, Err: errors.New("the answer has no recipe_id")}
	}
	return id, nil
}

// job returns the path of a job. The id is one segment, with any characters.
func (*RecipeService) job(id, rest string) string {
	return "/internal/import-jobs/" + url.PathEscape(id) + rest
}

func (s *RecipeService) call(ctx context.Context, op, method, path string, body, answer any, key string) error {
	var payload []byte
	if body != nil {
		var err error
		if payload, err = json.Marshal(body); err != nil {
			return &Error{Op: op, Err: fmt.Errorf("encode: %w", err)}
		}
	}
	got, err := s.client.Call(ctx, method, path, payload, key, maxAnswer)
	if err != nil {
		return &Error{Op: op, Status: got.Status, Retryable: true, Err: err}
	}
	if made, ok := answer.(*created); ok && got.Status == http.StatusConflict {
		if json.Unmarshal(got.Body, made) == nil && made.RecipeID != "" {
			return nil // an earlier call has created it
		}
	}
	if got.Status < http.StatusOK || got.Status >= http.StatusMultipleChoices {
		return refusal(op, got)
	}
	if answer == nil {
		return nil
	}
	if len(got.Body) > maxAnswer {
		return &Error{Op: op, Status: got.Status, Err: fmt.Errorf("the answer has more than %d bytes", maxAnswer)}
	}
	if err := json.Unmarshal(got.Body, answer); err != nil {
		return &Error{Op: op, Status: got.Status, Err: errors.New("the answer is not the JSON that is expected")}
	}
	return nil
}

// refusal returns the error for an answer without a status of success.
func refusal(op string, got remote.Answer) error {
	failed := &Error{Op: op, Status: got.Status}
	switch code := got.Status; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		failed.Refused, failed.Retryable = true, true
	case code >= http.StatusInternalServerError && code != http.StatusNotImplemented, code == http.StatusTooManyRequests,
		code == http.StatusRequestTimeout, code == http.StatusTooEarly:
		failed.Retryable = true
	}
	failed.RetryAfter = retry.After(got.Header, 0, time.Hour)
	var said struct {
		Error   any    `json:"error"`
		Message string `json:"message"`
		Detail  string `json:"detail"`
	}
	text := http.StatusText(got.Status)
	if json.Unmarshal(got.Body, &said) == nil {
		reason, _ := said.Error.(string)
		for _, s := range []string{said.Message, reason, said.Detail} {
			if s != "" {
				text = redact.Clip(s, maxReason)
				break
			}
		}
	}
	failed.Err = errors.New(text)
	return failed
}
