package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/expediter-io/expediter/services/notifier"
)

// User returns a part of a user. The error wraps ErrNotFound when the notifier does not know the user.
func (c *Client) User(ctx context.Context, r notifier.UserRequest) (u notifier.User, err error) {
	err = c.ask(ctx, "notifier.v1.users.get", r, &u)
	return u, err
}

// PutUser changes a part of a user, and returns it.
func (c *Client) PutUser(ctx context.Context, r notifier.UserRequest) (u notifier.User, err error) {
	err = c.ask(ctx, "notifier.v1.users.put", r, &u)
	return u, err
}

// DeleteUser removes a part of a user, or the user.
func (c *Client) DeleteUser(ctx context.Context, r notifier.UserRequest) error {
	return c.ask(ctx, "notifier.v1.users.delete", r, &struct{}{})
}

// Users yields the users of a kind, or all, as lines for [Client.ImportUsers]. It holds a page at a time.
func (c *Client) Users(ctx context.Context, q notifier.UserQuery) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		for {
			var page notifier.UserPage
			err := ErrUnavailable
			for n := 0; n < tries && errors.Is(err, ErrUnavailable); n++ {
				err = c.ask(ctx, "notifier.v1.users.list", q, &page)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, line := range page.Users {
				if !yield(line, nil) {
					return
				}
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				return
			}
		}
	}
}

// ImportUsers puts users, which are lines of JSON, and returns what became of each. It tries again when the notifier does not answer,
// or could not store a line: what is stored already is left as it is.
func (c *Client) ImportUsers(ctx context.Context, lines []byte) (results []notifier.ImportedUser, err error) {
	for range tries {
		var answer []byte
		if answer, err = c.request(ctx, "notifier.v1.users.import", lines); err == nil {
			results, err = imported(answer)
		}
		if !errors.Is(err, ErrUnavailable) {
			break
		}
	}
	return results, err
}

// imported reads what became of lines. The error wraps ErrUnavailable when one could not be stored.
func imported(answer []byte) (results []notifier.ImportedUser, err error) {
	decoder := json.NewDecoder(bytes.NewReader(answer))
	for decoder.More() {
		var r notifier.ImportedUser
		if broken := decoder.Decode(&r); broken != nil {
			return nil, fmt.Errorf("%w: what answers is no notifier: %w", ErrUnavailable, broken)
		}
		if r.Status == "failed" {
			err = fmt.Errorf("%w: the notifier says: %s", ErrUnavailable, r.Detail)
		}
		results = append(results, r)
	}
	return results, err
}

// SendTest has a test message sent now, and returns what the far side said. It is not tried again: it could arrive twice.
func (c *Client) SendTest(ctx context.Context, m notifier.TestMessage) (sent notifier.TestSent, err error) {
	err = c.ask(ctx, "notifier.v1.templates.test", m, &sent)
	return sent, err
}

// Address has something done about one of a user's addresses: secret, rotate, test or replay. A test is not tried again.
func (c *Client) Address(ctx context.Context, what string, r notifier.AddressRequest, answer any) error {
	return c.ask(ctx, "notifier.v1.endpoints."+what, r, answer)
}
