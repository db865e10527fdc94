package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// Stored is a recipe in the bucket.
type Stored struct {
	ID        string        `json:"id"`
	JobID     string        `json:"job_id"`
	OwnerID   string        `json:"owner_id"`
	CreatedAt time.Time     `json:"created_at"`
	Recipe    recipe.Recipe `json:"recipe"`
}

// Bucket keeps recipes in bucket contracts.BucketRecipes, on the NATS server that the importer runs on. It is a [Store].
//
// A recipe is the record recipe.<recipe>; the record owner.<owner>.<recipe> lists it for its owner, with the fields
// that a search compares. The id of a recipe is derived from the id of its job, so that a job never has two recipes.
type Bucket struct {
	records *kvrecord.Stream
	log     *slog.Logger
}

// New returns a store on the bucket. The logger gets records that cannot be read. Close ends the store. No round trip.
func New(js jetstream.JetStream, logger *slog.Logger) (*Bucket, error) {
	records, err := kvrecord.New(kvrecord.Config{JetStream: js})
	if err != nil {
		return nil, fmt.Errorf("importer: %w", err)
	}
	return &Bucket{records: records.Bucket(contracts.BucketRecipes), log: logger}, nil
}

// Close ends the requests under way.
func (s *Bucket) Close() { s.records.Close() }

// namespace makes ids of recipes out of those of jobs (RFC 9562, version 5).
var namespace = uuid.MustParse("0f1c6d0e-6f0b-5c52-9c56-7d0f9b4f2b63")

// RecipeID returns the id of the recipe of a job.
func RecipeID(jobID string) string { return uuid.NewSHA1(namespace, []byte(jobID)).String() }

// Status implements [Store]. The states of jobs are not kept here.
func (*Bucket) Status(context.Context, string) (*contracts.ImportStatus, error) { return nil, nil }

// SetStatus implements [Store]. It does nothing.
func (*Bucket) SetStatus(context.Context, string, contracts.ImportStatus) error { return nil }

// SaveTranscript implements [Store]. It does nothing: transcripts are kept with the steps.
func (*Bucket) SaveTranscript(context.Context, string, []caption.Segment) error { return nil }

// Create implements [Store]. Two round trips.
func (s *Bucket) Create(ctx context.Context, d Draft) (string, error) {
	id := RecipeID(d.JobID)
	stored := Stored{ID: id, JobID: d.JobID, OwnerID: d.OwnerID, CreatedAt: time.Now().UTC(), Recipe: d.Recipe}
	key, err := subject.Join("recipe", subject.ID("recipe_id", id))
	if err != nil {
		return "", &Error{Op: "create recipe", Err: err}
	}
	kept, err := s.create(ctx, key, stored)
	if err != nil {
		return "", err
	}
	key, err = subject.Join("owner", subject.ID("owner_id", kept.OwnerID), subject.ID("recipe_id", id))
	if err != nil {
		return "", &Error{Op: "create recipe", Err: err}
	}
	return id, s.index(ctx, key, kept)
}

// create writes a recipe unless there is one, and returns the stored recipe.
func (s *Bucket) create(ctx context.Context, key string, stored Stored) (Stored, error) {
	data, err := json.Marshal(stored)
	if err != nil {
		return Stored{}, &Error{Op: "create recipe", Err: err}
	}
	if limit := contracts.MaxBody - headroom; len(data) > limit {
		return Stored{}, &Error{Op: "create recipe", Err: fmt.Errorf("it has %d bytes: want at most %d", len(data), limit)}
	}
	_, err = s.records.Put(ctx, kvrecord.Write{Subject: s.records.Key(key), Data: data})
	switch {
	case err == nil:
		return stored, nil
	case !errors.Is(err, kvrecord.ErrConflict):
		return Stored{}, &Error{Op: "create recipe", Retryable: true, Err: err}
	}
	kept, err := s.Get(ctx, stored.ID)
	switch {
	case errors.Is(err, ErrNotFound):
		return Stored{}, &Error{Op: "create recipe", Err: fmt.Errorf("recipe %s was deleted", stored.ID)}
	case err == nil && kept.OwnerID != stored.OwnerID: // another owner's job had this id before its state was removed
		return Stored{}, &Error{Op: "create recipe", Err: errors.New("a job of another owner had this id: submit it under a new one")}
	}
	return kept, err
}

// headroom is the size of a message without its body, in bytes.
const headroom = 1 << 10

// index records the owner of a recipe.
func (s *Bucket) index(ctx context.Context, key string, stored Stored) error {
	sum := Summary{
		ID: stored.ID, JobID: stored.JobID, Title: stored.Recipe.Title, SourceRef: stored.Recipe.Source.Ref, CreatedAt: stored.CreatedAt,
	}
	for _, i := range stored.Recipe.Ingredients {
		sum.Ingredients = append(sum.Ingredients, i.Item)
	}
	data, err := json.Marshal(sum)
	if err != nil {
		return &Error{Op: "index recipe", Err: err}
	}
	_, err = s.records.Put(ctx, kvrecord.Write{Subject: s.records.Key(key), Data: data})
	if err != nil && !errors.Is(err, kvrecord.ErrConflict) {
		return &Error{Op: "index recipe", Retryable: true, Err: err}
	}
	return nil
}

// Get returns a recipe. The error wraps [ErrNotFound] when there is none. One round trip.
func (s *Bucket) Get(ctx context.Context, id string) (Stored, error) {
	key, err := subject.Join("recipe", subject.ID("recipe_id", id))
	if err != nil {
		return Stored{}, fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	found, err := s.records.Latest(ctx, s.records.Key(key))
	if err != nil {
		return Stored{}, &Error{Op: "get recipe", Retryable: true, Err: err}
	}
	if len(found.Data) == 0 {
		return Stored{}, fmt.Errorf("%w: %.64q", ErrNotFound, id)
	}
	var stored Stored
	if err := json.Unmarshal(found.Data, &stored); err != nil {
		return Stored{}, &Error{Op: "get recipe", Err: fmt.Errorf("the record of %s cannot be read: %w", id, err)}
	}
	return stored, nil
}

// Summary is an entry of a list of recipes.
type Summary struct {
	ID          string    `json:"id"`
	JobID       string    `json:"job_id"`
	Title       string    `json:"title"`
	Ingredients []string  `json:"ingredients,omitempty"`
	SourceRef   string    `json:"source_ref,omitempty"`
	CreatedAt   time.Time `json:"created_at"`
}

// matches reports whether every word of a search is in the title or in an ingredient.
func (s Summary) matches(words []string) bool {
	text := strings.ToLower(s.Title + "\n" + strings.Join(s.Ingredients, "\n"))
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// MaxList is the largest number of recipes in a list.
const MaxList = 1000

// atOnce is the number of recipes that are read in one round trip.
const atOnce = 512

// Query selects the recipes of an owner to list.
type Query struct {
	// OwnerID is the owner. Required.
	OwnerID string

	// Text has words that must all be in the title or in an ingredient, in any case. Defaults to none.
	Text string

	// Limit is the largest number of recipes to list, the newest first. Defaults to [MaxList], which is also the
	// maximum.
	Limit int
}

// List returns recipes of an owner, the newest first, and whether there are more than the limit. Its cost grows with the number
// of recipes of the owner: one round trip for up to 1,024, and otherwise one for each 512. Any replica may answer, so a recipe
// written a moment ago may be missing. A record that cannot be read is left out, and logged.
func (s *Bucket) List(ctx context.Context, q Query) (list []Summary, more bool, err error) {
	if q.Limit <= 0 || q.Limit > MaxList {
		q.Limit = MaxList
	}
	owner, err := contracts.EncodeToken(q.OwnerID)
	if err != nil {
		return nil, false, fmt.Errorf("importer: list recipes: owner: %w", err)
	}
	words := strings.Fields(strings.ToLower(q.Text))
	unreadable := 0
	read := func(subjects []string) error {
		found, err := s.records.GetMany(ctx, subjects)
		for _, r := range found {
			var sum Summary
			switch {
			case len(r.Data) == 0: // the recipe was removed
			case json.Unmarshal(r.Data, &sum) != nil:
				unreadable++
			case sum.matches(words):
				list = append(list, sum)
			}
		}
		return err
	}
	filter := s.records.Key("owner." + owner + ".*")
	err = read([]string{filter})
	for offset, rest := 0, errors.Is(err, errors.ErrUnsupported); rest; rest = err == nil && offset > 0 { // more than the server sends
		var subjects []string
		subjects, offset, err = s.records.Subjects(ctx, filter, offset)
		for some := range slices.Chunk(subjects, atOnce) {
			err = cmp.Or(err, read(some))
		}
	}
	if err != nil {
		return nil, false, &Error{Op: "list recipes", Retryable: true, Err: err}
	}
	if unreadable > 0 {
		s.log.WarnContext(ctx, "importer: recipes are left out of a list: their records cannot be read",
			"owner_id", q.OwnerID, "records", unreadable)
	}
	slices.SortFunc(list, func(a, b Summary) int { return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID)) })
	n := min(len(list), q.Limit)
	return list[:n], n < len(list), nil
}
