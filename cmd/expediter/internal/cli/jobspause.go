package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

func newJobsPause(f *jobsFlags) *cobra.Command {
	var limit time.Duration
	cmd := f.listing("pause [PATTERN]", func(ctx context.Context, args []string, format string) error {
		if limit < 0 {
			return f.usage(fmt.Errorf("--for %s: want 0 or more", limit))
		}
		return f.use(ctx, func(ctx context.Context, client *worker.Client) error {
			if len(args) == 0 {
				return f.pauses(ctx, client, format)
			}
			return f.pause(ctx, client, args[0], limit)
		})
	})
	cmd.Flags().DurationVar(&limit, "for", 0, "end by itself after this time, 0 for never")
	return cmd
}

func (f *jobsFlags) pause(ctx context.Context, client *worker.Client, pattern string, limit time.Duration) error {
	user, err := f.user(ctx, f.js)
	if err != nil {
		return err
	}
	p, until := worker.Pause{By: user, Pattern: pattern}, "expediter jobs resume"
	if limit > 0 {
		p.Until = time.Now().Add(limit)
		until = stamp(p.Until)
	}
	err = f.acted(ctx, "pause", f.pattern(pattern), func(ctx context.Context) error { return client.Pause(ctx, p) })
	if err != nil {
		return err
	}
	return f.say("Paused %s until %s.\n", terminal.Printable(pattern), until)
}

// pattern describes the paused jobs in a record of the audit.
func (f *jobsFlags) pattern(pattern string) string {
	return fmt.Sprintf("handler %q of %s", pattern, f.stream)
}

func (f *jobsFlags) pauses(ctx context.Context, client *worker.Client, format string) error {
	all, err := client.Pauses(ctx)
	if err != nil {
		return err
	}
	out := f.rows(format, "PATTERN", "SINCE", "UNTIL", "BY")
	for _, p := range all {
		out.Add(p, p.Pattern, p.Since, p.Until, p.By)
	}
	return out.Close()
}

func newJobsResume(f *jobsFlags) *cobra.Command {
	return f.doing("resume PATTERN", f.resume)
}

func (f *jobsFlags) resume(ctx context.Context, client *worker.Client, args []string) error {
	pattern, paused := args[0], false
	err := f.audited(ctx, f.js, "resume", f.pattern(pattern), func(ctx context.Context) (n int, err error) {
		if paused, err = client.Resume(ctx, pattern); paused {
			n = 1
		}
		return n, err
	})
	switch {
	case err != nil:
		return err
	case !paused:
		return fmt.Errorf("%w: %q is not paused", ErrNotFound, pattern)
	}
	return f.say("Resumed %s.\n", terminal.Printable(pattern))
}

// workersFlags are the flags of jobs workers.
type workersFlags struct {
	*jobsFlags

	format string
	recent bool
	stacks bool
}

func newJobsWorkers(jobs *jobsFlags) *cobra.Command {
	f := &workersFlags{jobsFlags: jobs}
	cmd := action("workers [WORKER]", func(ctx context.Context, args []string) error {
		if (f.recent || f.stacks) && len(args) == 0 {
			return f.usage(errors.New("--recent and --stacks need a WORKER"))
		}
		return f.with(ctx, "expediter jobs", func(ctx context.Context, js jetstream.JetStream) error {
			return f.run(ctx, js.Conn(), strings.Join(args, ""))
		})
	})
	flags := cmd.Flags()
	flags.BoolVar(&f.recent, "recent", false, "show the last attempts of the worker")
	flags.BoolVar(&f.stacks, "stacks", false, "show the stacks of the attempts that run in the worker")
	cmd.MarkFlagsMutuallyExclusive("recent", "stacks")
	f.outputFlag(cmd, &f.format, listFormats...)
	return cmd
}

func (f *workersFlags) run(ctx context.Context, nc *nats.Conn, name string) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	all, err := f.find(ctx, nc, name)
	switch {
	case err != nil:
		return err
	case name == "":
		return f.list(all)
	case f.recent:
		recent, err := inspect.RecentOf(ctx, nc, all[0].Instance)
		return errors.Join(err, f.showRecent(recent))
	case f.stacks:
		stacks, err := inspect.StacksOf(ctx, nc, all[0].Instance)
		return errors.Join(err, f.showStacks(stacks))
	}
	return f.show(all[0])
}

// find returns the workers that answer, or the only worker with a name.
func (f *workersFlags) find(ctx context.Context, nc *nats.Conn, name string) ([]inspect.Info, error) {
	all, err := inspect.Workers(ctx, nc)
	if err != nil {
		f.notef("%v\n", err) // the other workers have answered
	}
	all = slices.DeleteFunc(all, func(w inspect.Info) bool {
		return f.stream != "" && w.Stream != f.stream || name != "" && w.ID != name && w.Instance != name
	})
	slices.SortFunc(all, func(a, b inspect.Info) int {
		return cmp.Or(cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.ID, b.ID), a.Started.Compare(b.Started))
	})
	switch {
	case name == "" || len(all) == 1:
		return all, nil
	case len(all) == 0:
		return nil, fmt.Errorf("%w: no worker %q answers", ErrNotFound, name)
	}
	instances := make([]string, 0, len(all))
	for _, w := range all {
		instances = append(instances, w.Instance)
	}
	return nil, usage(fmt.Errorf("%d workers are %q: name one by its instance, %s", len(all), name, strings.Join(instances, " or ")))
}

func newJobsDrain(jobs *jobsFlags) *cobra.Command {
	f, resume := &workersFlags{jobsFlags: jobs}, false
	cmd := action("drain WORKER", func(ctx context.Context, args []string) error {
		return f.with(ctx, "expediter jobs", func(ctx context.Context, js jetstream.JetStream) error {
			f.js = js
			return f.drain(ctx, args[0], resume)
		})
	})
	cmd.Flags().BoolVar(&resume, "resume", false, "have it take jobs again")
	return cmd
}

func (f *workersFlags) drain(ctx context.Context, name string, resume bool) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	nc := f.js.Conn()
	all, err := f.find(ctx, nc, name)
	if err != nil {
		return err
	}
	w, action, do := all[0], "drain", inspect.Drain
	if resume {
		action, do = "resume", inspect.Resume
	}
	err = f.acted(ctx, action, w.Name(), func(ctx context.Context) (err error) {
		w, err = do(ctx, nc, w.Instance)
		return err
	})
	if errors.Is(err, inspect.ErrNoWorker) {
		err = fmt.Errorf("%w: %w, or its version cannot be drained", ErrNotFound, err)
	}
	if err != nil {
		return err
	}
	return f.say("%s is %s: %d run, and %d wait in it.\n", terminal.Printable(w.Name()), w.State(), w.Running, w.Waiting)
}

func (f *workersFlags) list(all []inspect.Info) error {
	out := f.rows(f.format, "WORKER", "VERSION", "STREAM", "CONSUMER", "RUNNING", "WAITING", "STATE", "DONE", "OTHERS", "LAST",
		"P95", "WAIT P95", "STARTED", "INSTANCE")
	for _, w := range all {
		done, others := attempts(w)
		last, ran, waited := "", "", ""
		if l := w.Last; l.Completed+l.Others > 0 {
			last, ran = fmt.Sprintf("%d/%d", l.Completed, l.Others), l.Ran95.Round(time.Millisecond).String()
		}
		if wait, of := inspect.Wait95(w); of > 0 {
			waited = wait.String()
		}
		out.Add(w, w.ID, w.Version, w.Stream, w.Consumer, fmt.Sprintf("%d/%d", w.Running, w.Slots), w.Waiting,
			w.State(), done, others, last, ran, waited, w.Started, w.Instance)
	}
	return out.Close()
}

// attempts returns the numbers of completed and of other attempts of a worker.
func attempts(w inspect.Info) (done, others uint64) {
	for outcome, n := range w.Attempts {
		if outcome == string(worker.OutcomeCompleted) {
			done += n
		} else {
			others += n
		}
	}
	return done, others
}

func (f *workersFlags) show(w inspect.Info) error {
	if f.format != listFormats[0] {
		return f.writeLine(w)
	}
	var text details
	line := text.line
	line("worker", w.ID)
	line("instance", w.Instance)
	line("version", w.Version)
	line("stream", fmt.Sprintf("%s, consumer %s", w.Stream, w.Consumer))
	if w.Host != "" {
		line("runs on", fmt.Sprintf("%s, process %d", w.Host, w.PID))
	}
	line("started", stamp(w.Started))
	line("state", w.State())
	line("problem", w.Problem)
	line("running", fmt.Sprintf("%d of %d, and %d wait", w.Running, w.Slots, w.Waiting))
	line("paused", strings.Join(w.Paused, " "))
	for _, outcome := range slices.Sorted(maps.Keys(w.Attempts)) {
		line("attempts", fmt.Sprintf("%d %s", w.Attempts[outcome], outcome))
	}
	for _, h := range w.Handlers {
		more := ""
		if h.Timeout > 0 {
			more = ", timeout " + h.Timeout.String()
		}
		if h.Ordered {
			more += ", ordered"
		}
		if len(h.Limits) > 0 {
			more += ", limits " + strings.Join(h.Limits, " ")
		}
		line("handler", fmt.Sprintf("%s, consumer %s, %d attempts%s", h.Pattern, h.Consumer, h.MaxAttempts, more))
	}
	if w.HandlersOmitted > 0 {
		line("", fmt.Sprintf("and %d more handlers", w.HandlersOmitted))
	}
	return f.say("%s", text.String())
}

func (f *workersFlags) showRecent(r inspect.Recent) error {
	out := f.rows(f.format, "STARTED", "RAN", "OUTCOME", "TRY", "SEQ", "JOB~", "SUBJECT~", "ERROR~~")
	for _, a := range r.Attempts {
		out.Add(a, a.Started, a.Ran.Round(time.Millisecond).String(), a.Outcome, a.Attempt,
			a.Sequence, a.Job, a.Subject, firstLine(a.Error))
	}
	f.omitted(r.Omitted)
	return out.Close()
}

func (f *workersFlags) showStacks(s inspect.Stacks) error {
	if f.format != listFormats[0] {
		return f.writeLine(s)
	}
	var text strings.Builder
	for _, a := range s.Attempts {
		stuck := ""
		if a.Stuck {
			stuck = ", and ignores its ended context"
		}
		fmt.Fprintf(&text, "%s (%d, job %s), attempt %d, since %s%s\n", terminal.Printable(a.Subject), a.Sequence,
			terminal.Printable(a.Job), a.Attempt, stamp(a.Started), stuck)
		for row := range strings.Lines(a.Stacks) {
			text.WriteString("  " + terminal.Printable(strings.ReplaceAll(strings.TrimRight(row, "\n"), "\t", "    ")) + "\n")
		}
	}
	err := f.say("%s", text.String())
	f.omitted(s.Omitted)
	return err
}

// omitted writes the number of entries that did not fit into an answer.
func (f *workersFlags) omitted(n int) {
	if n > 0 {
		f.notef("%d more did not fit into the answer.\n", n)
	}
}
