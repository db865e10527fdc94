package outbox

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// inFlight is how many publishes of a batch may be under way.
	inFlight = 256

	// firstRetry and longestRetry are the waits of a row that the server refused.
	firstRetry   = time.Second
	longestRetry = 5 * time.Minute

	// maxReason bounds what is kept of an error.
	maxReason = 1000
)

// outcome is what became of the rows of a batch. Those that are not in it are as they were.
type outcome struct {
	published []published
	refused   []failure
	setAside  []failure
	unclear   bool // some have no answer
	deadline  time.Time
}

// inTime reports whether the batch may publish more. After a long while somebody else may have its lanes.
func (o *outcome) inTime() bool { return time.Now().Before(o.deadline) }

type published struct {
	row *row
	ack *jetstream.PubAck
}

type failure struct {
	row   *row
	err   error
	delay time.Duration
}

// reason is what is kept of the error.
func (f failure) reason() string { return brief(f.err) }

// brief is the text of an error, not too long, as Postgres takes it.
func brief(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "�"), "\x00", "")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "")
	}
	return text
}

// publish publishes rows, each key one after the other, the keys side by side. Of a key there is never more than one under
// way: a message that got lost between two others would come after the second. After until it publishes nothing: a process
// that was frozen may no longer have the lanes.
func (r *Relay) publish(ctx context.Context, s *session, rows []*row, until time.Time) *outcome {
	ctx = context.WithoutCancel(ctx)
	results := &outcome{deadline: until}
	if soon := time.Now().Add(batchTime); soon.Before(until) {
		results.deadline = soon
	}
	var silent []failure
	queues := byKey(rows)
	for len(queues) > 0 && results.inTime() && s.alive() {
		queues = r.round(ctx, s, queues, results, &silent)
	}
	if len(silent) > 0 {
		results.unclear = true
		r.settleSilent(ctx, s, results, silent)
	}
	return results
}

// byKey puts rows that have to stay in order into one queue, each other one into its own.
func byKey(rows []*row) [][]*row {
	place := make(map[string]int, len(rows))
	queues := make([][]*row, 0, len(rows))
	for _, one := range rows {
		i, ok := place[one.OrderingKey]
		if !ok || one.OrderingKey == "" {
			i = len(queues)
			place[one.OrderingKey] = i
			queues = append(queues, nil)
		}
		queues[i] = append(queues[i], one)
	}
	return queues
}

// round publishes the first row of each queue and returns the queues with what is left of them. One that has to wait is not
// among them.
func (r *Relay) round(ctx context.Context, s *session, queues [][]*row, results *outcome, silent *[]failure) [][]*row {
	next := make([][]*row, 0, len(queues))
	for len(queues) > 0 && results.inTime() {
		part := queues[:min(len(queues), inFlight)]
		queues = queues[len(part):]
		futures := make([]jetstream.PubAckFuture, len(part))
		errs := make([]error, len(part))
		for i, queue := range part {
			futures[i], errs[i] = r.send(s, queue[0])
		}
		for i, queue := range part {
			got := answer{err: errs[i]}
			if futures[i] != nil {
				got = s.await(ctx, futures[i])
			}
			if got.err == nil && got.ack.Duplicate {
				got.err = s.same(ctx, got.ack.Sequence, queue[0])
			}
			if r.sort(queue[0], got, results, silent) && len(queue) > 1 {
				next = append(next, queue[1:])
			}
		}
	}
	return next
}

// hopelessError is why a row cannot be a message.
type hopelessError struct{ error }

func (e hopelessError) Unwrap() error { return e.error }

func (r *Relay) send(s *session, one *row) (jetstream.PubAckFuture, error) {
	msg, err := one.message(r.cfg.Stream, r.cfg.Source)
	if err != nil {
		return nil, hopelessError{err}
	}
	future, err := s.js.PublishMsgAsync(msg)
	return future, err //nolint:wrapcheck // judged
}

// sort puts a row where its answer says, and reports whether the next one of its key may go.
func (r *Relay) sort(one *row, got answer, results *outcome, silent *[]failure) bool {
	if got.err == nil {
		results.published = append(results.published, published{row: one, ack: got.ack})
		return true
	}
	f := failure{row: one, err: got.err}
	what := judge(got.err)
	if _, ok := errors.AsType[hopelessError](got.err); ok {
		what = hopeless
	}
	switch what {
	case hopeless:
		results.setAside = append(results.setAside, f)
		return true
	case refused:
		r.refuse(f, results)
	case elsewhere:
		results.unclear = true
	case unclear:
		*silent = append(*silent, f)
	}
	return false
}

// refuse counts an attempt, and sets the row aside when it was the last.
func (r *Relay) refuse(f failure, results *outcome) {
	if f.row.Attempts+1 >= r.cfg.MaxAttempts {
		results.setAside = append(results.setAside, f)
		return
	}
	f.delay = jitter(min(firstRetry<<min(f.row.Attempts, 20), longestRetry))
	results.refused = append(results.refused, f)
}

// settleSilent counts an attempt of the rows that got no answer, if the stream answers other questions. If it does not, it
// is not for the rows to pay for that: the connection is given up.
func (r *Relay) settleSilent(ctx context.Context, s *session, results *outcome, silent []failure) {
	if s.alive() {
		if _, err := s.info(ctx); err == nil {
			for _, f := range silent {
				r.refuse(f, results)
			}
			return
		}
	}
	s.nc.Close()
}
