package kvstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/importer/store"
)

// MaxList is how many recipes a list has at most.
const MaxList = 1000

// atOnce is how many recipes are read in one round trip.
const atOnce = 512

// Query says which recipes of an owner to list.
type Query struct {
	// OwnerID is whose. Required.
	OwnerID string

	// Text has words that must all be in the title or in an ingredient, in any case. Defaults to none.
	Text string

	// Limit is how many are listed, the newest first. Defaults to [MaxList], which is the most.
	Limit int
}

// List returns recipes of an owner, the newest first, and whether there are more than the limit. Its cost grows with how
// many recipes the owner has: one round trip for up to 1,024, and otherwise one for each 512. Any replica may answer, so what was written a
// moment ago may be missing. A record that cannot be read is left out, and logged.
func (s *Store) List(ctx context.Context, q Query) (list []Summary, more bool, err error) {
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
		if err == nil {
			unreadable += appendMatches(&list, found, words)
		}
		return err
	}
	filter := s.records.Key("owner." + owner + ".*")
	err = read([]string{filter})
	for offset, rest := 0, errors.Is(err, errors.ErrUnsupported); rest; rest = err == nil && offset > 0 { // the server has more than it sends
		var subjects []string
		subjects, offset, err = s.records.Subjects(ctx, filter, offset)
		for some := range slices.Chunk(subjects, atOnce) {
			err = cmp.Or(err, read(some))
		}
	}
	if err != nil {
		return nil, false, &store.Error{Op: "list recipes", Retryable: true, Err: err}
	}
	if unreadable > 0 {
		s.log.WarnContext(ctx, "importer: recipes are left out of a list: their records cannot be read",
			"owner_id", q.OwnerID, "records", unreadable)
	}
	slices.SortFunc(list, func(a, b Summary) int { return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID)) })
	n := min(len(list), q.Limit)
	return list[:n], n < len(list), nil
}

// appendMatches appends the summaries in records that have all words, and returns how many records cannot be read.
func appendMatches(list *[]Summary, records []kvrecord.Record, words []string) (unreadable int) {
	for _, r := range records {
		var sum Summary
		switch {
		case len(r.Data) == 0: // it was removed
		case json.Unmarshal(r.Data, &sum) != nil:
			unreadable++
		case sum.matches(words):
			*list = append(*list, sum)
		}
	}
	return unreadable
}
