package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/robfig/cron/v3"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/jsretry"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
	"github.com/expediter-io/expediter/pkg/worker/token"
)

const (
	minPeriod = time.Second // the server's
	maxCron   = 256         // bytes

	scheduleEvery = "@every "
)

// Periodic is a job that the server inserts repeatedly by itself: no process has to run for that, and none has to be elected as leader. A
// run replaces an earlier run that still waits, even for a retry: a worker that comes back after a night finds one run and not hundreds. A
// run that is being worked goes on beside the next run. Name, Subject and either Cron or Every are required.
type Periodic struct {
	// Args is the payload of every run, encoded by ClientConfig.Encode.
	Args any

	// Cron has the times at which runs are due, in five fields (minute, hour, day, month, weekday), in six with the second before them, or as
	// @hourly, @daily, @weekly, @monthly or @yearly.
	Cron string

	// Every is the time from one run to the next, in whole seconds. The first is due after that time.
	Every time.Duration

	// Header holds further headers, as NewJob.Header does. Defaults to none.
	Header nats.Header

	// Name identifies the schedule among those of its subject. It is appended to the subject as one token, so that runs have a subject of
	// their own. Package token encodes it if it is not a token. At most 320 bytes.
	Name string

	// Subject is the subject of the runs, with the name behind it as one more token: a handler of "jobs.report.>" takes the runs of
	// "jobs.report", a handler of "jobs.report" does not.
	Subject string

	// TimeZone is the time zone of Cron, by its name in the server's IANA database. Defaults to UTC.
	TimeZone string
}

// Schedule makes the server insert a job periodically, and reports whether the stored schedule changed. It replaces a different schedule
// of the same subject and name. An equal schedule stays, so every instance may call Schedule when it starts without restarting the
// interval. One round trip for an equal schedule, two otherwise. When the stream has consumers and none takes the runs, Schedule returns
// an [*UntakenError].
//
// Runs are at most about 250 ms late while the stream has a leader. Of the runs that were due while it had none, the server inserts one.
// After the death of a leader that takes 5 to 12 seconds, so a schedule of every second then lacks 5 to 12 runs. Workers cannot add them:
// the server removes the Nats-Msg-Id of a run, so it would not recognise a run that a worker published as well. A handler that must not
// miss a time has to work all that has become due since its last run. A run's Job.ID is "<stream>:<sequence>".
func (c *Client) Schedule(ctx context.Context, p Periodic) (changed bool, err error) {
	plan, err := c.planPeriodic(p)
	if err != nil {
		return false, fmt.Errorf("worker: schedule %q on %q: %w", clip(p.Name, 64), clip(p.Subject, 256), err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.SettleTimeout)
	defer cancel()
	if err := c.checkTaken(ctx, plan.key.Job()); err != nil {
		return false, fmt.Errorf("worker: schedule %q: %w", plan.to, err)
	}
	err = c.repeat(ctx, func(ctx context.Context) (err error) { // another read shows the outcome of a write without an answer
		if changed, err = c.putPeriodic(ctx, plan); errors.Is(err, jetstream.ErrNoStreamResponse) {
			if lack := c.checkStream(ctx, plan); isFinal(lack) {
				return lack
			}
		}
		return err
	})
	switch {
	case isFinal(err):
		return false, err
	case err != nil:
		return false, fmt.Errorf("worker: schedule %q: %w", plan.to, explainRefusal(p, err))
	}
	return changed, nil
}

// explainRefusal returns an error that names the field for which the server refused a schedule.
func explainRefusal(p Periodic, err error) error {
	switch {
	case jsapi.HasCode(err, jsapi.CodeScheduleInvalid):
		return fmt.Errorf("the server cannot read Periodic.Cron %q: %s: %w", clip(p.Cron, 64), cronForms, err)
	case jsapi.HasCode(err, jsapi.CodeZoneInvalid):
		return fmt.Errorf("the server does not know Periodic.TimeZone %q: use a name of the IANA database: %w", clip(p.TimeZone, 64), err)
	}
	return err
}

// cronForms are the forms of Periodic.Cron.
const cronForms = "use five fields, six with the second before them, or @hourly, @daily, @weekly, @monthly or @yearly"

// putPeriodic stores a schedule unless it is there.
func (c *Client) putPeriodic(ctx context.Context, p *plan) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	stored, found, err := c.last(ctx, p.to)
	if err != nil {
		return false, err
	}
	msg := c.message(p)
	if found && isSameSchedule(stored, msg) {
		return false, nil
	}
	msg.Header = maps.Clone(msg.Header)
	msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(stored.Sequence, 10))
	_, err = c.js.PublishMsg(ctx, msg)
	return err == nil, err
}

// isSameSchedule reports whether a stored schedule equals a planned one.
func isSameSchedule(stored jsapi.Message, planned *nats.Msg) bool {
	have := maps.Clone(stored.Header)
	have.Del(jetstream.ExpectedLastSubjSeqHeader)
	have.Del(jetstream.MsgRollup) // the server's
	return bytes.Equal(stored.Data, planned.Data) && maps.EqualFunc(have, planned.Header, slices.Equal)
}

// Unschedule ends a schedule. subject is the subject of the runs, as in [Client.Schedules]. The jobs that it has inserted stay. A schedule
// that does not exist is not an error. Two round trips.
func (c *Client) Unschedule(ctx context.Context, subject string) error {
	k, err := key.Of(subject)
	if err != nil {
		return fmt.Errorf("worker: unschedule %q: %w", clip(subject, key.MaxSubject), err)
	}
	return c.repeat(ctx, func(ctx context.Context) error {
		msg, found, err := c.last(ctx, k.Every())
		if err != nil || !found {
			return err
		}
		return c.remove(ctx, msg.Sequence)
	})
}

// Scheduled is a schedule that the server has stored.
type Scheduled struct {
	// Cron, Every and TimeZone are the same as in the Periodic. A Cron of five fields has the second 0 before them.
	Cron     string        `json:"cron,omitempty"`
	Every    time.Duration `json:"every,omitempty"`
	TimeZone string        `json:"timeZone,omitempty"`

	// Since is the time at which the schedule was stored.
	Since time.Time `json:"since"`

	// Subject is the subject of the runs, with the name.
	Subject string `json:"subject"`
}

// cronFields parses cron fields like the server, whose parser has the same origin.
var cronFields = cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor)

// Next returns the time at which the server inserts the first run after a given time. An interval begins anew when the stream had no
// leader at the time of a run. Next fails only for an invalid schedule that another program has stored.
func (s Scheduled) Next(after time.Time) (time.Time, error) {
	if s.Every > 0 {
		next := s.Since.Round(time.Second).Add(s.Every)
		if late := after.Sub(next); late >= 0 {
			next = next.Add(late.Truncate(s.Every) + s.Every)
		}
		return next.UTC(), nil
	}
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		return time.Time{}, fmt.Errorf("worker: next run: %w", err)
	}
	when, err := cronFields.Parse(s.Cron)
	if err != nil {
		return time.Time{}, fmt.Errorf("worker: next run: %w", err)
	}
	return when.Next(after.In(zone)).UTC(), nil
}

// Schedules returns the schedules of the stream, by subject. It costs a round trip and one more for each schedule.
func (c *Client) Schedules(ctx context.Context) ([]Scheduled, error) {
	stream, err := c.js.Stream(ctx, c.cfg.Stream)
	if err != nil {
		return nil, fmt.Errorf("worker: look up stream %s: %w", c.cfg.Stream, err)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(key.AnyEvery))
	if err != nil {
		return nil, fmt.Errorf("worker: list schedules of %s: %w", c.cfg.Stream, err)
	}
	all := make([]Scheduled, 0, len(info.State.Subjects))
	for _, to := range slices.Sorted(maps.Keys(info.State.Subjects)) {
		msg, found, err := c.last(ctx, to)
		if err != nil {
			return nil, err
		}
		if found { // else ended meanwhile
			all = append(all, c.scheduledOf(msg))
		}
	}
	return all, nil
}

func (c *Client) scheduledOf(msg jsapi.Message) Scheduled {
	s := Scheduled{
		Since: msg.Time, Subject: msg.Header.Get(headerScheduleTarget), TimeZone: msg.Header.Get(jetstream.ScheduleTimeZoneHeader),
	}
	spec := msg.Header.Get(headerSchedule)
	if every, ok := strings.CutPrefix(spec, scheduleEvery); ok {
		s.Every, _ = time.ParseDuration(every) // the server has read it
	} else {
		s.Cron = spec
	}
	return s
}

// planPeriodic checks a schedule and makes its message. The error names all mistakes.
func (c *Client) planPeriodic(p Periodic) (*plan, error) {
	var errs []error
	note := func(field string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", "Periodic."+field, err))
		}
	}
	k, err := periodicKey(p.Subject, p.Name)
	note("Subject", err)
	out := &plan{due: time.Unix(1, 0), key: k, to: k.Every()} // due is set because the stream needs the settings for delayed jobs
	out.header, err = headerOf(p.Header)
	note("Header", err)
	spec, err := specOf(p)
	note("Cron", err)
	out.data, err = c.encode(p.Args)
	note("Args", err)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	out.header.Set(headerSchedule, spec)
	out.header.Set(headerScheduleTarget, k.Job())
	if p.TimeZone != "" {
		out.header.Set(jetstream.ScheduleTimeZoneHeader, p.TimeZone)
	}
	out.header.Set(jetstream.ScheduleRollupHeader, "sub")
	return out, nil
}

// specOf returns the times of runs in the server's notation.
func specOf(p Periodic) (string, error) {
	switch {
	case (p.Cron == "") == (p.Every == 0):
		return "", errors.New("use either Cron or Every")
	case p.Every != 0 && p.TimeZone != "":
		return "", errors.New("a TimeZone goes with Cron only")
	case p.Every != 0 && (p.Every < minPeriod || p.Every%time.Second != 0):
		return "", fmt.Errorf("an Every of %s: use whole seconds, at least one", p.Every)
	case p.Every != 0:
		return scheduleEvery + p.Every.String(), nil
	case len(p.Cron) > maxCron, strings.HasPrefix(p.Cron, "@at"), strings.HasPrefix(p.Cron, "@every"), checkID(p.Cron) != nil:
		return "", fmt.Errorf("%q: %s", clip(p.Cron, 64), cronForms)
	case len(strings.Fields(p.Cron)) == 5: // the server wants the second, too
		return "0 " + p.Cron, nil
	default:
		return p.Cron, nil
	}
}

// periodicKey returns the key of a schedule's runs.
func periodicKey(subject, name string) (key.Key, error) {
	if name == "" {
		return key.Key{}, fmt.Errorf("name: %w", token.ErrEmpty)
	}
	return keyOf(subject, &Unique{Key: name})
}

// ErrNoSchedule is returned when a stream has no schedule of a subject.
var ErrNoSchedule = errors.New("worker: no such schedule")

// RunNow makes a delayed job due at once, with its ID and its key, and returns its former state. The write that queues the job removes its
// schedule, and the server refuses the write when the schedule has fired or was removed: the job never exists twice. A job that is not
// delayed, or is due within 300 ms, stays as it is. Five round trips.
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

// fire queues a delayed job. A job without a schedule is queued already, by an earlier try or because it became due, or was cancelled.
func (c *Client) fire(ctx context.Context, j StoredJob) error {
	stored, found, err := c.api.Get(ctx, c.cfg.Stream, jsapi.Query{Sequence: j.Sequence})
	if err != nil || !found {
		return err
	}
	msg := c.runOf(stored)
	msg.Header.Set(jetstream.SchedulerHeader, stored.Subject)
	msg.Header.Set(jetstream.ScheduleNextHeader, "purge")
	// Not the message ID of the insert, which the server knows.
	msg.Header.Set(nats.MsgIdHdr, fmt.Sprintf("now-%d-%d", stored.Sequence, stored.Time.UnixNano()))
	msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(stored.Sequence, 10))
	msg.Header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, stored.Subject)
	if k, err := key.Of(j.Subject); err == nil && k.Later() == stored.Subject {
		setExpected(msg.Header, k, stored.Sequence)
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	_, err = c.js.PublishMsg(ctx, msg)
	return err
}

// RunSchedule inserts a run of a schedule now, in addition to those that are due. subject is the subject of the runs, as in
// [Client.Schedules]. The run replaces a run that still waits. The error wraps [ErrNoSchedule] when the schedule does not exist. Two round
// trips.
func (c *Client) RunSchedule(ctx context.Context, subject string) (Receipt, error) {
	k, err := key.Of(subject)
	if err != nil {
		return Receipt{}, fmt.Errorf("worker: run schedule %q now: %w", clip(subject, key.MaxSubject), err)
	}
	var stored jsapi.Message
	found := false
	err = jsretry.Do(ctx, c.cfg.SettleTimeout, func(ctx context.Context) (err error) {
		stored, found, err = c.last(ctx, k.Every())
		return err
	})
	switch {
	case err != nil:
		return Receipt{}, err
	case !found:
		return Receipt{}, fmt.Errorf("%w: of %q", ErrNoSchedule, clip(subject, key.MaxSubject))
	}
	r := Receipt{ID: nuid.Next(), State: StateQueued, Subject: subject}
	err = c.repeat(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
		defer cancel()
		msg := c.runOf(stored)
		msg.Header.Set(nats.MsgIdHdr, r.ID)
		if stored.Header.Get(jetstream.ScheduleRollupHeader) != "" {
			msg.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
		}
		ack, err := c.js.PublishMsg(ctx, msg)
		if err == nil {
			r.Sequence, r.Stream = ack.Sequence, ack.Stream
		}
		return err
	})
	if err != nil {
		return Receipt{}, fmt.Errorf("worker: run schedule %q now: %w", clip(subject, key.MaxSubject), err)
	}
	return r, nil
}
