package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// errNotAll is returned when selected letters stay.
var errNotAll = errors.New("letters stay")

// maxPayload is the size of the largest message that a server can be configured to take, in bytes.
const maxPayload = 64 << 20

// changeFlags are the flags of commands that change letters.
type changeFlags struct {
	operate.Letters
	deadletter.ReplayOptions

	all       bool
	payload   string
	sequences []uint64
	yes       bool
}

// check returns every mistake that can be found before a connection is opened.
func (c *changeFlags) check() error {
	named := len(c.sequences) > 0
	return errors.Join(c.Check(),
		refuse(named && (c.all || !c.All()), "letters are selected by number or by flags, not by both"),
		refuse(!named && !c.all && c.All(), "say which letters: their numbers, flags that select them, or --all"),
		refuse(c.payload != "" && len(c.sequences) != 1, "--payload is for one letter that is named by its number"),
		refuse(c.Rate < 0 && c.Rate != -1, "--rate %v: want a positive number, or -1 for no limit", c.Rate),
		refuse(c.Limit < 0, "--limit %d: want 0 or more", c.Limit))
}

// changing returns a command that changes letters.
func (f *deadFlags) changing(verb string, c *changeFlags) *cobra.Command {
	cmd := f.listing(verb+" [LETTER...]", func(ctx context.Context, args []string, format string) (err error) {
		c.sequences, err = operate.ParseSequences(args)
		if err := f.usage(err, c.check()); err != nil {
			return err
		}
		return f.change(ctx, c, verb, format)
	}, textFormats...)
	f.filterFlags(cmd, &c.Letters)
	cmd.Flags().BoolVar(&c.all, "all", false, "all letters, when no other flag selects")
	cmd.Flags().IntVar(&c.Limit, "limit", 0, "most letters to take, 0 for all")
	yesFlag(cmd, &c.yes)
	return cmd
}

func newDeadReplay(f *deadFlags) *cobra.Command {
	var c changeFlags
	cmd := f.changing(operate.Replay, &c)
	flags := cmd.Flags()
	flags.BoolVar(&c.Again, "again", false, "replay also jobs that an interrupted replay may have published already")
	flags.StringVar(&c.payload, "payload", "", `file whose content replaces the payload, "-" for the standard input`)
	flags.Float64Var(&c.Rate, "rate", 50, "most letters in a second, -1 for no limit")
	return cmd
}

func newDeadDiscard(f *deadFlags) *cobra.Command { return f.changing(operate.Discard, &changeFlags{}) }

// change changes letters, and reports the outcomes, even after an interruption.
func (f *deadFlags) change(ctx context.Context, c *changeFlags, verb, format string) error {
	if c.payload != "" {
		payload, err := f.read(ctx, c.payload, maxPayload)
		if err != nil {
			return err
		}
		c.Edit = func(worker.DeadLetter) ([]byte, error) { return payload, nil }
	}
	report, begun := operate.Change{Action: verb, DryRun: !c.yes, Problems: []operate.Problem{}}, false
	c.Account, c.Stream, c.Each = f.account, f.stream, report.Add
	err := f.filtered(ctx, &c.Letters, c.sequences, func(ctx context.Context, store *deadletter.Store, filter deadletter.Filter) (err error) {
		begun = true
		act := func(ctx context.Context) (int, error) { return report.Run(ctx, store, filter, c.ReplayOptions) }
		if report.DryRun {
			_, err = act(ctx)
			return err
		}
		return f.audited(ctx, f.js, verb, c.Target(c.sequences), act)
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
	case report.Missing > 0 && report.Missing == stay && report.Done == 0:
		return fmt.Errorf("%w: letter %d", ErrNotFound, report.Problems[0].Sequence)
	case stay > 0:
		return fmt.Errorf("%d of %d %w", stay, stay+report.Done, errNotAll)
	}
	return nil
}

func (f *deadFlags) tell(report operate.Change, format string) error {
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
	past := map[string]string{operate.Discard: "Discarded", operate.Replay: "Replayed"}[report.Action]
	return f.say("%s %d, skipped %d, failed %d.\n", past, report.Done, report.Skipped, report.Failed)
}
