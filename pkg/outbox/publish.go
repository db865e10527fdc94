package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/contracts"
)

const (
	// inFlight is the largest number of publishes of a batch under way.
	inFlight = 256

	// firstRetry and longestRetry are the waits of a row that the server refused.
	firstRetry   = time.Second
	longestRetry = 5 * time.Minute

	// maxAttempts is the number of refusals by the server after which a row is set aside. Attempts at a time when the server answers no
	// request do not count.
	maxAttempts = 10

	// maxReason bounds the text that a row keeps of an error.
	maxReason = 1000
)

// outcome is the outcome of a batch. Rows without an outcome stay as they were.
type outcome struct {
	published []published
	refused   []failure
	setAside  []failure
	unclear   bool  // some publishes have no answer
	elsewhere error // why the stream takes no event now
	deadline  time.Time
}

// inTime reports whether the batch may publish more. After its deadline another relay may hold its lanes.
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

// brief returns the text of an error, cut to maxReason and without the bytes that Postgres refuses.
func brief(err error) string {
	return redact.Clip(strings.ReplaceAll(strings.ToValidUTF8(redact.Value(err), "�"), "\x00", ""), maxReason)
}

// publish publishes rows: the rows of one key one after the other, the keys side by side. At most one row of a key is under way: otherwise
// a message that is lost between two others would be published after the second. After until it publishes nothing: a process that was
// frozen may no longer hold the lanes.
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

// byKey puts the rows of one key into one queue, and each row without a key into its own queue.
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

// round publishes the first row of each queue and returns the rest of each queue. It leaves out queues whose first row has to
// be tried again.
func (r *Relay) round(ctx context.Context, s *session, queues [][]*row, results *outcome, silent *[]failure) [][]*row {
	next := make([][]*row, 0, len(queues))
	for len(queues) > 0 && results.inTime() {
		part := queues[:min(len(queues), inFlight)]
		queues = queues[len(part):]
		sent := make([]sending, len(part))
		for i, queue := range part {
			sent[i] = r.send(s, queue[0])
		}
		for i, queue := range part {
			got := s.await(sent[i])
			if got.err == nil && got.ack.Duplicate {
				got.err = s.same(ctx, got.ack.Sequence, queue[0])
			}
			if sent[i].done != nil {
				r.hook("Sending", func() { sent[i].done(got.err) })
			}
			if r.settle(queue[0], got, results, silent) && len(queue) > 1 {
				next = append(next, queue[1:])
			}
		}
	}
	return next
}

// hopelessError is the reason that a row can never be published.
type hopelessError struct{ error }

func (e hopelessError) Unwrap() error { return e.error }

// sending is a publish under way.
type sending struct {
	done   func(error) // the result of the hook, nil for none
	err    error       // nothing was sent
	future jetstream.PubAckFuture
	to     string // the subject
}

func (r *Relay) send(s *session, one *row) (sent sending) {
	msg, err := one.message(r.cfg.Stream, r.subject)
	if err != nil {
		return sending{err: hopelessError{err}}
	}
	if r.cfg.Hooks.Sending != nil {
		r.hook("Sending", func() { sent.done = r.cfg.Hooks.Sending(msg.Header) })
	}
	sent.to = msg.Subject
	sent.future, sent.err = s.js.PublishMsgAsync(msg)
	switch {
	case errors.Is(sent.err, nats.ErrMaxPayload):
		sent.err = fmt.Errorf("%d bytes with headers, the server takes at most %d: %w", msg.Size()-len(msg.Subject), s.nc.MaxPayload(), sent.err)
	case errors.Is(sent.err, nats.ErrBadHeaderMsg): // those of the row are valid
		sent.err = fmt.Errorf("Hooks.Sending added a header that cannot be sent: %w", sent.err)
	}
	return sent
}

// subject returns the subject of an event.
func (r *Relay) subject(e contracts.Event) (subject string, err error) {
	err = errPanicked
	r.hook("Subject", func() { subject, err = r.cfg.Subject(e) })
	return subject, err
}

// fingerprint returns the fingerprint of an event by its body.
func (r *Relay) fingerprint(body []byte) (mark string, err error) {
	err = errPanicked
	r.hook("Fingerprint", func() { mark, err = r.cfg.Fingerprint(body) })
	return mark, err
}

// errPanicked is the reason for setting an event aside when a function of the configuration panics.
var errPanicked = errors.New("a function of outbox.Config panicked, see the log")

// settle puts a row into the result or list of its answer, and reports whether the next row of its key may be published.
func (r *Relay) settle(one *row, got answer, results *outcome, silent *[]failure) bool {
	if got.err == nil {
		results.published = append(results.published, published{row: one, ack: got.ack})
		return true
	}
	f := failure{row: one, err: got.err}
	switch classify(got.err) {
	case hopeless:
		results.setAside = append(results.setAside, f)
		return true
	case refused:
		r.refuse(f, results)
	case elsewhere:
		results.unclear = true
		if !jsapi.IsInProcess(got.err) {
			results.elsewhere = got.err
		}
	case unclear:
		*silent = append(*silent, f)
	}
	return false
}

// refuse counts an attempt, and sets the row aside after the last attempt.
func (r *Relay) refuse(f failure, results *outcome) {
	if f.row.Attempts+1 >= maxAttempts {
		results.setAside = append(results.setAside, f)
		return
	}
	f.delay = retry.Spread(retry.Wait(f.row.Attempts, firstRetry, longestRetry), jitter)
	results.refused = append(results.refused, f)
}

// settleSilent counts an attempt for the rows that got no answer, if the stream answers another request. Otherwise the rows are not at
// fault: settleSilent closes the connection and counts nothing.
func (r *Relay) settleSilent(ctx context.Context, s *session, results *outcome, silent []failure) {
	if s.alive() {
		if s.check(ctx) == nil {
			for _, f := range silent {
				f.err = jsapi.Unanswered(s.nc, f.err)
				r.refuse(f, results)
			}
			return
		}
	}
	s.nc.Close()
}

// same returns contracts.ErrEventMismatch when the stream's message under the id of a row has another event.
func (s *session) same(ctx context.Context, sequence uint64, one *row) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	event, err := one.event()
	if err == nil {
		err = s.publisher.Compare(ctx, sequence, event)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil // the message was there at its acknowledgement
	}
	return err
}
