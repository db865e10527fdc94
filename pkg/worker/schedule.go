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
	"github.com/robfig/cron/v3"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/internal/validate"
	"github.com/expediter-io/expediter/pkg/worker/internal/jobmsg"
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

	// Every is the time from one run to the next, in whole seconds, up to ten years. The first is due after that time.
	Every time.Duration

	// Header holds further headers, as NewJob.Header does. Defaults to none.
	Header nats.Header

	// Name identifies the schedule among those of its subject. It is appended to the subject as one token, so that runs have a subject of
	// their own, encoded if it is not a token. At most 320 bytes.
	Name string

	// Subject is the subject of the runs, with the name behind it as one more token: a handler of "jobs.report.>" takes the runs of
	// "jobs.report", a handler of "jobs.report" does not.
	Subject string

	// TimeZone is the time zone of Cron, by its name in the server's IANA database. The server skips or repeats some runs when the clocks of
	// the zone change: README.md has a table. Defaults to UTC.
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
	_, err = c.send(ctx, msg)
	return err == nil, err
}

// isSameSchedule reports whether a stored schedule equals a planned one.
func isSameSchedule(stored jsapi.Message, planned *nats.Msg) bool {
	have := maps.Clone(stored.Header)
	have.Del(jetstream.ExpectedLastSubjSeqHeader)
	have.Del(jetstream.MsgRollup) // the server's
	return bytes.Equal(stored.Data, planned.Data) && maps.EqualFunc(have, planned.Header, slices.Equal)
}

// Unschedule ends a schedule. of is the subject of the runs, as in [Client.Schedules]. The jobs that it has inserted stay. A schedule
// that does not exist is not an error. Two round trips.
func (c *Client) Unschedule(ctx context.Context, of string) error {
	k, err := jobmsg.KeyOf(of)
	if err != nil {
		return fmt.Errorf("worker: unschedule %q: %w", clip(of, jobmsg.MaxSubject), err)
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

// Next returns the time at which the server inserts the first run after a given time. An interval starts over when the stream had no
// leader at the time of a run. Next fails for a schedule that never runs, and for an invalid one that another program has stored.
func (s Scheduled) Next(after time.Time) (time.Time, error) {
	if every := int64(s.Every / time.Second); every > 0 {
		next := s.Since.Round(time.Second).Unix() + every
		if late := after.Unix() - next; late >= 0 {
			next += (late/every + 1) * every
		}
		return time.Unix(next, 0).UTC(), nil
	}
	zone, err := time.LoadLocation(s.TimeZone)
	if err != nil {
		return time.Time{}, fmt.Errorf("worker: next run: %w", err)
	}
	when, err := cronFields.Parse(s.Cron)
	if err != nil {
		return time.Time{}, fmt.Errorf("worker: next run: %w", err)
	}
	fields, ok := when.(*cron.SpecSchedule)
	if !ok {
		return time.Time{}, fmt.Errorf("worker: next run: %q: %s", clip(s.Cron, 64), cronForms)
	}
	return nextCron(fields, after.In(zone))
}

// nextCron returns the first run after a time, by the steps of the server's parseCron. SpecSchedule.Next takes others: it notices a day
// without midnight, and the server does not, see Periodic.TimeZone.
func nextCron(fields *cron.SpecSchedule, after time.Time) (time.Time, error) {
	const maxYears, star = 5, 1 << 63 // star is the bit of a "*"
	t, floored, zone := after.Truncate(time.Second).Add(time.Second), false, after.Location()
	in := func(field uint64, value int) bool { return field>>value&1 == 1 }
	onDay := func() bool {
		day, weekday := in(fields.Dom, t.Day()), in(fields.Dow, int(t.Weekday()))
		return day && weekday || (day || weekday) && (fields.Dom|fields.Dow)&star == 0
	}
	add := func(d time.Duration) func() time.Time { return func() time.Time { return t.Add(d) } }
	// seek moves t to the next unit that fits, and reports whether it came to none before a larger unit began.
	seek := func(fits func() bool, floor time.Time, next func() time.Time, began func() bool) bool {
		for !fits() {
			if !floored {
				t, floored = floor, true
			}
			before := t
			if t = next(); !t.After(before) { // the server never gets past a day that a zone skips as a whole
				t = t.AddDate(maxYears+1, 0, 0)
				return true
			}
			if began() {
				return true
			}
		}
		return false
	}
	for last := t.Year() + maxYears; t.Year() <= last; {
		switch {
		case seek(func() bool { return in(fields.Month, int(t.Month())) }, time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, zone),
			func() time.Time { return t.AddDate(0, 1, 0) }, func() bool { return t.Month() == time.January }):
		case seek(onDay, time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, zone),
			func() time.Time { return t.AddDate(0, 0, 1) }, func() bool { return t.Day() == 1 }):
		case seek(func() bool { return in(fields.Hour, t.Hour()) }, time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), 0, 0, 0, zone),
			add(time.Hour), func() bool { return t.Hour() == 0 }):
		case seek(func() bool { return in(fields.Minute, t.Minute()) }, t.Truncate(time.Minute),
			add(time.Minute), func() bool { return t.Minute() == 0 }):
		case seek(func() bool { return in(fields.Second, t.Second()) }, t,
			add(time.Second), func() bool { return t.Second() == 0 }):
		default:
			return t.UTC(), nil
		}
	}
	return time.Time{}, errors.New("worker: next run: none within five years")
}

// Schedules returns the schedules of the stream, by subject. It costs a round trip and one more for each schedule.
func (c *Client) Schedules(ctx context.Context) ([]Scheduled, error) {
	stream, err := c.js.Stream(ctx, c.cfg.Stream)
	if err != nil {
		return nil, fmt.Errorf("worker: look up stream %s: %w", c.cfg.Stream, err)
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(jobmsg.AnyEvery))
	if err != nil {
		return nil, fmt.Errorf("worker: list schedules of %s: %w", c.cfg.Stream, err)
	}
	all := make([]Scheduled, 0, len(info.State.Subjects))
	for _, to := range slices.Sorted(maps.Keys(info.State.Subjects)) {
		msg, found, err := c.last(ctx, to)
		if err != nil {
			return nil, err
		}
		if found { // else ended in the meantime
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
	k, badSubject := keyOf(p.Subject, p.Name)
	h, badHeader := headerOf(p.Header)
	spec, badCron := specOf(p)
	data, badArgs := c.encode(p.Args, h)
	err := errors.Join(
		inField("Periodic.Subject", badSubject),
		validate.If(p.Name == "", "Periodic.Name: %w", subject.ErrEmpty),
		inField("Periodic.Header", badHeader),
		inField("Periodic.Cron", badCron),
		inField("Periodic.Args", badArgs))
	if err != nil {
		return nil, err
	}
	// due is set because the stream needs the settings for delayed jobs.
	out := &plan{data: data, due: time.Unix(1, 0), header: h, key: k, to: k.Every()}
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
	case p.Every != 0 && (p.Every < minPeriod || p.Every > maxAhead || p.Every%time.Second != 0):
		return "", fmt.Errorf("an Every of %s: use whole seconds, 1 to %d (ten years)", p.Every, int64(maxAhead/time.Second))
	case strings.EqualFold(p.TimeZone, "Local"), checkID(p.TimeZone) != nil:
		return "", fmt.Errorf("a TimeZone of %.64q: use a name of the IANA database", p.TimeZone)
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
	if k, err := jobmsg.KeyOf(j.Subject); err == nil && k.Later() == stored.Subject {
		setExpected(msg.Header, k, stored.Sequence)
	}
	_, err = c.send(ctx, msg)
	return err
}
