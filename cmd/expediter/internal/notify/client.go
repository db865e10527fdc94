// Package notify publishes events, and asks a notifier for their outcomes, over NATS.
package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/rows"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier"
)

// pageLimit is the number of notifications in one request. One message carries them all, each with its attempts.
const pageLimit = 100

// Client asks a notifier, or with Ask another service. Its methods may be called from several goroutines.
type Client struct {
	Conn    *nats.Conn // the connection to the notifier's server
	Service string     // the name of the service: "notifier", unless only Ask is called

	// Timeout bounds one request. Required.
	Timeout time.Duration
}

// Event returns the state of an event. The error wraps api.ErrNotFound when the notifier does not know the event.
func (c *Client) Event(ctx context.Context, id string) (e notifier.Event, err error) {
	err = c.Ask(ctx, "get", map[string]string{"event_id": id}, &e)
	return e, err
}

func (c *Client) page(ctx context.Context, q notifier.Query) (p notifier.Page, err error) {
	q.Limit = pageLimit
	err = c.Ask(ctx, "list", q, &p)
	return p, err
}

// Notifications yields the notifications that a query selects. It holds a page at a time.
func (c *Client) Notifications(ctx context.Context, q notifier.Query) iter.Seq2[notifier.Notification, error] {
	return paged(func(cursor string) ([]notifier.Notification, string, error) {
		q.Cursor = cursor
		p, err := c.page(ctx, q)
		return p.Notifications, p.Next, err
	})
}

// paged yields what is on all pages. ask returns a page and the cursor of the next one, "" for none.
func paged[T any](ask func(cursor string) ([]T, string, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for next, more := "", true; more; more = next != "" {
			all, cursor, err := ask(next)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, one := range all {
				if !yield(one, nil) {
					return
				}
			}
			next = cursor
		}
	}
}

// Cancel cancels an event, for all users or for one, and returns the outcomes of its notifications, summed over all
// requests that this takes. The error wraps api.ErrNotFound when there is no such event.
func (c *Client) Cancel(ctx context.Context, cancellation notifier.Cancellation) (all notifier.Cancelled, err error) {
	for first := true; ; first = false {
		var done notifier.Cancelled
		if err := c.Ask(ctx, "cancel", cancellation, &done); err != nil {
			return all, err
		}
		done.Ended, done.Sending = done.Ended+all.Ended, done.Sending+all.Sending
		done.Sent, done.Suppressed = done.Sent+all.Sent, done.Suppressed+all.Suppressed
		if !first { // an earlier call of this loop has cancelled it
			done.Again = all.Again
		}
		if all = done; all.Next == "" {
			return all, nil
		}
		cancellation.Cursor = all.Next
	}
}

// Replay resends the notifications that a query selects, and returns their number, summed over all requests that this takes. Those that
// were counted before an error are resent.
func (c *Client) Replay(ctx context.Context, q notifier.Query) (all notifier.Replayed, err error) {
	for {
		q.Limit = pageLimit
		var done notifier.Replayed
		if err := c.Ask(ctx, "replay", q, &done); err != nil {
			return all, err
		}
		all.Gone, all.Replayed = all.Gone+done.Gone, all.Replayed+done.Replayed
		if q.Cursor = done.Next; q.Cursor == "" {
			return all, nil
		}
	}
}

// Ask sends a request in JSON once, and decodes the answer. operation is the end of the subject, such as "users.get". The error wraps
// api.ErrNotFound when the notifier does not know what is asked about.
func (c *Client) Ask(ctx context.Context, operation string, question, into any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("notify: encode a question: %w", err)
	}
	answer, err := c.request(ctx, c.Service+".v1."+operation, body)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%w: the service that answers is no %s: %w", api.ErrUnavailable, c.Service, err)
	}
	return nil
}

func (c *Client) request(ctx context.Context, subject string, body []byte) ([]byte, error) {
	limit, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	answer, err := c.Conn.RequestMsgWithContext(limit, &nats.Msg{
		Subject: subject, Data: body, Header: nats.Header{"Content-Type": {"application/json"}},
	})
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("%w: no %s is there to answer", api.ErrUnavailable, c.Service)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("%w: no %s answered within %s, or the user may not publish to %s",
			api.ErrUnavailable, c.Service, c.Timeout, subject)
	default:
		return nil, fmt.Errorf("%w: ask the %s: %w", api.ErrUnavailable, c.Service, err)
	}
	if code := answer.Header.Get(micro.ErrorCodeHeader); code != "" {
		return nil, c.refused(code, answer)
	}
	return answer.Data, nil
}

func (c *Client) refused(code string, answer *nats.Msg) error {
	text := terminal.Printable(answer.Header.Get(micro.ErrorHeader))
	var more struct {
		Code   string                 `json:"code"`
		Errors []contracts.FieldError `json:"errors"`
	}
	if json.Unmarshal(answer.Data, &more) == nil && len(more.Errors) > 0 {
		text = api.Fields(more.Errors)
	}
	switch {
	case code == "404":
		return fmt.Errorf("%w: %s", api.ErrNotFound, text)
	case more.Code == "EVENT_MISMATCH":
		return ErrMismatch
	case code == "400", code == "422":
		return fmt.Errorf("%w: the %s refuses: %s", api.ErrInvalid, c.Service, text)
	case code == "503", code == "507":
		return fmt.Errorf("%w: the %s says: %s", api.ErrUnavailable, c.Service, text)
	}
	return fmt.Errorf("the %s refuses: %s (%s)", c.Service, text, code)
}

// badEvent returns the error for a value of a file that is no event. The text starts with file:line, so that editors
// can jump to the value.
func badEvent(where, problem string) error {
	return errors.New(terminal.Printable(where + ": " + problem)) // names of fields come from strangers
}

// Messages yields the events of a file: JSON, an array of it, or JSON lines; each an Event.
// The path "-" is stdin. An error with a position concerns one value, and others may follow.
func Messages(ctx context.Context, path string, stdin io.Reader) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for doc, err := range rows.Open(ctx, path, stdin, rows.Options{MaxBytes: contracts.MaxBody}) {
			message := Message{Document: doc}
			row, tooLong := errors.AsType[*rows.Error](err)
			switch {
			case tooLong:
				err = badEvent(row.Where(), row.Problem)
			case err != nil:
				yield(Message{}, err)
				return
			default:
				if message.Event, err = notifier.ReadEvent(doc.Body); err == nil {
					_, err = message.Event.Fingerprint() // fails for an event that no notifier can accept
				}
				if err != nil {
					problem := err.Error()
					if invalid, ok := errors.AsType[*contracts.ValidationError](err); ok {
						problem = api.Fields(invalid.Fields)
					}
					err = badEvent(doc.Where(), problem)
				}
			}
			if !yield(message, err) {
				return
			}
		}
	}
}

// Users yields the users of a kind, or all, as lines for [Client.ImportUsers]. It holds a page at a time.
func (c *Client) Users(ctx context.Context, q notifier.UserQuery) iter.Seq2[json.RawMessage, error] {
	return paged(func(cursor string) ([]json.RawMessage, string, error) {
		var page notifier.UserPage
		q.Cursor = cursor
		err := repeat(func() error { return c.Ask(ctx, "users.list", q, &page) })
		return page.Users, page.Next, err
	})
}

// ImportUsers puts users, which are lines of JSON, and returns the outcome of each line. It tries again when the notifier
// does not answer, or could not store a line. Users that are stored already stay unchanged.
func (c *Client) ImportUsers(ctx context.Context, lines []byte) (results []notifier.ImportedUser, err error) {
	err = repeat(func() error {
		answer, err := c.request(ctx, "notifier.v1.users.import", lines)
		if err == nil {
			results, err = imported(answer)
		}
		return err
	})
	return results, err
}

// imported reads the outcomes of lines. The error wraps api.ErrUnavailable when a line could not be stored.
func imported(answer []byte) (results []notifier.ImportedUser, err error) {
	decoder := json.NewDecoder(bytes.NewReader(answer))
	for decoder.More() {
		var r notifier.ImportedUser
		if broken := decoder.Decode(&r); broken != nil {
			return nil, fmt.Errorf("%w: the service that answers is no notifier: %w", api.ErrUnavailable, broken)
		}
		if r.Status == "failed" {
			err = fmt.Errorf("%w: the notifier says: %s", api.ErrUnavailable, r.Detail)
		}
		results = append(results, r)
	}
	return results, err
}

var (
	// ErrMismatch is returned for an event under whose id another event was published.
	ErrMismatch = errors.New("another event was published under this id: a different event needs another id")

	// ErrNotEnded is returned when not all notifications are known to have ended.
	ErrNotEnded = errors.New("not all of it has ended")

	// ErrUnplanned is returned for an event that the notifier accepted and could not plan.
	ErrUnplanned = errors.New("no user is notified")
)
