package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

// ErrNoSchedule is returned when a stream has no schedule of a subject.
var ErrNoSchedule = errors.New("worker: no such schedule")

// RunNow makes a delayed job due at once, with its ID and its key, and returns it as it was. The write that queues it takes its
// schedule away, and the server refuses it when the schedule has fired or was removed: the job is never there twice. A job that is
// not delayed, or is due within 300 ms, is left as it is. Five round trips.
func (c *Client) RunNow(ctx context.Context, ref JobRef) (StoredJob, error) {
	j, err := c.Job(ctx, ref)
	if err != nil || j.State != StateScheduled || time.Until(j.Due) < nearDue {
		return j, err
	}
	if err = c.repeat(ctx, func(ctx context.Context) error { return c.fire(ctx, j) }); err != nil {
		err = fmt.Errorf("worker: run job %s now: %w", ref, err)
	}
	return j, err
}

// fire queues a delayed job. One without a schedule is queued already, by an earlier try or since it became due, or was cancelled.
func (c *Client) fire(ctx context.Context, j StoredJob) error {
	stored, found, err := c.api.Get(ctx, c.cfg.Stream, jsapi.Query{Sequence: j.Sequence})
	if err != nil || !found {
		return err
	}
	msg := runOf(stored, c.cfg.Stream)
	msg.Header.Set(jetstream.SchedulerHeader, stored.Subject)
	msg.Header.Set(jetstream.ScheduleNextHeader, "purge")
	// Not that of the insert, which the server knows.
	msg.Header.Set(nats.MsgIdHdr, fmt.Sprintf("now-%d-%d", stored.Sequence, stored.Time.UnixNano()))
	msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(stored.Sequence, 10))
	msg.Header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, stored.Subject)
	if k, err := key.Of(msg.Subject); err == nil && k.Later() == stored.Subject {
		setExpected(msg.Header, k, stored.Sequence)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	_, err = c.js.PublishMsg(ctx, msg)
	return err //nolint:wrapcheck // the caller says of what
}

// runOf is the job of a schedule, as the server would insert it.
func runOf(schedule jsapi.Message, stream string) *nats.Msg {
	msg := &nats.Msg{Subject: schedule.Header.Get(headerScheduleTarget), Header: maps.Clone(schedule.Header), Data: schedule.Data}
	for _, name := range []string{
		headerSchedule, headerScheduleTarget, jetstream.ExpectedLastSubjSeqHeader, jetstream.ExpectedLastSubjSeqSubjHeader,
		jetstream.MsgRollup, jetstream.ScheduleRollupHeader, jetstream.ScheduleTimeZoneHeader,
	} {
		msg.Header.Del(name)
	}
	msg.Header.Set(jetstream.ExpectedStreamHeader, stream)
	return msg
}

// RunSchedule inserts a run of a schedule now, beside those that are due. subject is that of the runs, as [Client.Schedules] returns
// it. Without Periodic.PileUp the run takes the place of one that still waits. The error wraps [ErrNoSchedule] when there is none.
// Two round trips.
func (c *Client) RunSchedule(ctx context.Context, subject string) (Receipt, error) {
	k, err := key.Of(subject)
	if err != nil {
		return Receipt{}, fmt.Errorf("worker: run schedule %q now: %w", clip(subject, key.MaxSubject), err)
	}
	stored, found, err := c.last(ctx, k.Every())
	if err != nil {
		return Receipt{}, err
	}
	if !found {
		return Receipt{}, fmt.Errorf("%w: of %q", ErrNoSchedule, clip(subject, key.MaxSubject))
	}
	r := Receipt{ID: nuid.Next(), State: StateQueued, Subject: subject}
	err = c.repeat(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
		defer cancel()
		msg := runOf(stored, c.cfg.Stream)
		msg.Header.Set(nats.MsgIdHdr, r.ID)
		if stored.Header.Get(jetstream.ScheduleRollupHeader) != "" {
			msg.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
		}
		ack, err := c.js.PublishMsg(ctx, msg)
		if err == nil {
			r.Sequence = ack.Sequence
		}
		return err //nolint:wrapcheck // see below
	})
	if err != nil {
		return Receipt{}, fmt.Errorf("worker: run schedule %q now: %w", clip(subject, key.MaxSubject), err)
	}
	return r, nil
}
