package deadletter

import (
	"context"
	"fmt"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
)

// pass configures how each goes through the letters.
type pass struct {
	dry    bool // changes nothing
	limit  int  // of letters, 0 for none
	report func(Outcome)
}

// each calls do for every letter that the filter selects, as the leader has it. It removes the records of replays that are
// no longer needed, where it finds them beside the letters.
func (s *Store) each(ctx context.Context, f Filter, p pass, do func(*Entry) (uint64, error)) (Result, error) {
	var result Result

	missing := make(map[uint64]bool, len(f.Sequences))
	for _, seq := range f.Sequences {
		missing[seq] = true
	}

	settle := func(o Outcome) {
		result.count(o)

		if p.report != nil {
			p.report(o)
		}
	}

	for m, err := range s.everything(ctx, f, OldestFirst, true) {
		if err != nil {
			return result, err
		}

		if s.isInternal(m.Subject) {
			if err := s.sweep(ctx, m.Subject, p.dry); err != nil {
				return result, err
			}

			continue
		}

		delete(missing, m.Sequence)

		e, err := s.selected(ctx, f, m)
		if err != nil {
			return result, err
		}

		if e == nil {
			continue
		}

		o := Outcome{Entry: *e}
		o.Sequence, o.Err = do(e)

		if o.Err != nil && !o.Skipped() && isFatal(o.Err) {
			return result, fmt.Errorf("letter %d: %w", e.Sequence, o.Err)
		}

		settle(o)

		if p.limit > 0 && result.Done+result.Failed+result.Skipped >= p.limit {
			return result, nil
		}
	}

	for seq := range missing {
		settle(Outcome{Entry: Entry{Sequence: seq}, Err: fmt.Errorf("%w: %d in stream %s", ErrNotFound, seq, s.cfg.Stream)})
	}
	return result, nil
}

// selected returns the letter of a message, nil if the filter does not select it, or it was
// removed meanwhile.
func (s *Store) selected(ctx context.Context, f Filter, m *jsapi.Message) (*Entry, error) {
	if e, err := s.glance(ctx, f, m); err != nil || e == nil || !f.selects(e) {
		return nil, err
	}
	return s.load(ctx, m.Sequence)
}
