package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/step"
)

const (
	maxText  = 64 << 10 // bytes of a payload or a value that are shown
	maxAsked = 16       // workers that are asked for their last attempts
)

// shownStep is a step whose result is recorded.
type shownStep struct {
	step.Recorded

	Text string
	Took time.Duration // the time since the previous step, 0 for the first
}

// attemptRow is an attempt that a worker remembers.
type attemptRow struct {
	inspect.Attempt

	Link   template.URL // of the worker
	Worker string
}

type jobPart struct {
	*worker.StoredJob

	Attempts    []attemptRow
	Error       string
	Limits      []string     // of its handler
	Link        template.URL // of the worker that has it
	MaxAttempts int
	Progress    string
	Steps       []shownStep
}

type jobPage struct {
	*jobsQuery

	CanCancel, CanRun bool
	Headers           string
	Hidden            []string // names of the members of the payload that are not shown
	Input             string
	Job               worker.StoredJob
	Parts             []*jobPart
	Paused            []paused // the pauses of its handlers
	Refusal           error    // to cancel it
	Trace             string
	Unasked           string // the reason that workers gave no answer
}

// showJob shows a job: four round trips while the job is in the stream, up to eight when it is not, one or two for its steps, and for a
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
	if q.Subject != "" && j.Subject != q.Subject { // of a stream that was made again
		return sayJobs(worker.ErrNoJob)
	}
	p := newJobPage(q, j)
	isNew := j.State == worker.StateQueued || j.State == worker.StateScheduled || j.State == worker.StateCancelled
	if !isNew || len(p.Parts) > 1 {
		for _, part := range p.Parts {
			if err := p.readSteps(r.Context(), part); err != nil {
				return err
			}
		}
		c.addAttempts(r.Context(), p)
	}
	r.Command = q.JobSelection.Line("show", strconv.FormatUint(j.Sequence, 10))
	if !j.HasEnded() {
		r.Live = topicTick
		pauses, err := q.client.Pauses(r.Context())
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) { // there is no bucket for pauses
			p.Unasked = redact.Text(err.Error())
		}
		for _, pause := range pauses {
			if subject.Matches(pause.Pattern, j.Subject) {
				p.Paused = append(p.Paused, paused{pause, q.Account, q.Stream})
			}
		}
	}
	return r.render("job", fmt.Sprintf("Job %s of %s", number(j.Sequence), q.Stream), p)
}

func newJobPage(q *jobsQuery, j worker.StoredJob) *jobPage {
	p := &jobPage{jobsQuery: q, Job: j, CanRun: operate.RunJobs.Can(j), Refusal: j.CancelRefusal()}
	p.CanCancel = operate.CancelJobs.Can(j) && p.Refusal == nil
	p.Input, p.Hidden = readable(j.Subject, j.Payload)
	for _, as := range j.Each() {
		part := &jobPart{StoredJob: as, Error: redact.People(as.Error)}
		if l := as.DeadLetter; l != nil {
			part.Error, part.MaxAttempts = redact.People(l.Error), l.MaxAttempts
		}
		if as.Progress != nil && string(as.Progress.Value) != "null" {
			part.Progress, _ = readable("", as.Progress.Value)
		}
		p.Parts = append(p.Parts, part)
	}
	p.Headers = headers(j.Header)
	if parts := strings.Split(j.Header.Get("traceparent"), "-"); len(parts) == 4 {
		p.Trace = parts[1]
	}
	return p
}

// readSteps reads the recorded steps of the job at a consumer, from the buckets that may have some.
func (p *jobPage) readSteps(ctx context.Context, part *jobPart) error {
	var before time.Time
	buckets := []string{contracts.BucketJobs}
	if p.Stream == contracts.StreamImportJobs {
		buckets = append(buckets, contracts.BucketImportSteps)
	}
	j := *part.StoredJob
	j.Header = p.Job.Header
	for _, bucket := range buckets {
		found, err := step.List(ctx, p.js, bucket, p.Job.Stream, j)
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
			part.Steps = append(part.Steps, shown)
		}
	}
	return nil
}

// part returns the job as a consumer has it, nil if it does not take the job. A job with one consumer had no other.
func (p *jobPage) part(consumer string) *jobPart {
	for _, part := range p.Parts {
		if part.Consumer == consumer || len(p.Parts) == 1 {
			return part
		}
	}
	return nil
}

// addAttempts adds the attempts that the workers of the stream remember, and the limits of the handlers.
func (c *Console) addAttempts(ctx context.Context, p *jobPage) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	all, err := c.askWorkers(ctx)
	if err != nil {
		p.Unasked = redact.Text(err.Error())
	} else if len(all) == 0 {
		p.Unasked = "no worker answers"
	}
	all = slices.DeleteFunc(all, func(w workerRow) bool { return w.of() != streamID{p.Account, p.Stream} })
	for i, w := range all {
		for _, h := range w.Handlers {
			if part := p.part(h.Consumer); part != nil && subject.Matches(h.Pattern, p.Job.Subject) {
				part.Limits, part.MaxAttempts = h.Limits, h.MaxAttempts
				if part.StoredJob.Progress != nil && part.StoredJob.Progress.Worker == w.ID {
					part.Link = w.Link
				}
			}
		}
		if i >= maxAsked {
			continue
		}
		recent, err := inspect.RecentOf(ctx, w.js, w.Instance)
		if err != nil {
			p.Unasked = redact.Text(err.Error())
		}
		for _, a := range recent.Attempts {
			if part := p.part(a.Consumer); part != nil && a.Sequence == p.first() && a.Job == p.Job.ID {
				a.Error = redact.People(a.Error)
				part.Attempts = append(part.Attempts, attemptRow{a, w.Link, w.ID})
			}
		}
	}
	for _, part := range p.Parts {
		slices.SortFunc(part.Attempts, func(a, b attemptRow) int { return a.Started.Compare(b.Started) })
	}
}

// first returns the position of the job in its stream, even if the job has ended.
func (p *jobPage) first() uint64 {
	if p.Job.DeadLetter != nil {
		return p.Job.DeadLetter.Sequence
	}
	if n, err := strconv.ParseUint(p.Job.Header.Get(worker.HeaderSequence), 10, 64); err == nil {
		return n
	}
	return p.Job.Sequence
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
	value, hidden = concealSecrets(of, value)
	var lines strings.Builder
	encoder := json.NewEncoder(&lines)
	encoder.SetEscapeHTML(false) // the template does
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return "", nil
	}
	return lines.String(), hidden
}

func headers(of nats.Header) string {
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(of)) {
		for _, value := range of[name] {
			fmt.Fprintf(&lines, "%s: %s\n", name, redact.People(value))
		}
	}
	return lines.String()
}
