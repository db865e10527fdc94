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
	limit   int
	payload string
	rate    float64
	yes     bool
}

// check returns every mistake that can be found before a connection is opened.
func (c *changeFlags) check(args []string) error {
	return errors.Join(c.filterFlags.check(),
		refuse(len(args) > 0 && (c.all || !c.empty()), "letters are selected by number or by flags, not by both"),
		refuse(len(args) == 0 && !c.all && c.empty(), "say which letters: their numbers, flags that select them, or --all"),
		refuse(c.payload != "" && len(args) != 1, "--payload is for one letter that is named by its number"),
		refuse(c.rate < 0 && c.rate != -1, "--rate %v: want a positive number, or -1 for no limit", c.rate),
		refuse(c.limit < 0, "--limit %d: want 0 or more", c.limit))
}

// changeLetters replays or discards the letters of a filter, and calls a function for each.
type changeLetters func(context.Context, *deadletter.Store, deadletter.Filter, func(deadletter.Outcome)) (deadletter.Result, error)

// changing returns a command that changes letters.
func (f *deadFlags) changing(verb string, c *changeFlags, run changeLetters) *cobra.Command {
	cmd := f.listing(verb+" [LETTER...]", func(ctx context.Context, args []string, format string) error {
		sequences, err := parseSequences(args)
		if err := f.usage(err, c.check(args)); err != nil {
			return err
		}
		return f.change(ctx, c, changeReport{Action: verb, DryRun: !c.yes, Problems: []changeProblem{}}, sequences, format, run)
	}, textFormats...)
	c.register(f.globals, cmd)
	cmd.Flags().BoolVar(&c.all, "all", false, "all letters, when no other flag selects")
	cmd.Flags().IntVar(&c.limit, "limit", 0, "most letters to take, 0 for all")
	yesFlag(cmd, &c.yes)
	return cmd
}

func newDeadReplay(f *deadFlags) *cobra.Command {
	var c changeFlags
	cmd := f.changing("replay", &c, func(
		ctx context.Context, store *deadletter.Store, filter deadletter.Filter, each func(deadletter.Outcome),
	) (deadletter.Result, error) {
		opts := deadletter.ReplayOptions{Again: c.again, DryRun: !c.yes, Each: each, Limit: c.limit, Rate: c.rate}
		if c.payload != "" {
			payload, err := f.read(ctx, c.payload, maxPayload)
			if err != nil {
				return deadletter.Result{}, err
			}
			opts.Edit = func(worker.DeadLetter) ([]byte, error) { return payload, nil }
		}
		return store.Replay(ctx, filter, opts)
	})
	flags := cmd.Flags()
	flags.BoolVar(&c.again, "again", false, "replay also jobs that an interrupted replay may have published already")
	flags.StringVar(&c.payload, "payload", "", `file whose content replaces the payload, "-" for the standard input`)
	flags.Float64Var(&c.rate, "rate", 50, "most letters in a second, -1 for no limit")
	return cmd
}

func newDeadDiscard(f *deadFlags) *cobra.Command {
	var c changeFlags
	return f.changing("discard", &c, func(
		ctx context.Context, store *deadletter.Store, filter deadletter.Filter, each func(deadletter.Outcome),
	) (deadletter.Result, error) {
		return store.Discard(ctx, filter, deadletter.DiscardOptions{DryRun: !c.yes, Each: each, Limit: c.limit})
	})
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

// change changes letters, and reports the outcomes, even after an interruption.
func (f *deadFlags) change(
	ctx context.Context, c *changeFlags, report changeReport, sequences []uint64, format string, run changeLetters,
) error {
	missing, begun := 0, false
	err := f.filtered(ctx, c.filterFlags, sequences, func(store *deadletter.Store, filter deadletter.Filter) error {
		begun = true
		act := func(ctx context.Context) (int, error) {
			result, err := run(ctx, store, filter, func(o deadletter.Outcome) {
				if errors.Is(o.Err, deadletter.ErrNotFound) {
					missing++
				}
				if o.Err != nil && len(report.Problems) < maxProblems {
					report.Problems = append(report.Problems, changeProblem{
						Sequence: o.Entry.Sequence, ID: o.Entry.Letter.ID, Subject: o.Entry.Letter.Subject, Skipped: o.Skipped(), Error: o.Err.Error(),
					})
				}
			})
			report.Done, report.Skipped, report.Failed = result.Done, result.Skipped, result.Failed
			return result.Done, err
		}
		if report.DryRun {
			_, err := act(ctx)
			return err
		}
		return f.audited(ctx, f.js, report.Action, f.target(c, sequences), act)
	})
	if !begun {
		return err
	}
	if err != nil {
		report.Error = err.Error()
	}
	if told := f.tell(report, format); told != nil || err != nil {
		return errors.Join(err, told)
	}
	switch stay := report.Skipped + report.Failed; {
	case missing > 0 && missing == stay && report.Done == 0:
		return fmt.Errorf("%w: letter %d", ErrNotFound, report.Problems[0].Sequence)
	case stay > 0:
		return fmt.Errorf("%d of %d %w", stay, stay+report.Done, errNotAll)
	}
	return nil
}

// target describes the selected letters in a record of the audit. A signature or a subject may have data of a user, so target
// only mentions that there is one.
func (f *deadFlags) target(c *changeFlags, sequences []uint64) string {
	var text strings.Builder
	text.WriteString("dead letters")
	for _, part := range [][2]string{
		{"account", f.account},
		{"stream", f.stream},
		{"job-stream", c.jobStream},
		{"kind", c.kind},
		{"reason", c.reason},
		{"since", c.since},
		{"until", c.until},
		{"letters", strings.Trim(fmt.Sprint(sequences), "[]")},
	} {
		if part[1] != "" {
			fmt.Fprintf(&text, " %s=%q", part[0], part[1])
		}
	}
	if c.signature != "" {
		text.WriteString(" of a signature")
	}
	if c.subject != "" {
		text.WriteString(" of a subject")
	}
	return text.String()
}

func (f *deadFlags) tell(report changeReport, format string) error {
	if format == "json" {
		return f.writeLine(report)
	}
	for _, p := range report.Problems {
		f.notef("letter %d: %s\n", p.Sequence, p.Error)
	}
	f.more(report.Skipped + report.Failed - len(report.Problems))
	if report.DryRun {
		return f.would("%s %d, skip %d, fail %d.", report.Action, report.Done, report.Skipped, report.Failed)
	}
	past := map[string]string{"discard": "Discarded", "replay": "Replayed"}[report.Action]
	return f.say("%s %d, skipped %d, failed %d.\n", past, report.Done, report.Skipped, report.Failed)
}
