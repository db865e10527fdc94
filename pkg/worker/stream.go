package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/subject"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

// StreamConfig returns what a stream of jobs should be: a work queue with the subject of the jobs, such as "jobs.>", and beside it
// the subjects "jobs-later.>" for delayed jobs and "jobs-done.>" for the records of unique ones, with the message TTLs,
// schedules and roll-ups that these need. Storage, replicas and limits are the caller's to set; a limit with the policy
// DiscardNew excludes schedules.
//
// Jobs of different first tokens do not belong in one stream: a key is the part of the subject behind the first token, so
// jobs.mail.7 and tasks.mail.7 would exclude each other there.
func StreamConfig(name, jobs string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: key.Subjects(jobs), Retention: jetstream.WorkQueuePolicy,
		AllowDirect: true, AllowMsgSchedules: true, AllowMsgTTL: true, AllowRollup: true,
	}
}

// ensureStream makes sure, once, that the stream takes what a job needs beside itself, and that a consumer takes the job.
func (c *Client) ensureStream(ctx context.Context, p *plan) error {
	if err := c.checkTaken(ctx, p.key.Job()); err != nil {
		return err
	}
	if p.due.IsZero() && p.keep == 0 && !p.replace && !p.unrecorded {
		return nil
	}
	if seen := c.stream.Load(); seen != nil && len(lacking(*seen, p)) == 0 {
		return nil
	}
	// When the stream cannot be read, publishing reports what is wrong. An unrecorded job needs nothing of the
	// configuration.
	if err := c.checkStream(ctx, p); isFinal(err) && !p.unrecorded {
		return err
	}
	return nil
}

// checkStream reads the stream's configuration and names what a job lacks there.
func (c *Client) checkStream(ctx context.Context, p *plan) error {
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
		covered := slices.ContainsFunc(cfg.Subjects, func(pattern string) bool { return subject.Matches(pattern, to) })
		need(covered, fmt.Sprintf("subjects do not cover %q", to))
	}
	takes(p.key.Job())
	later, recorded := !p.due.IsZero(), p.keep > 0 || p.replace
	if later {
		takes(p.to)
		need(cfg.AllowMsgSchedules, "allow_msg_schedules is false, must be true")
	}
	if recorded {
		takes(p.key.Done())
		need(cfg.AllowMsgTTL, "allow_msg_ttl is false, must be true")
	}
	if later || recorded {
		need(cfg.AllowRollup && !cfg.DenyPurge, "allow_rollup_hdrs must be true and deny_purge false")
	}
	return diff
}
