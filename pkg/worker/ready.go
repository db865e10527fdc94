package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker/internal/subject"
)

// ready makes sure, once, that the stream can take what a job needs beside itself.
func (c *Client) ready(ctx context.Context, p *plan) error {
	if p.due.IsZero() && p.keep == 0 && !p.replace {
		return nil
	}

	if seen := c.stream.Load(); seen != nil && len(lacking(*seen, p)) == 0 {
		return nil
	}

	// When it cannot be read, publishing will tell what is wrong.
	if err := c.look(ctx, p); isFinal(err) {
		return err
	}

	return nil
}

// look reads the stream's configuration and says what a job lacks there.
func (c *Client) look(ctx context.Context, p *plan) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()

	stream, err := c.js.Stream(ctx, c.cfg.Stream)

	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return &MissingError{Asset: "stream " + c.cfg.Stream, Cause: err}
	case err != nil:
		return fmt.Errorf("worker: look up stream %s: %w", c.cfg.Stream, err)
	}

	cfg := stream.CachedInfo().Config
	c.stream.Store(&cfg)

	if diff := lacking(cfg, p); len(diff) > 0 {
		return &DriftError{Asset: "stream " + c.cfg.Stream, Differences: diff}
	}

	return nil
}

// lacking names every setting of a stream that a job cannot do without.
func lacking(cfg jetstream.StreamConfig, p *plan) []string {
	var diff []string

	need := func(ok bool, text string) {
		if !ok {
			diff = append(diff, text)
		}
	}

	takes := func(to string) {
		for _, pattern := range cfg.Subjects {
			if subject.Matches(pattern, to) {
				return
			}
		}

		diff = append(diff, fmt.Sprintf("subjects do not cover %q", to))
	}

	takes(p.key.Job())

	if !p.due.IsZero() {
		takes(p.to)
		need(cfg.AllowMsgSchedules, "allow_msg_schedules is false, must be true")
	}

	if p.keep > 0 || p.replace {
		takes(p.key.Done())
		need(cfg.AllowMsgTTL, "allow_msg_ttl is false, must be true")
	}

	if !p.due.IsZero() || p.keep > 0 || p.replace {
		need(cfg.AllowRollup && !cfg.DenyPurge, "allow_rollup_hdrs must be true and deny_purge false")
	}

	return diff
}
