package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// errNotAll is returned when selected letters stay.
var errNotAll = errors.New("letters stay")

// maxPayload is the size of the largest message that a server can be configured to take, in bytes.
const maxPayload = 64 << 20

// maxProblems is the number of letters that stay and are reported one by one.
const maxProblems = 20

// changeFlags are the flags of commands that change letters.
type changeFlags struct {
	filterFlags

	again   bool
	all     bool
	dryRun  bool
	format  string
	limit   int
	payload string
	rate    float64
	yes     bool
}

func (c *changeFlags) register(g *globals, cmd *cobra.Command) {
	c.filterFlags.register(g, cmd)
	flags := cmd.Flags()
	flags.BoolVar(&c.all, "all", false, "all letters, when no other flag selects")
	flags.BoolVar(&c.dryRun, "dry-run", false, "only report what would be done")
	flags.IntVar(&c.limit, "limit", 0, "most letters to take, 0 for all")
	flags.BoolVarP(&c.yes, "yes", "y", false, "do it")
	cmd.MarkFlagsMutuallyExclusive("yes", "dry-run")
	g.outputFlag(cmd, &c.format, "text", "json")
}

// check returns every mistake that can be found before a connection is opened.
func (c *changeFlags) check(args []string) error {
	errs := []error{c.filterFlags.check()}
	switch _, err := parseSequences(args); {
	case err != nil:
		errs = append(errs, err)
	case len(args) > 0 && (c.all || !c.empty()):
		errs = append(errs, errors.New("letters are selected by number or by flags, not by both"))
	case len(args) == 0 && !c.all && c.empty():
		errs = append(errs, errors.New("say which letters: their numbers, flags that select them, or --all"))
	}
	return usage(append(errs,
		refuse(c.payload != "" && len(args) != 1, "--payload is for one letter that is named by its number"),
		refuse(c.rate < 0 && c.rate != -1, "--rate %v: want a positive number, or -1 for no limit", c.rate),
		refuse(c.limit < 0, "--limit %d: want 0 or more", c.limit))...)
}

func newDeadReplay(f *deadFlags) *cobra.Command {
	var c changeFlags
	cmd := action("replay [LETTER...]", func(ctx context.Context, args []string) error {
		if err := f.usage(c.check(args)); err != nil {
			return err
		}
		return f.replay(ctx, c, args)
	})
	c.register(f.globals, cmd)
	flags := cmd.Flags()
	flags.BoolVar(&c.again, "again", false, "replay also jobs that an interrupted replay may have published already")
	flags.StringVar(&c.payload, "payload", "", `file whose content replaces the payload, "-" for the standard input`)
	flags.Float64Var(&c.rate, "rate", 50, "most letters in a second, -1 for no limit")
	return cmd
}

func (f *deadFlags) replay(ctx context.Context, c changeFlags, args []string) error {
	opts := deadletter.ReplayOptions{
		Again: c.again, DryRun: c.dryRun || len(args) == 0 && !c.yes, Limit: c.limit, Rate: c.rate,
	}
	if c.payload != "" {
		payload, err := f.read(ctx, c.payload, maxPayload)
		if err != nil {
			return err
		}
		opts.Edit = func(worker.DeadLetter) ([]byte, error) { return payload, nil }
	}
	return f.change(ctx, c, args, opts.DryRun, "replay", func(
		store *deadletter.Store, filter deadletter.Filter, each func(deadletter.Outcome),
	) (deadletter.Result, error) {
		opts.Each = each
		return store.Replay(ctx, filter, opts)
	})
}

func newDeadDiscard(f *deadFlags) *cobra.Command {
	var c changeFlags
	cmd := action("discard [LETTER...]", func(ctx context.Context, args []string) error {
		if err := f.usage(c.check(args)); err != nil {
			return err
		}
		ctx, dry := ctx, !c.yes
		return f.change(ctx, c, args, dry, "discard", func(
			store *deadletter.Store, filter deadletter.Filter, each func(deadletter.Outcome),
		) (deadletter.Result, error) {
			return store.Discard(ctx, filter, deadletter.DiscardOptions{DryRun: dry, Each: each, Limit: c.limit})
		})
	})
	c.register(f.globals, cmd)
	return cmd
}

// changeReport is the JSON of a command that changes letters.
type changeReport struct {
	Action   string          `json:"action"`
	DryRun   bool            `json:"dryRun"`
	Done     int             `json:"done"`
	Skipped  int             `json:"skipped"`
	Failed   int             `json:"failed"`
	Problems []changeProblem `json:"problems"` // the first 20
	Error    string          `json:"error,omitempty"`
}

// changeProblem is a letter that stays.
type changeProblem struct {
	Sequence uint64 `json:"sequence"`
	ID       string `json:"id,omitempty"`
	Subject  string `json:"subject,omitempty"`
	Skipped  bool   `json:"skipped"`
	Error    string `json:"error"`
}

// change runs a command that changes letters, and reports the outcomes, even after an interruption.
func (f *deadFlags) change(
	ctx context.Context, c changeFlags, args []string, dry bool, action string,
	run func(*deadletter.Store, deadletter.Filter, func(deadletter.Outcome)) (deadletter.Result, error),
) error {
	sequences, err := parseSequences(args)
	if err != nil {
		return err
	}
	report := changeReport{Action: action, DryRun: dry, Problems: []changeProblem{}}
	missing, begun := 0, false
	var result deadletter.Result
	err = f.filtered(ctx, c.filterFlags, sequences, func(store *deadletter.Store, filter deadletter.Filter) error {
		begun = true
		act := func(context.Context) (_ int, err error) {
			result, err = run(store, filter, func(o deadletter.Outcome) {
				if errors.Is(o.Err, deadletter.ErrNotFound) {
					missing++
				}
				if o.Err != nil && len(report.Problems) < maxProblems {
					report.Problems = append(report.Problems, changeProblem{
						Sequence: o.Entry.Sequence, ID: o.Entry.Letter.ID, Subject: o.Entry.Letter.Subject, Skipped: o.Skipped(), Error: o.Err.Error(),
					})
				}
			})
			return result.Done, err
		}
		if dry {
			_, err := act(ctx)
			return err
		}
		return f.audited(ctx, f.js, action, f.target(c, args), act)
	})
	if !begun {
		return err
	}
	report.Done, report.Skipped, report.Failed = result.Done, result.Skipped, result.Failed
	if err != nil {
		report.Error = err.Error()
	}
	hint := ": add --yes to do it"
	if c.dryRun {
		hint = ""
	}
	if told := f.tell(report, c.format, hint); told != nil || err != nil {
		return errors.Join(err, told)
	}
	switch stay := result.Skipped + result.Failed; {
	case missing > 0 && missing == stay && result.Done == 0:
		return fmt.Errorf("%w: letter %d", ErrNotFound, report.Problems[0].Sequence)
	case stay > 0:
		return fmt.Errorf("%d of %d %w", stay, stay+result.Done, errNotAll)
	}
	return nil
}

// target describes the selected letters in a record of the audit. A signature or a subject may have data of a user, so target
// only mentions that there is one.
func (f *deadFlags) target(c changeFlags, args []string) string {
	var b strings.Builder
	b.WriteString("dead letters")
	for _, part := range [][2]string{
		{"account", f.account},
		{"stream", f.stream},
		{"job-stream", c.jobStream},
		{"kind", c.kind},
		{"reason", c.reason},
		{"since", c.since},
		{"until", c.until},
		{"letters", strings.Join(args, " ")},
	} {
		if part[1] != "" {
			fmt.Fprintf(&b, " %s=%q", part[0], part[1])
		}
	}
	if c.signature != "" {
		b.WriteString(" of a signature")
	}
	if c.subject != "" {
		b.WriteString(" of a subject")
	}
	return b.String()
}

func (f *deadFlags) tell(report changeReport, format, hint string) error {
	if format == "json" {
		return f.writeLine(report)
	}
	for _, p := range report.Problems {
		f.notef("letter %d: %s\n", p.Sequence, p.Error)
	}
	if more := report.Skipped + report.Failed - len(report.Problems); more > 0 {
		f.notef("... and %d more\n", more)
	}
	past := map[string]string{"discard": "Discarded", "replay": "Replayed"}[report.Action]
	text := fmt.Sprintf("%s %d, skipped %d, failed %d.\n", past, report.Done, report.Skipped, report.Failed)
	if report.DryRun {
		text = fmt.Sprintf("Would %s %d, skip %d, fail %d. Nothing was changed%s.\n",
			report.Action, report.Done, report.Skipped, report.Failed, hint)
	}
	return f.say("%s", text)
}
