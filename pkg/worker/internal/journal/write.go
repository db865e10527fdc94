package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/internal/retry"
)

// Bounds of the wait between two tries of a write whose outcome is unknown. A leader change takes seconds, a lost answer
// costs one try.
const (
	minWait = 5 * time.Millisecond
	maxWait = 250 * time.Millisecond
)

// errOutrun is returned when the stored journal is not the one that this attempt knew.
var errOutrun = errors.New("the journal has changed")

// check makes sure, before a step, that this attempt is the latest. It does so at the first step, and whenever that is in doubt.
func (j *Journal) check(ctx context.Context) error {
	doubted := false
	if j.attempt.Check != nil {
		var err error
		if doubted, err = j.attempt.Check(ctx); errors.Is(err, ErrGone) {
			return j.fenced(record{})
		} else if err != nil {
			return fmt.Errorf("look for the job in its stream: %w", err)
		}
	}
	if !j.opened {
		return j.open(ctx, doubted)
	}
	if !doubted {
		return nil
	}
	return j.takeOver(ctx, j.until(), true)
}

// open takes the journal over for this attempt. The first attempt at a job need not read it.
func (j *Journal) open(ctx context.Context, doubted bool) error {
	const usual = 8 // the number of steps for which there is room
	j.steps, j.used, j.writer = slices.Grow(j.steps, usual), make([]string, 0, usual), nuid.Next()
	j.written = record{
		Version: version, Writer: j.writer, Origin: j.attempt.origin(), Deliveries: j.attempt.Deliveries, Job: j.attempt.Job,
	}.head()
	j.head, j.lines = len(j.written), len(j.written)
	if j.store == nil {
		j.store = j.server.stored(j.attempt)
	}
	if !j.attempt.fresh() || j.attempt.Unsure || doubted {
		if err := j.takeOver(ctx, j.until(), doubted); err != nil {
			return err
		}
	}
	j.opened = true
	return nil
}

// takeOver reads the journal and writes it again under this attempt's name. The server accepts the write only at the
// revision that was read, so no step was missed, and no earlier attempt can write any more. With doubted, a record counts as that of a
// later attempt unless it is known to be that of an earlier one.
func (j *Journal) takeOver(ctx context.Context, until time.Time, doubted bool) error {
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		now, revision, err := j.load(ctx)
		if err == nil {
			switch {
			case revision > j.revision && j.isLater(now, doubted):
				return j.fenced(now)
			case j.opened && doubted && revision == j.revision:
				return nil // the journal is still this attempt's
			case j.opened && doubted && revision < j.revision:
				err = errors.New("a server that is no leader any more has answered, or the journal's time is over")
			}
		}
		if err == nil {
			if j.attempt.fresh() && revision == 0 {
				return nil // nothing was forgotten
			}
			j.taken, j.revision, j.steps, j.lines = true, revision, now.Steps, j.head
			if err = j.write(ctx, until, j.steps); err == nil || !errors.Is(err, errOutrun) {
				return err
			}
		}
		if isPermanent(err) || !pause(ctx, wait, until) {
			return fmt.Errorf("read the journal of job %s: %w", j.attempt.Job, err)
		}
	}
}

// isLater reports whether a record that this attempt has not written is that of a later attempt. Once this attempt has written, every
// other record is: earlier attempts can write no more.
func (j *Journal) isLater(now record, doubted bool) bool {
	if now.Origin == j.attempt.origin() {
		return now.Deliveries > j.attempt.Deliveries || doubted && (j.acked || now.Deliveries == j.attempt.Deliveries)
	}
	created, _, _ := strings.Cut(now.Origin, "-")
	at, err := strconv.ParseInt(created, 36, 64)
	return doubted && (j.acked || err != nil || at > j.attempt.Created)
}

// load reads the record as the stream's leader has it.
func (j *Journal) load(ctx context.Context) (record, uint64, error) {
	data, revision, err := j.store.load(ctx)
	if err != nil || len(data) == 0 {
		return record{}, revision, err
	}
	rec, err := decode(data)
	if err != nil {
		return record{}, 0, &RecordError{Cause: err, Job: j.attempt.Job}
	}
	return rec, revision, nil
}

// write replaces the record by one with the given steps. The steps begin with those of the journal, unless lines is head.
//
// A refusal proves no more than a time-out does: around a change of leader both have been seen for writes that were applied.
// So after either, write reads the record back. If this attempt wrote the record, it is the record of this write, since an attempt sends
// one write at a time. If the record is unchanged, or older because a deposed leader answered, write sends the same again. A later record
// of another attempt ends this one. If this attempt began without reading the journal, write returns errOutrun instead.
func (j *Journal) write(ctx context.Context, until time.Time, steps []entry) error {
	known := 0
	if j.lines > j.head {
		known = len(j.steps)
	}
	data, lines := encode(j.written[:j.lines], known, steps)
	j.written = data
	var last error
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		revision, err := j.store.save(ctx, data, j.revision)
		if err == nil {
			j.acked, j.lines, j.revision, j.steps = true, lines, revision, steps
			return nil
		}
		if isPermanent(err) {
			return fmt.Errorf("%w: %w", ErrNotRecorded, err)
		}
		now, revision, rerr := j.load(ctx)
		switch {
		case rerr != nil:
			last = errors.Join(err, rerr)
		case revision <= j.revision:
			last = err
		case now.Writer == j.writer:
			j.acked, j.lines, j.revision, j.steps = true, lines, revision, steps
			return nil
		case j.acked:
			return j.fenced(now)
		default:
			return errOutrun
		}
		if isPermanent(rerr) || !pause(ctx, wait, until) {
			j.broken = fmt.Errorf("%w: job %s: %w", ErrNotRecorded, j.attempt.Job, last)
			return j.broken
		}
	}
}

// fenced ends the attempt because the record is that of a later attempt.
func (j *Journal) fenced(now record) error {
	err := &FencedError{Deliveries: now.Deliveries, Job: j.attempt.Job}
	j.broken = err
	if j.attempt.Lost != nil {
		j.attempt.Lost(err)
	}
	return err
}

// until returns the time at which an operation that begins now is given up.
func (j *Journal) until() time.Time { return time.Now().Add(j.server.cfg.Settle) }

// pause waits for about d and reports whether there is time for another try.
func pause(ctx context.Context, d time.Duration, until time.Time) bool {
	left := time.Until(until)
	return left > 0 && retry.Jitter(ctx, min(d, left))
}
