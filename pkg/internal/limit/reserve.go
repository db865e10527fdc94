package limit

import (
	"context"
	"errors"
	"time"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// Reserve takes the next start that a rate allows, if that is due within the given time, and returns when it is. It reports
// false, and takes none, if it is due later. A start whose write was not acknowledged may be lost to all; Reserve takes
// another.
func (s *Set) Reserve(ctx context.Context, r Rule, within time.Duration) (start time.Time, ok bool, err error) {
	subject := s.subject("keys." + r.name())

	for pause := minPause; ; pause = min(2*pause, maxPause) {
		found, err := s.get(subject)
		if err != nil {
			return start, false, err
		}

		rec, err := decode(found.Data)
		if err != nil {
			return start, false, &RecordError{Cause: err, Subject: subject}
		}

		now := time.Now()
		if start = rec.next(r.Spec, now); start.After(now.Add(within)) {
			return start, false, nil
		}

		rec.use(r.Spec, now, start)

		_, err = s.put(subject, rec, found, rec.kept(now))
		if err == nil {
			return start, true, nil
		}

		if !errors.Is(err, kvrecord.ErrConflict) {
			s.report(err)
		}

		if !backoff.Pause(ctx, pause) || s.ctx.Err() != nil {
			return start, false, errors.Join(context.Cause(ctx), err)
		}
	}
}
