package deadletter

import (
	"errors"
	"fmt"
	"time"

	"github.com/expediter-io/expediter/pkg/internal/subject"
	"github.com/expediter-io/expediter/pkg/worker"
)

// Filter selects dead letters. Its fields are joined by "and"; the zero value selects
// everything in the stream. Listing, grouping, replaying and discarding with one filter
// select the same letters.
type Filter struct {
	// Kind selects one kind of entry. Defaults to all.
	Kind Kind

	// Reason selects the jobs that were given up for this reason. Defaults to all.
	Reason worker.Reason

	// Sequences selects letters by their position in the dead letter stream. Defaults to
	// all.
	Sequences []uint64

	// Signature selects the errors of one kind, see worker.DeadLetter. Defaults to all.
	Signature string

	// Since selects the letters that the dead letter stream stored at this time or later. Defaults to all.
	Since time.Time

	// Stream selects the jobs of one stream. Defaults to all.
	Stream string

	// Subject is a pattern that the jobs' subjects must match, such as "jobs.mail.>".
	// Defaults to all.
	Subject string

	// Until selects the letters that the dead letter stream stored before this time. Defaults to all.
	Until time.Time
}

// Validate reports everything that is wrong with the filter at once.
func (f Filter) Validate() error {
	var errs []error

	switch f.Kind {
	case "", KindLetter, KindStranded, KindUnreadable:
	default:
		errs = append(errs, fmt.Errorf("deadletter: Filter.Kind is %q: use %q, %q or %q", f.Kind, KindLetter, KindStranded, KindUnreadable))
	}

	if f.Stream != "" && !safeName.MatchString(f.Stream) {
		errs = append(errs, fmt.Errorf("deadletter: Filter.Stream is %q: use 1 to 255 letters, digits, '-' and '_'", f.Stream))
	}

	if f.Subject != "" {
		if err := subject.CheckPattern(f.Subject); err != nil {
			errs = append(errs, fmt.Errorf("deadletter: Filter.Subject is %q: %w", f.Subject, err))
		}
	}

	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		errs = append(errs, fmt.Errorf("deadletter: Filter.Since (%s) must be before Filter.Until (%s)", f.Since, f.Until))
	}
	return errors.Join(errs...)
}

// selects reports whether the filter selects a classified entry.
func (f Filter) selects(e *Entry) bool {
	l := &e.Letter
	return (f.Kind == "" || f.Kind == e.Kind) &&
		(f.Reason == "" || f.Reason == l.Reason) &&
		(f.Signature == "" || f.Signature == l.Signature) &&
		(f.Since.IsZero() || !e.StoredAt.Before(f.Since)) &&
		(f.Stream == "" || f.Stream == l.Stream) &&
		(f.Subject == "" || l.Subject != "" && subject.Matches(f.Subject, l.Subject)) &&
		(f.Until.IsZero() || e.StoredAt.Before(f.Until))
}
