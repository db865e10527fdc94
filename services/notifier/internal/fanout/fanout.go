package fanout

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsotel"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/row"
)

// The points that an expander passes, in order: between any two of them its process may die.
const (
	PointRow      = "fanout.row"      // a row was sent to the stream
	PointRows     = "fanout.rows"     // all rows are stored
	PointExpanded = "fanout.expanded" // the event's record says so
)

const (
	// window is how many rows of one plan are on their way to the stream at a time.
	window = 512

	// maxPending is never reached: each plan keeps to its window.
	maxPending = 1 << 20

	// ackTimeout is after how long a row without an answer is written again.
	ackTimeout = 5 * time.Second
)

// Expander stores the rows of plans. It may be used by many goroutines at once, in any number of processes.
type Expander struct {
	// Telemetry counts rows, and has their spans link to that of their expansion. Defaults to none.
	Telemetry *natsotel.Telemetry

	js     jetstream.JetStream // publishes without waiting, and has no other use
	passed func(point string)
	reader *plan.Reader
	rows   *row.Streams
}

// New returns an expander. passed is called at each point, in tests; it may be nil. No round trip. Close it.
func New(nc *nats.Conn, records *kvrecord.Client, passed func(point string)) (*Expander, error) {
	if passed == nil {
		passed = func(string) {}
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(maxPending), jetstream.WithPublishAsyncTimeout(ackTimeout))
	if err != nil {
		return nil, fmt.Errorf("notifier: %w", err)
	}
	return &Expander{js: js, passed: passed, reader: plan.NewReader(records), rows: row.Open(records)}, nil
}

// Close ends the publisher. No call may be under way.
func (e *Expander) Close() { e.js.CleanupPublisher() }

// Stored is the result of an expansion.
type Stored struct {
	// New is how many rows this call stored.
	New int

	// Old is how many were there.
	Old int
}

// Expand stores the rows of a plan that are not there yet, and returns when all are. It may be called again after any
// error and any crash: a row is taken by the stream once, for as long as it keeps it. It holds a page of the plan and
// some hundred rows at a time. Of an event that has been cancelled it stores nothing.
func (e *Expander) Expand(ctx context.Context, p *plan.Plan) (Stored, error) {
	var stored Stored
	kept, err := e.reader.Event(ctx, p.EventID)
	if err != nil && !errors.Is(err, plan.ErrNotFound) {
		return stored, err
	}
	if err == nil && kept.State == plan.StateCancelled {
		return stored, nil
	}
	header, err := row.Header(p.CreatedAt)
	if err != nil {
		return stored, err
	}
	within, sending := e.Telemetry.Send(ctx, contracts.StreamNotifications, header) // once for all rows of the plan
	err = e.store(within, p, header, &stored)
	sending.EndSends(stored.New, err)
	if err != nil {
		return stored, err
	}
	e.passed(PointRows)
	if err := e.reader.Expanded(ctx, p); err != nil {
		return stored, err
	}
	e.passed(PointExpanded)
	return stored, nil
}

// store stores the rows of a plan, with the headers that all have, and counts them.
func (e *Expander) store(ctx context.Context, p *plan.Plan, header nats.Header, stored *Stored) error {
	var encoder row.Encoder
	flight := make([]sent, 0, window)
	settle := func(n int) error {
		for _, s := range flight[:n] {
			if err := e.settle(ctx, s, stored); err != nil {
				return err
			}
		}
		flight = append(flight[:0], flight[n:]...)
		return nil
	}
	for n, err := range e.reader.Rows(ctx, p) {
		if err != nil {
			return err
		}
		if len(flight) == window {
			if err := settle(window / 2); err != nil {
				return err
			}
		}
		s, err := e.send(n, e.rows[p.Partition(n.UserID)], &encoder, header)
		if err != nil {
			return fmt.Errorf("plan of %.80q: %w", p.EventID, err)
		}
		flight = append(flight, s)
		e.passed(PointRow)
	}
	return settle(len(flight))
}

// sent is a row on its way.
type sent struct {
	data    []byte
	future  jetstream.PubAckFuture
	header  nats.Header
	stream  *kvrecord.Stream
	subject string
}

func (e *Expander) send(n contracts.Notification, to *kvrecord.Stream, encoder *row.Encoder, header nats.Header) (sent, error) {
	first, err := encoder.Message(n, header)
	if err != nil {
		return sent{}, err
	}
	s := sent{data: first.Data, header: first.Header, stream: to, subject: first.Subject}
	// The option writes into the headers; a second try, see settle, replaces its value.
	msg := &nats.Msg{Subject: to.To(s.subject), Data: s.data, Header: s.header}
	s.future, err = e.js.PublishMsgAsync(msg, jetstream.WithExpectLastSequencePerSubject(0))
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return s, fmt.Errorf("publish %s: %w", s.subject, err)
	case err != nil:
		return s, fmt.Errorf("%w: publish %s: %w", kvrecord.ErrUnavailable, s.subject, err)
	}
	return s, nil
}

// settle waits until a row is in the stream. A refusal that does not name the row that is there, and an answer that is
// missing, say nothing: the row is then written until it is there, or another one is, which can only be the same.
func (e *Expander) settle(ctx context.Context, s sent, stored *Stored) error {
	var err error
	select {
	case <-s.future.Ok():
		stored.New++
		return nil
	case err = <-s.future.Err():
	case <-ctx.Done():
		return fmt.Errorf("%w: store %s: %w", kvrecord.ErrUnavailable, s.subject, context.Cause(ctx))
	}
	if exists(err) {
		stored.Old++
		return nil
	}
	_, err = s.stream.Put(ctx, kvrecord.Write{Subject: s.subject, Header: s.header, Data: s.data})
	if errors.Is(err, kvrecord.ErrConflict) {
		stored.Old++
		return nil
	} else if err != nil {
		return err
	}
	stored.New++
	return nil
}

// exists reports whether the error of a write that expected no record says that there certainly is one: the server names it.
func exists(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok || api.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence {
		return false
	}
	_, number, found := strings.Cut(api.Description, "wrong last sequence: ")
	last, err := strconv.ParseUint(number, 10, 64)
	return found && err == nil && last > 0
}
