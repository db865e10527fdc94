package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/internal/subject"
	"github.com/expediter-io/expediter/pkg/redact"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

const (
	maxText  = 64 << 10 // bytes of a payload or a value that are shown
	maxAsked = 16       // workers that are asked for their last attempts
)

// moment is a point of a job's timeline.
type moment struct {
	At    time.Time
	Words string
}

// shownStep is a step whose result is recorded.
type shownStep struct {
	step.Recorded

	Text string
	Took time.Duration // the time since the previous step, 0 for the first
}

// try is an attempt that a worker remembers.
type try struct {
	inspect.Attempt

	Worker string
}

// jobPage is one job.
type jobPage struct {
	*jobsQuery

	CanCancel, CanRun bool
	Error             string
	Headers           string
	Hidden            []string // names of the members of the payload that are not shown
	Input             string
	Job               worker.StoredJob
	Limits            []string // of its handler
	MaxAttempts       int
	Progress          string
	Steps             []shownStep
	Times             []moment
	Trace             string
	Tries             []try
	Unasked           string // the reason that workers gave no answer
}

// showJob shows a job: three round trips while the job is in the stream, up to eight when it is not, one or two for its steps, and for a
// started job one for each worker of the stream.
func (c *Console) showJob(r *request) error {
	q, err := c.jobsQuery(r, r.URL.Query())
	if err != nil {
		return err
	}
	sequence, err := strconv.ParseUint(r.PathValue("sequence"), 10, 64)
	if err != nil || sequence == 0 {
		return fail(http.StatusNotFound, "%.30q is no job: want its number.", r.PathValue("sequence"))
	}
	ref := worker.JobRef{ID: r.URL.Query().Get("id"), Sequence: sequence, Subject: q.Subject}
	j, err := q.client.Job(r.Context(), ref)
	if err != nil {
		return sayJobs(err)
	}
	p := newJobPage(q, j)
	if j.State != worker.StateQueued && j.State != worker.StateScheduled && j.State != worker.StateCancelled {
		if err := p.readSteps(r.Context()); err != nil {
			return err
		}
		c.addTries(r.Context(), p)
	}
	p.times()
	r.Command = q.JobSelection.Line("show", strconv.FormatUint(j.Sequence, 10))
	if !operate.HasEnded(j) {
		r.Live = topicTick
	}
	return r.render("job", fmt.Sprintf("Job %s of %s", number(j.Sequence), q.Stream), p)
}

func newJobPage(q *jobsQuery, j worker.StoredJob) *jobPage {
	p := &jobPage{jobsQuery: q, Job: j, CanCancel: operate.CancelJobs.Can(j), CanRun: operate.RunJobs.Can(j)}
	p.Input, p.Hidden = readable(j.Subject, j.Payload)
	if l := j.Letter; l != nil {
		p.Error, p.MaxAttempts = redact.People(l.Error), l.MaxAttempts
	}
	if j.Progress != nil {
		p.Progress, _ = readable("", j.Progress.Value)
	}
	p.Headers = headers(j.Header)
	if parts := strings.Split(j.Header.Get("traceparent"), "-"); len(parts) == 4 {
		p.Trace = parts[1]
	}
	return p
}

// readSteps reads the recorded steps of the job, from the buckets that may have some.
func (p *jobPage) readSteps(ctx context.Context) error {
	var before time.Time
	buckets := []string{contracts.BucketJobs}
	if p.Stream == contracts.StreamImportJobs {
		buckets = append(buckets, contracts.BucketImportSteps)
	}
	for _, bucket := range buckets {
		found, err := step.List(ctx, p.js, bucket, p.Job.Stream, p.Job)
		if err != nil {
			return err
		}
		for _, s := range found {
			shown := shownStep{Recorded: s}
			shown.Text, _ = readable("", s.Value)
			if !before.IsZero() {
				shown.Took = s.At.Sub(before)
			}
			before = s.At
			p.Steps = append(p.Steps, shown)
		}
	}
	return nil
}

// askTries asks the workers of a stream, or of all for "", for the attempts that they remember. unasked is the reason that some did not
// answer.
func (c *Console) askTries(ctx context.Context, stream string, each func(inspect.Info, inspect.Attempt)) (unasked string) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	all, err := c.allWorkers(ctx)
	if errors.Is(err, inspect.ErrNoWorker) {
		unasked = "no worker answers"
	} else if err != nil {
		unasked = redact.Text(err.Error())
	}
	all = slices.DeleteFunc(all, func(w inspect.Info) bool { return stream != "" && w.Stream != stream })
	for _, w := range all[:min(len(all), maxAsked)] {
		recent, err := inspect.RecentOf(ctx, c.cfg.Conn, w.Instance)
		if err != nil {
			unasked = redact.Text(err.Error())
		}
		for _, a := range recent.Attempts {
			each(w, a)
		}
	}
	return unasked
}

// addTries adds the attempts that the workers remember, and the limits of its handler.
func (c *Console) addTries(ctx context.Context, p *jobPage) {
	all, _ := c.allWorkers(ctx) // they are asked below
	for _, w := range all {
		for _, h := range w.Handlers {
			if w.Stream == p.Stream && subject.Matches(h.Pattern, p.Job.Subject) {
				p.Limits, p.MaxAttempts = h.Limits, h.MaxAttempts
			}
		}
	}
	p.Unasked = c.askTries(ctx, p.Stream, func(w inspect.Info, a inspect.Attempt) {
		if a.Sequence == p.first() && a.Job == p.Job.ID {
			a.Error = redact.People(a.Error)
			p.Tries = append(p.Tries, try{a, w.ID})
		}
	})
	slices.SortFunc(p.Tries, func(a, b try) int { return a.Started.Compare(b.Started) })
}

// first returns the position of the job in its stream, even if the job has ended.
func (p *jobPage) first() uint64 {
	if p.Job.Letter != nil {
		return p.Job.Letter.Sequence
	}
	if n, err := strconv.ParseUint(p.Job.Header.Get(worker.HeaderSequence), 10, 64); err == nil {
		return n
	}
	return p.Job.Sequence
}

// times makes the timeline of the job.
func (p *jobPage) times() {
	add := func(at time.Time, format string, args ...any) {
		if !at.IsZero() {
			p.Times = append(p.Times, moment{at, fmt.Sprintf(format, args...)})
		}
	}
	switch p.Job.State { // the others are in the stream
	case worker.StateDone, worker.StateCancelled:
		add(p.Job.Since, "%s", p.Job.State)
	case worker.StateDead:
		if p.Job.Letter != nil {
			add(p.Job.Letter.EnqueuedAt, "stored")
		}
		add(p.Job.Since, "given up")
	default:
		add(p.Job.Since, "stored")
		add(p.Job.Due, "due")
	}
	for _, s := range p.Steps {
		add(s.At, "step %s recorded", s.Name)
	}
	for _, t := range p.Tries {
		add(t.Started, "attempt %d began on %s", t.Attempt.Attempt, t.Worker)
	}
	if w := p.Job.Progress; w != nil {
		words := cmp.Or(map[worker.State]string{worker.StateQueued: "waits"}[w.State], "running")
		add(w.At, "%s said last: attempt %d, %s", w.Worker, w.Attempt, words)
	}
	slices.SortStableFunc(p.Times, func(a, b moment) int { return a.At.Truncate(time.Millisecond).Compare(b.At.Truncate(time.Millisecond)) })
}

// readable returns the JSON of a message on a subject with a line for each value, without personal and secret members, and the names of
// these members. For a text that is not JSON it returns only the size, for other data the first bytes.
func readable(of string, data []byte) (text string, hidden []string) {
	if len(data) == 0 {
		return "", nil
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if len(data) > maxText || decoder.Decode(&value) != nil {
		if isText(data) {
			return number(len(data)) + " bytes of text", nil
		}
		return fmt.Sprintf("%s bytes: % x", number(len(data)), data[:min(len(data), 512)]), nil
	}
	value, hidden = contracts.Conceal(of, value)
	var lines strings.Builder
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false) // the template does
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return "", nil
	}
	return lines.String(), hidden
}

// headers writes the headers of a message, a line for each value.
func headers(of nats.Header) string {
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(of)) {
		for _, value := range of[name] {
			fmt.Fprintf(&lines, "%s: %s\n", name, redact.People(value))
		}
	}
	return lines.String()
}
