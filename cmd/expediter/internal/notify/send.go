package notify

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"time"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/rows"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// Outcome is the outcome of publishing an event.
type Outcome string

// The outcomes.
const (
	// Accepted means: the event is new, and kept.
	Accepted Outcome = "accepted"
	// Duplicate means: the event had been published before.
	Duplicate Outcome = "duplicate"
	// Ignored means: the event is new, and no rule applies to it. Only a notifier reports that.
	Ignored Outcome = "ignored"
	// Mismatch means: another event had been published under its id, and stays.
	Mismatch Outcome = "mismatch"
)

// Target takes events. It tries again by itself, with the same event, where that may succeed.
type Target interface {
	// Publish publishes an event. It returns when the event is kept, or an error.
	Publish(ctx context.Context, e recipient.Event) (Outcome, error)
}

// Stream is the Target that writes events into the stream. It needs no notifier, and recognises ids for as long as the
// stream does: two minutes. One round trip for each event.
type Stream struct{ *contracts.Publisher }

// Publish implements Target.
func (s Stream) Publish(ctx context.Context, e recipient.Event) (Outcome, error) {
	var done contracts.Published
	m, err := e.Message()
	if err == nil {
		done, err = s.Publisher.Publish(ctx, m)
	}
	switch {
	case errors.Is(err, contracts.ErrEventMismatch):
		return Mismatch, nil
	case silent(err):
		return "", fmt.Errorf("%w: %w", api.ErrUnavailable, err)
	case err != nil:
		return "", err
	case done.Duplicate:
		return Duplicate, nil
	}
	return Accepted, nil
}

// silent reports whether the stream did not answer, rather than refuse.
func silent(err error) bool {
	failed, ok := errors.AsType[*contracts.PublishError](err)
	return ok && (failed.Unsure || errors.Is(err, context.DeadlineExceeded))
}

// Publish implements Target. The notifier accepts the event, and recognises its id for ever.
func (c *Client) Publish(ctx context.Context, e recipient.Event) (Outcome, error) {
	var done notifier.Accepted
	err := repeat(func() error { return c.Ask(ctx, "publish", e, &done) })
	switch {
	case errors.Is(err, ErrMismatch):
		return Mismatch, nil
	case err != nil:
		return "", fmt.Errorf("event %.80q: %w", e.EventID, err)
	case done.Ignored:
		return Ignored, nil
	case done.Duplicate:
		return Duplicate, nil
	}
	return Accepted, nil
}

// repeat asks a notifier that exists and does not answer up to three times.
func repeat(ask func() error) (err error) {
	for range 3 {
		if err = ask(); !errors.Is(err, api.ErrUnavailable) {
			break
		}
	}
	return err
}

// Message is an event with its position in the input.
type Message struct {
	Document rows.Record
	Event    recipient.Event
}

// Result is the result for one event.
type Result struct {
	Message

	Err     error // of an event that may not have been accepted
	Outcome Outcome
}

// lanes is the number of events that are under way at a time. The events of one aggregate go through one lane, one after the
// other, so that they are stored in the order of the input.
const lanes = 32

// ahead is the number of events that may wait for the reports of earlier ones.
const ahead = 256

// Send publishes events, and calls report for each, in their order. It ends when an event could not be published, or the
// input has a mistake, after it has called report for all events that it tried, also failed ones. Memory is bounded.
func Send(ctx context.Context, target Target, messages iter.Seq2[Message, error], report func(Result) error) (failed error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan *pending, ahead) // in the order of the input
	var readErr error                   // written before queue is closed
	go func() {
		defer close(queue)
		var last [lanes]*pending
		for message, err := range messages {
			if readErr = err; err != nil || ctx.Err() != nil {
				return
			}
			p, lane := &pending{Result: Result{Message: message}, done: make(chan struct{})}, laneOf(message.Event)
			go p.publish(ctx, target, last[lane])
			last[lane] = p
			queue <- p
		}
	}()
	for p := range queue {
		<-p.done
		switch {
		case errors.Is(p.Err, errGivenUp):
			continue
		case p.Err != nil && failed == nil:
			failed = fmt.Errorf("%s: %w", p.Document.Where(), p.Err)
			cancel(errGivenUp)
		}
		if err := report(p.Result); err != nil && failed == nil {
			failed = err
			cancel(errGivenUp)
		}
	}
	return errors.Join(failed, readErr)
}

// pending is an event that is under way, until done is closed.
type pending struct {
	Result

	done chan struct{}
}

// publish publishes the event once the one before it in its lane, if any, is done.
func (p *pending) publish(ctx context.Context, target Target, before *pending) {
	defer close(p.done)
	if before != nil {
		<-before.done
	}
	if p.Err = context.Cause(ctx); p.Err == nil {
		p.Outcome, p.Err = target.Publish(ctx, p.Event)
	}
}

var errGivenUp = errors.New("an earlier event could not be published")

func laneOf(e recipient.Event) int {
	h := fnv.New32a()
	for _, part := range []string{e.AggregateType, e.AggregateID, string(e.RestaurantID)} {
		_, _ = h.Write([]byte(part + "\x00"))
	}
	return int(h.Sum32() % lanes)
}

// The waits between two requests for notifications that have not ended.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// Tally counts the notifications of events by their states.
type Tally map[notifier.State]int

// All returns the number of all notifications.
func (t Tally) All() int {
	n := 0
	for _, of := range t {
		n += of
	}
	return n
}

// Open returns the number of notifications that have not ended.
func (t Tally) Open() int {
	n := 0
	for state, of := range t {
		if !state.Ended() {
			n += of
		}
	}
	return n
}

// Await waits until all notifications of an event have ended, and adds them to a tally. It reads a page at a time, and rereads the page
// until all on it have ended. When ctx ends before, the error wraps ErrNotEnded, and the tally has the last known states of those that were
// read. A refused event has no notifications: the error wraps ErrUnplanned.
func (c *Client) Await(ctx context.Context, eventID string, tally Tally) error {
	looks := 0
	again := func() bool {
		looks++
		return retry.Sleep(ctx, retry.Wait(looks-1, firstPause, lastPause))
	}
	for {
		e, err := c.Event(ctx, eventID)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && (e.State == stateExpanded || e.State == stateCancelled) {
			break
		}
		if err == nil && e.State == stateRefused {
			return fmt.Errorf("%w of event %.80q: %s", ErrUnplanned, eventID, e.Reason)
		}
		if !again() {
			return fmt.Errorf("%w: %q is not planned; see expediter dead list --job-stream EVENTS", ErrNotEnded, eventID)
		}
	}
	q := notifier.Query{EventID: eventID}
	for {
		page, of, err := c.tallied(ctx, q)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && of.Open() == 0 {
			tally.add(of)
			if q.Cursor, looks = page.Next, 0; q.Cursor == "" {
				return nil
			}
			continue
		}
		if !again() {
			tally.add(of)
			return fmt.Errorf("%w: notifications of %q are under way", ErrNotEnded, eventID)
		}
	}
}

const (
	stateCancelled = "cancelled" // no more of its notifications are sent
	stateExpanded  = "expanded"  // all its notifications are stored
	stateRefused   = "refused"   // the event could not be planned
)

func (c *Client) tallied(ctx context.Context, q notifier.Query) (notifier.Page, Tally, error) {
	page, err := c.page(ctx, q)
	of := Tally{}
	for _, n := range page.Notifications {
		of[n.State]++
	}
	return page, of, err
}

func (t Tally) add(other Tally) {
	for state, n := range other {
		t[state] += n
	}
}
