package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/expediter-io/expediter/pkg/worker/internal/api"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

// ErrLive is returned when a key cannot be freed since its job has not ended.
var ErrLive = errors.New("worker: the job has not ended")

// Inspect returns what there is of a key: of the job with the given subject and, unless
// that is "", Unique.Key. One round trip, two for a job that may be running, which shows once
// it has run for AckWait/3 of its worker. What it says may have changed meanwhile: Insert
// decides by itself.
func (c *Client) Inspect(ctx context.Context, subject, uniqueKey string) (Status, error) {
	k, err := keyOf(subject, &Unique{Key: uniqueKey})
	if err != nil {
		return Status{}, fmt.Errorf("worker: inspect: %w", err)
	}

	return c.inspect(ctx, k)
}

func (c *Client) inspect(ctx context.Context, k key.Key) (Status, error) {
	msg, found, err := c.last(ctx, k)

	switch {
	case err != nil:
		return Status{}, err
	case !found:
		return Status{State: StateFree, Subject: k.Job()}, nil
	}

	s, err := c.statusOf(ctx, k, msg)
	if s.State == StateFree {
		return Status{State: StateFree, Subject: k.Job()}, err
	}

	if err == nil && s.State == StateQueued {
		if p, err := c.progressOf(ctx, k, msg); err == nil && p.State == StateRunning {
			s.State = StateRunning
		}
	}

	return s, err
}

// Free lets go of a key that is held by the record of a job that is done or dead, and
// returns what held it. A key that is free already is no error. A key whose job has not
// ended is [ErrLive]: nothing is lost by freeing. Three round trips at most, as a rule.
func (c *Client) Free(ctx context.Context, subject, uniqueKey string) (Status, error) {
	k, err := keyOf(subject, &Unique{Key: uniqueKey})
	if err != nil {
		return Status{}, fmt.Errorf("worker: free: %w", err)
	}

	freed := Status{State: StateFree, Subject: k.Job()}

	for {
		s, err := c.inspect(ctx, k)

		switch {
		case err != nil:
			return Status{}, err
		case s.State == StateFree:
			return freed, nil
		case s.State != StateDone && s.State != StateDead && s.State != StateCancelled:
			return s, fmt.Errorf("worker: free %q: %w, it is %s", s.Subject, ErrLive, s.State)
		}

		if err := c.remove(ctx, s.Sequence); err != nil {
			return Status{}, err
		}

		freed = s
	}
}

// last reads the last message of a key.
func (c *Client) last(ctx context.Context, k key.Key) (api.Message, bool, error) {
	return c.lastOn(ctx, k.Any())
}

func (c *Client) lastOn(ctx context.Context, subject string) (api.Message, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()

	msg, found, err := api.Last(ctx, c.js, c.cfg.Stream, subject)
	if err != nil {
		return api.Message{}, false, fmt.Errorf("worker: %w", err)
	}

	return msg, found, nil
}

// remove deletes a message, if it is there.
func (c *Client) remove(ctx context.Context, sequence uint64) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()

	if err := api.Delete(ctx, c.js, c.cfg.Stream, sequence); err != nil {
		return fmt.Errorf("worker: %w", err)
	}

	return nil
}
