package limit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// DefaultPrefix begins the keys of the records of workers.
const DefaultPrefix = "limits."

// State is what the record of one key of a limit says.
type State struct {
	// Held are the permits that are held, by the processes that hold them.
	Held map[string]int

	// Key is the hash of the key, and Name that of the limit.
	Key, Name string

	// Next is when the next start is due, if the limit has a rate.
	Next time.Time

	// Queue are the processes that want permits, the first in line first.
	Queue []string
}

// Survey returns the states of at most so many keys, for display, and how many keys there are. Two round trips, and one more for each
// 512 keys.
func Survey(ctx context.Context, records *kvrecord.Stream, prefix string, most int) (all []State, total int, err error) {
	subjects, _, err := records.Subjects(ctx, records.Key(prefix+">"), 0)
	if err != nil {
		return nil, 0, fmt.Errorf("limit: %w", err)
	}
	members := records.Key(prefix + "workers.")
	subjects = slices.DeleteFunc(subjects, func(s string) bool { return strings.HasPrefix(s, members) })
	slices.Sort(subjects)
	total = len(subjects)
	found, err := records.GetMany(ctx, subjects[:min(total, most)])
	if err != nil {
		return nil, 0, fmt.Errorf("limit: %w", err)
	}
	for _, r := range found {
		if len(r.Data) == 0 {
			continue // gone meanwhile
		}
		rec, err := decode(r.Data)
		if err != nil {
			return nil, 0, &RecordError{Cause: err, Subject: r.Subject}
		}
		s := State{Held: map[string]int{}, Queue: rec.Queue}
		s.Name, s.Key, _ = strings.Cut(strings.TrimPrefix(r.Subject, records.Key(prefix)), ".")
		for _, h := range rec.Holders {
			s.Held[h.ID] = h.N
		}
		if rec.Next > 0 {
			s.Next = time.Unix(0, rec.Next)
		}
		all = append(all, s)
	}
	return all, total, nil
}
