// Package watch finds the problems of jobs, for the overview of the console and for doctor.
//
// [Look] collects what is known about a stream, and [State.Problems] judges it. [Memory] keeps back what may be over in a moment: a worker
// that restarts is not a problem, and one that stays away is.
package watch

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/consumer"
	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/worker"
)

const (
	// twice is longer than a round: what it outlasts was found by two rounds of the overview, so a fault is named within 5 seconds.
	twice = 1500 * time.Millisecond

	// restarts is the time in which a worker that is restarted is back. Until then its absence is a warning.
	restarts = 10 * time.Second

	// settles is the time after which a worker that takes no jobs is an error: each server that restarts makes some for a moment.
	settles = 5500 * time.Millisecond

	// minFailed is the number of failed attempts that make an outage, if they are at least half of all that the workers remember.
	minFailed = 5

	// recovered is the number of completed attempts in a row after which earlier failures do not count.
	recovered = 3

	// forgotten is the age of a last failure that says nothing about now, if no job waits for a retry.
	forgotten = 10 * time.Minute

	// manyDead is the number of dead letters of an hour that are a problem.
	manyDead = 50

	fullNoted, fullRefused = 0.80, 0.95 // as in readiness

	// maxSkew is the largest difference of two clocks.
	maxSkew = 2 * time.Second

	// unhandledFor is the time for which a job without a handler counts: it is delivered again every 5 seconds.
	unhandledFor = 15 * time.Second
)

// Severity is the severity of a problem.
type Severity string

// The severities: something does not work, or deserves a look.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Problem is a problem that a person has to look at.
type Problem struct {
	// ID names the kind of problem, such as "worker.gone".
	ID string

	Severity Severity

	// Of names the object, such as "stream ORDERS", and Text says what is wrong with it, and why.
	Of, Text string

	// Since is the time since when it is known.
	Since time.Time

	// Command is the command line that shows more, or fixes it.
	Command string

	// Runbook is the section of docs/runbooks.md with the steps.
	Runbook string

	// Page are the parts of the address of the console's page that shows more.
	Page []any

	// Follows reports whether the problem says nothing new while most servers are away.
	Follows bool

	after   time.Duration // for which it has to last
	mark    string        // the problem begins again when it changes
	worsens time.Duration // until then it is a warning, because it may be a restart
}

// kinds has what problems of one kind have in common.
var kinds = map[string]Problem{
	"clock.worker":     {Severity: Warning, Runbook: "clockskew", after: twice},
	"consumer.changed": {Severity: Error, Runbook: "noworkerready", after: twice},
	"consumer.paused":  {Severity: Error, Runbook: "noworkerready"},
	"consumer.missing": {Severity: Error, Runbook: "noworkerready", after: twice, Follows: true},
	"dead.rising":      {Severity: Error, Runbook: "deadlettersgrow"},
	"handler.failing":  {Severity: Error, Runbook: "jobsfail"},
	"handler.missing":  {Severity: Error, Runbook: "nohandler"},
	"handler.paused":   {Severity: Warning, Runbook: "handlerpaused"},
	"job.poison":       {Severity: Error, Runbook: "poison"},
	"limit.starved":    {Severity: Error, Runbook: "limitstarved", worsens: restarts},
	"queue.stranded":   {Severity: Error, Runbook: "jobsstranded", after: twice},
	"schedule.silent":  {Severity: Error, Runbook: "schedulesilent", after: twice},
	"schedule.untaken": {Severity: Error, Runbook: "jobsstranded", after: twice},
	"stream.full":      {Severity: Warning, Runbook: "streamfilling"},
	"worker.frozen":    {Severity: Error, Runbook: "workerfrozen", after: twice},
	"worker.gone":      {Severity: Error, Runbook: "jobsnotworked", after: twice, Follows: true},
	"worker.idle":      {Severity: Error, Runbook: "noworkerready", worsens: settles, Follows: true},
	"worker.stuck":     {Severity: Error, Runbook: "handlersstuck"},
}

// Memory has the problems that were found before, and since when they last.
type Memory map[string]time.Time

// Certain returns the problems that have lasted long enough, the worst first, and the memory for the next round. unsure reports whether
// another round may find more, or worse.
func (m Memory) Certain(now time.Time, found []Problem) (certain []Problem, next Memory, unsure bool) {
	next = Memory{}
	for _, p := range found {
		id := p.ID + " " + p.Of + " " + p.mark
		since, ok := m[id]
		if !ok {
			since = now
		}
		if next[id] = since; now.Sub(since) < p.after {
			unsure = true
			continue
		}
		if p.Since.IsZero() {
			p.Since = since
		}
		if now.Sub(since) < p.worsens {
			unsure, p.Severity = true, Warning
			p.Text += fmt.Sprintf(". It may be a restart: it is an error after %s", p.worsens)
		}
		certain = append(certain, p)
	}
	slices.SortStableFunc(certain, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Severity, b.Severity), cmp.Compare(a.Of, b.Of), cmp.Compare(a.ID, b.ID))
	})
	return certain, next, unsure
}

// State is what one round found out about a stream.
type State struct {
	details

	Account string
	Info    *jetstream.StreamInfo

	// At is the time of the round.
	At time.Time

	// Count counts the jobs, with At zero where nobody may count them.
	Count consumer.Count

	// Workers are the workers of the stream that answered. Asked reports whether they were asked: without, no answer means nothing.
	Workers []inspect.Info
	Asked   bool

	// Answered has, by consumer, the last worker that answered.
	Answered map[string]inspect.Info

	// Frozen are workers that answered, do not any more, and have not ended: their connections live.
	Frozen []inspect.Info

	Pauses []worker.Pause

	// Stranded is the number of jobs that no consumer will deliver, such as one with the subject Example. Known reports whether it is known.
	Stranded uint64
	Example  string
	Known    bool

	// Dead is the number of dead letters of the last hour. Partial reports whether there may be more: only the newest are read.
	Dead    int
	Partial bool

	moved bool // figures of a consumer changed since the round before
}

// HasJobs reports whether workers take jobs of the stream: it may have jobs, or a consumer has the settings of a worker's.
func (s State) HasJobs() bool {
	for _, c := range s.Count.Consumers {
		if c.Ours {
			return true
		}
	}
	return operate.HasJobs(s.Info.Config)
}

// Running returns the number of jobs that the workers run.
func (s State) Running() (n uint64) {
	for _, w := range s.Workers {
		n += uint64(max(w.Running, 0))
	}
	return n
}

// problem returns a problem of an object of the stream, with a page and a command about the stream's jobs.
func (s State) problem(id, of, format string, args ...any) Problem {
	p, name := kinds[id], s.Info.Config.Name
	if p.ID, p.Of, p.Text = id, of, fmt.Sprintf(format, args...); s.Account != "" {
		p.Of += " of " + s.Account
	}
	p.Command, p.Page = s.jobs("workers"), []any{"/jobs", name, s.query("state", string(worker.StateQueued))}
	return p
}

// jobs returns the command line of expediter jobs about the stream.
func (s State) jobs(verb string, more ...string) string {
	return (&operate.JobSelection{Account: s.Account, Stream: s.Info.Config.Name}).Line(verb, more...)
}

// query returns the parameters of an address, with the account.
func (s State) query(pairs ...string) url.Values {
	q := url.Values{}
	for i, pairs := 0, append(pairs, "account", s.Account); i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// Problems judges the state. It does not know how long they last, see [Memory.Certain].
func (s State) Problems() (all []Problem) {
	all = s.Full()
	if !MayHaveJobs(s.Info.Config.Name) || !s.HasJobs() {
		return all
	}
	for _, find := range []func() []Problem{s.gone, s.frozen, s.missing, s.changed, s.failing, s.paused, s.starved, s.poison, s.late} {
		all = append(all, find()...)
	}
	of := "stream " + s.Info.Config.Name
	if s.Known && s.Stranded > 0 {
		p := s.problem("queue.stranded", of, "%s that no consumer will ever deliver, such as %s", counted(s.Stranded, "message"), s.Example)
		if len(s.Count.Consumers) == 0 {
			p.Text += ". The stream has no consumer: its workers never ran"
		}
		p.Command = operate.Line("dead stranded "+s.Info.Config.Name, &operate.JobSelection{Account: s.Account})
		all = append(all, p)
	}
	if s.Dead >= manyDead {
		more := ""
		if s.Partial {
			more = " or more"
		}
		p := s.problem("dead.rising", of, "%d dead letters%s within an hour", s.Dead, more)
		all = append(all, s.atDeadLetters(p))
	}
	for _, w := range s.Workers {
		all = append(all, OfWorker(s.Account, w)...)
	}
	return all
}

// atDeadLetters returns a problem with the page and the command of the stream's newest dead letters.
func (s State) atDeadLetters(p Problem) Problem {
	p.Command = operate.Line("dead groups", &operate.JobSelection{Account: s.Account}, "--since", "1h", "--job-stream", s.Info.Config.Name)
	p.Page = []any{"/dead", s.query("since", "1h", "job-stream", s.Info.Config.Name)}
	return p
}

// gone finds consumers with work for which no worker answers.
func (s State) gone() (all []Problem) {
	for id, c := range s.Count.Consumers {
		drained, answers := s.attended(id.Name)
		if c.Queued+c.Delivered == 0 || answers || !s.Asked && c.Pulls > 0 {
			continue
		}
		last, answered := s.Answered[id.Name]
		isForeign := !c.Ours && !answered // or a worker's of which somebody changed the settings
		isQueue := c.Config.DeliverSubject == "" && s.Info.Config.Retention == jetstream.WorkQueuePolicy
		if isForeign && (c.Pulls > 0 || !isQueue) {
			continue
		}
		p := s.problem("worker.gone", "consumer "+s.Info.Config.Name+"/"+id.Name,
			"no worker of it answers: %s queued, %d delivered and not done. ", counted(c.Queued, "job"), c.Delivered)
		if c.Queued == 0 {
			p.Page[2] = s.query("state", string(worker.StateDelivered))
		}
		how := "has ended or lost its connection"
		if c.Delivered == 0 || last.Stopping {
			how = "has stopped"
		}
		switch {
		case drained:
			p.ID, p.Severity, p.Runbook = "worker.drained", Warning, "handlerpaused"
			p.Text = fmt.Sprintf("all its workers are drained: %s queued. Resume one: expediter jobs drain --resume", counted(c.Queued, "job"))
		case c.Pulls > 0: // a worker that may not answer acknowledges
			p.Text += fmt.Sprintf("%d pull requests are left of workers that are frozen, or may not answer", c.Pulls)
			p.mark = strconv.FormatUint(c.Acknowledged, 10)
		case slices.ContainsFunc(s.Frozen, func(w inspect.Info) bool { return takes(w, id.Name) }):
			p.Text += "The last one, " + last.ID + " on " + last.Host + ", is frozen"
		case answered:
			p.worsens = restarts
			p.Text += "The last one, " + last.ID + " on " + last.Host + ", " + how
		case isForeign: // a program that pulls one batch after the other acknowledges one within ack_wait
			p.Severity, p.mark, p.after = Warning, strconv.FormatUint(c.Acknowledged, 10), max(p.after, c.Config.AckWait)
			p.Text += fmt.Sprintf("Nothing pulls from it, and its max_deliver of %d and max_ack_pending of %d are not those of a worker (-1, -1)",
				c.Config.MaxDeliver, c.Config.MaxAckPending)
		default:
			p.Text += "Its program does not run, or has no connection"
		}
		all = append(all, p)
	}
	return all
}

// attended reports whether a worker of a consumer is drained, and whether one works for it.
func (s State) attended(of string) (drained, answers bool) {
	for _, w := range s.Workers {
		if takes(w, of) {
			drained = drained || w.Drained
			answers = answers || !w.Drained || w.Running > 0
		}
	}
	return drained, answers
}

func counted(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprint(n, " ", noun, "s")
}

// takes reports whether a worker has handlers of a consumer. One with more handlers than fit into its answer may.
func takes(w inspect.Info, of string) bool {
	return w.HandlersOmitted > 0 || slices.ContainsFunc(w.Handlers, func(h inspect.Handler) bool { return h.Consumer == of })
}

// frozen finds workers whose processes stand still.
func (s State) frozen() (all []Problem) {
	for _, w := range s.Frozen {
		p := s.problem("worker.frozen", "worker "+w.ID+" of "+w.Stream, "process %d on %s is connected and does not answer: it is frozen. Jobs "+
			"that it had: %d, others get them after ack_wait", w.PID, w.Host, w.Running+w.Waiting)
		p.Page[2] = s.query("state", string(worker.StateDelivered))
		all = append(all, p)
	}
	return all
}

// missing finds consumers from which workers want to pull, and that do not exist.
func (s State) missing() (all []Problem) {
	names := map[string]bool{}
	for id := range s.Count.Consumers {
		names[id.Name] = true
	}
	for _, w := range s.Workers {
		for _, h := range w.Handlers {
			if !names[h.Consumer] && !w.Stopping && !s.Count.At.IsZero() {
				names[h.Consumer] = true
				p := s.problem("consumer.missing", "consumer "+w.Stream+"/"+h.Consumer, "it is missing: worker %s gets no jobs of %s", w.ID, h.Pattern)
				p.Command = "expediter apply"
				all = append(all, p)
			}
		}
	}
	return all
}

// changed finds consumers of workers that are paused, or were given settings with which jobs stay undelivered.
func (s State) changed() (all []Problem) {
	for id, c := range s.Count.Consumers {
		if c.Ours && c.Paused > 0 {
			p := s.problem("consumer.paused", "consumer "+s.Info.Config.Name+"/"+id.Name, "it is paused for another %s: nothing is delivered",
				c.Paused.Round(time.Second))
			p.Command = operate.Shell("nats", "consumer", "resume", "-f", s.Info.Config.Name, id.Name)
			all = append(all, p)
		}
		if c.Ours || !slices.ContainsFunc(s.Workers, func(w inspect.Info) bool { return w.HandlersOmitted == 0 && takes(w, id.Name) }) {
			continue
		}
		p := s.problem("consumer.changed", "consumer "+s.Info.Config.Name+"/"+id.Name,
			"max_deliver is %d and max_ack_pending %d, a worker needs -1 and -1: jobs may stay undelivered",
			c.Config.MaxDeliver, c.Config.MaxAckPending)
		p.Command = operate.Shell("nats", "consumer", "edit", "-f", s.Info.Config.Name, id.Name, "--max-deliver=-1", "--max-pending=-1")
		all = append(all, p)
	}
	return all
}

// failing finds handlers whose attempts fail.
func (s State) failing() (all []Problem) {
	sums := map[string]inspect.Failing{}
	for _, w := range s.Workers {
		for _, f := range w.Last.Failing {
			sum := sums[f.Pattern]
			if sum.At.Before(f.At) {
				sum.At, sum.Error = f.At, f.Error
			}
			if sum.Since.IsZero() || f.Since.Before(sum.Since) {
				sum.Since = f.Since
			}
			if f.Completed < recovered {
				sum.Failed += f.Failed
			}
			sum.Of, sum.First, sum.Retries = sum.Of+f.Of, sum.First+f.First, sum.Retries+f.Retries
			sums[f.Pattern] = sum
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(sums)) {
		f := sums[pattern]
		oneJob := f.First < 2 && f.Failed < f.Of // which fails again and again among others that complete
		if f.Failed < minFailed || 2*f.Failed < f.Of || oneJob || s.At.Sub(f.At) > forgotten && !s.retries(pattern) {
			continue
		}
		p := s.problem("handler.failing", "handler "+pattern+" of "+s.Info.Config.Name,
			"%d of the last %d attempts failed, %d were retries, the last at %s: %s", f.Failed, f.Of, f.Retries, operate.Stamp(f.At), f.Error)
		p.Since, p.Command, p.Page[2] = f.Since, s.jobs("list", "--state", "retrying"), s.query("state", string(worker.StateRetrying))
		if s.Dead > 0 && (f.Retries == 0 || !s.retries(pattern)) { // nothing waits for a retry
			p = s.atDeadLetters(p)
		}
		all = append(all, p)
	}
	return all
}

// retries reports whether consumers of a pattern have given out jobs that no worker runs: they wait for their next attempt.
func (s State) retries(pattern string) bool {
	running := s.Running()
	for id, c := range s.Count.Consumers {
		of := func(h inspect.Handler) bool { return h.Pattern == pattern && h.Consumer == id.Name }
		if c.Delivered > running && slices.ContainsFunc(s.Workers, func(w inspect.Info) bool { return slices.ContainsFunc(w.Handlers, of) }) {
			return true
		}
	}
	return false
}

// paused finds handlers whose jobs do not start.
func (s State) paused() (all []Problem) {
	for _, pause := range s.Pauses {
		var behind uint64
		most, by, until := "", "", "it is resumed"
		for _, c := range s.Count.Consumers {
			filters := append(slices.Clone(c.Config.FilterSubjects), c.Config.FilterSubject)
			filters = slices.DeleteFunc(filters, func(filter string) bool { return filter == "" })
			isWithin := len(filters) > 0 && !slices.ContainsFunc(filters, func(filter string) bool { return !subject.Covers(pause.Pattern, filter) })
			overlaps := func(filter string) bool {
				return subject.Covers(pause.Pattern, filter) || subject.Covers(filter, pause.Pattern)
			}
			switch {
			case !isWithin && len(filters) > 0 && !slices.ContainsFunc(filters, overlaps):
				continue
			case !isWithin: // the server does not count a part of a consumer's jobs
				most = "up to "
			}
			behind += c.Queued + c.Delivered
		}
		if pause.By != "" {
			by = "by " + pause.By + " "
		}
		if !pause.Until.IsZero() {
			until = operate.Stamp(pause.Until)
		}
		p := s.problem("handler.paused", "handler "+pause.Pattern+" of "+s.Info.Config.Name, "paused %suntil %s, jobs behind it: %s%d",
			by, until, most, behind)
		p.Since, p.Command, p.Page = pause.Since, s.jobs("resume", pause.Pattern), []any{"/workers"}
		all = append(all, p)
	}
	return all
}

// Full finds a stream that soon refuses messages, or deletes jobs.
func (s State) Full() []Problem {
	cfg, part := s.Info.Config, 0.0
	if cfg.MaxBytes > 0 {
		part = float64(s.Info.State.Bytes) / float64(cfg.MaxBytes)
	}
	if cfg.MaxMsgs > 0 {
		part = max(part, float64(s.Info.State.Msgs)/float64(cfg.MaxMsgs))
	}
	effect := "refuses messages"
	if cfg.Discard != jetstream.DiscardNew {
		effect = "deletes its oldest jobs"
	}
	if part < fullNoted || cfg.Discard != jetstream.DiscardNew && cfg.Retention != jetstream.WorkQueuePolicy {
		return nil
	}
	p := s.problem("stream.full", "stream "+cfg.Name, "it is %.0f %% full, and %s at 100 %%", 100*part, effect)
	p.Command = operate.Shell("nats", "stream", "edit", "-f", cfg.Name, "--max-bytes", strconv.FormatInt(2*cfg.MaxBytes, 10))
	if part >= fullRefused {
		p.Severity, p.Runbook = Error, "streamfull"
	}
	return []Problem{p}
}

// OfWorker finds the problems of a worker alone.
func OfWorker(account string, w inspect.Info) (all []Problem) {
	s := State{Account: account, Info: &jetstream.StreamInfo{Config: jetstream.StreamConfig{Name: w.Stream}}}
	add := func(id, command, format string, args ...any) {
		p := s.problem(id, "worker "+w.ID+" of "+w.Stream, format, args...)
		p.Command, p.Page, p.mark = command, []any{"/workers", w.Instance, s.query()}, w.Instance
		all = append(all, p)
	}
	if w.Stuck > 0 {
		add("worker.stuck", s.jobs("workers", "--stacks", w.Instance),
			"%d of %d slots are held by handlers that ignore their ended contexts: job %s",
			w.Stuck, w.Slots, cmp.Or(strings.Join(w.StuckJobs, ", "), "–"))
	}
	if !w.Ready && !w.Stopping && !w.Drained {
		add("worker.idle", s.jobs("workers", w.Instance), "it takes no jobs: %s", w.Problem)
		if w.Problem == inspect.Starting {
			all[len(all)-1].after = settles
		}
	}
	if u := w.Last.Unhandled; u != nil && w.Now.Sub(u.At) < unhandledFor {
		add("handler.missing", s.jobs("list", "--subject", u.Subject),
			"it has no handler for jobs such as %s, which are delivered again every 5 s", u.Subject)
	}
	if w.Skew > maxSkew || w.Skew < -maxSkew {
		add("clock.worker", "chronyc makestep # on "+w.Host, "its clock differs by %s", w.Skew.Round(time.Second/10))
	}
	return all
}
