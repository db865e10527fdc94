package cli

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

type deadFlags struct {
	natsFlags

	js     jetstream.JetStream // set by open
	stream string
}

func newDead(g *globals) *cobra.Command {
	f := &deadFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{Use: "dead"}
	flags := cmd.PersistentFlags()
	f.register(flags)
	f.registerAccount(flags)
	flags.StringVar(&f.stream, "stream", contracts.StreamDead, "stream that stores the dead letters")
	cmd.AddCommand(f.changing(operate.Discard, &changeFlags{}), newDeadGroups(f), newDeadList(f), newDeadReplay(f), newDeadShow(f),
		f.listing("stranded JOB-STREAM", f.stranded))
	return cmd
}

func (f *deadFlags) use(ctx context.Context, fn func(context.Context, *deadletter.Store) error) error {
	f.named = cmp.Or(f.named, f.stream)
	return f.with(ctx, "expediter dead", func(ctx context.Context, js jetstream.JetStream) error {
		f.js = js
		store, err := deadletter.Open(ctx, js, deadletter.Config{RequestTimeout: f.timeout, Stream: f.stream})
		if err != nil {
			return err
		}
		return fn(ctx, store)
	})
}

// filtered opens the dead letters for fn, and makes the filter by the server's clock.
func (f *deadFlags) filtered(
	ctx context.Context, selected *operate.DeadLetters, sequences []uint64,
	fn func(context.Context, *deadletter.Store, deadletter.Filter) error,
) error {
	return f.use(ctx, func(ctx context.Context, store *deadletter.Store) error {
		now, err := store.Now(ctx)
		if err != nil {
			return err
		}
		filter, err := selected.Filter(now, sequences)
		if err != nil {
			return usage(err)
		}
		return fn(ctx, store, filter)
	})
}

// listedDeadLetter is a dead letter in a list, without what can be large or secret: the headers, the payload and the stack.
type listedDeadLetter struct {
	worker.DeadLetter

	Payload []byte `json:"payload,omitempty"`
}

func listDeadLetter(l worker.DeadLetter) listedDeadLetter {
	l.Header, l.Stack = nil, ""
	return listedDeadLetter{DeadLetter: l}
}

func (f *deadFlags) selecting(
	use string, list func(ctx context.Context, store *deadletter.Store, filter deadletter.Filter, format string) error,
) *cobra.Command {
	var selected operate.DeadLetters
	cmd := f.listing(use, func(ctx context.Context, _ []string, format string) error {
		if err := f.usage(selected.Check()); err != nil {
			return err
		}
		return f.filtered(ctx, &selected, nil, func(ctx context.Context, store *deadletter.Store, filter deadletter.Filter) error {
			return list(ctx, store, filter, format)
		})
	})
	f.filterFlags(cmd, &selected)
	return cmd
}

func newDeadList(f *deadFlags) *cobra.Command {
	var limit int
	cmd := f.selecting("list", func(ctx context.Context, store *deadletter.Store, filter deadletter.Filter, format string) error {
		return f.list(store.List(ctx, filter, deadletter.NewestFirst), format, limit)
	})
	cmd.Flags().IntVar(&limit, "limit", 100, "most dead letters to list, 0 for all")
	return cmd
}

func (f *deadFlags) list(dead iter.Seq2[deadletter.Entry, error], format string, limit int) (err error) {
	out := f.rows(format, "No dead letters: no job that the flags select has failed for good.",
		"NUMBER", "TIME", "KIND-", "REASON", "JOB~-", "SUBJECT~", "ERROR")
	defer func() { err = out.Close(err) }()
	n := 0
	for e, err := range dead {
		if err != nil || out.Err() != nil {
			return err
		}
		row, l := operate.NewDeadLetter(e), e.DeadLetter
		listed := struct {
			operate.DeadLetter

			Listed listedDeadLetter `json:"dead_letter,omitzero"`
		}{row, listDeadLetter(l)}
		out.Add(listed, row.Sequence, row.StoredAt, row.Kind, l.Reason, l.ID, row.About(), firstLine(row.Text()))
		n++
		if n == limit {
			out.Notef("Only %d are shown; there may be more: see --limit.", limit)
			return nil
		}
	}
	return nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func newDeadGroups(f *deadFlags) *cobra.Command {
	kinds := []string{string(deadletter.BySignature), string(deadletter.BySubject), string(deadletter.ByStream), string(deadletter.ByWorker)}
	by := kinds[0]
	cmd := f.selecting("groups", func(ctx context.Context, store *deadletter.Store, filter deadletter.Filter, format string) error {
		overview, err := store.Survey(ctx, filter, deadletter.SurveyOptions{By: deadletter.Grouping(by)})
		if err != nil {
			return err
		}
		return f.groups(overview, by, format)
	})
	f.choice(cmd, &by, "by", "", "the property that the dead letters of a group share: "+strings.Join(kinds, ", "), kinds...)
	return cmd
}

func (f *deadFlags) groups(overview deadletter.Overview, by, format string) error {
	name := "SIGNATURE"
	if by == string(deadletter.ByWorker) {
		name = "WORKER"
	}
	out := f.rows(format, "No dead letters: no job that the flags select has failed for good.",
		"COUNT", "FIRST-", "LAST", "REASON", "STREAM", "SUBJECTS~-", "EXAMPLE", name+"~", "NEWEST ERROR")
	for _, g := range overview.Groups {
		out.Add(g, g.Count, g.FirstAt, g.LastAt, cmp.Or(string(g.Reason), string(g.Kind)), g.Stream, g.Subjects, g.Example,
			cmp.Or(g.Signature, g.Worker), firstLine(g.Error))
	}
	if overview.Others > 0 {
		out.Notef("%d more dead letters are in smaller groups that are not shown.", overview.Others)
	}
	return out.Close(nil)
}

var errNotAll = errors.New("dead letters stay")

// maxPayload is the size of the largest message that a server can be configured to take, in bytes.
const maxPayload = 64 << 20

type changeFlags struct {
	operate.DeadLetters
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
		refuse(named && (c.all || !c.All()), "select dead letters by number or by flags, not by both"),
		refuse(!named && !c.all && c.All(), "select dead letters: by their numbers, by flags, or all with --all"),
		refuse(c.payload != "" && len(c.sequences) != 1, "--payload takes one dead letter, selected by its number"),
		refuse(c.Rate < 0 && c.Rate != -1, "--rate %v: want a positive number, or -1 for no limit", c.Rate),
		refuse(c.Limit < 0, "--limit %d: want 0 or more", c.Limit))
}

// most is the number of selected dead letters, and more than one for a filter.
func (c *changeFlags) most() int {
	if len(c.sequences) > 0 {
		return len(c.sequences)
	}
	return 2
}

func (f *deadFlags) changing(verb string, c *changeFlags) *cobra.Command {
	cmd := f.listing(verb+" [NUMBER...]", func(ctx context.Context, args []string, format string) (err error) {
		c.sequences, err = operate.ParseSequences(args)
		if err := f.usage(err, c.check()); err != nil {
			return err
		}
		return f.change(ctx, c, verb, format)
	})
	f.filterFlags(cmd, &c.DeadLetters)
	cmd.Flags().BoolVar(&c.all, "all", false, "all dead letters; without other flags that select")
	cmd.Flags().IntVar(&c.Limit, "limit", 0, "most dead letters to change, 0 for all")
	yesFlag(cmd, &c.yes)
	return cmd
}

func newDeadReplay(f *deadFlags) *cobra.Command {
	var c changeFlags
	cmd := f.changing(operate.Replay, &c)
	flags := cmd.Flags()
	flags.BoolVar(&c.Again, "again", false, "replay also jobs that an interrupted replay may have published already")
	flags.StringVar(&c.payload, "payload", "", `file whose content replaces the payload, "-" for the standard input`)
	flags.Float64Var(&c.Rate, "rate", 50, "most jobs per second, -1 for no limit")
	return cmd
}

// change replays or discards dead letters, and reports the outcomes, even after an interruption.
func (f *deadFlags) change(ctx context.Context, c *changeFlags, verb, format string) error {
	if c.payload != "" {
		payload, err := f.read(ctx, c.payload, maxPayload)
		if err != nil {
			return err
		}
		c.Edit = func(worker.DeadLetter) ([]byte, error) { return payload, nil }
	}
	report, begun := operate.Change{Action: verb, DryRun: !c.yes && operate.Asks(verb, c.most()), Problems: []operate.Problem{}}, false
	c.Account, c.Stream, c.Each = f.account, f.stream, report.Add
	run := func(ctx context.Context, store *deadletter.Store, filter deadletter.Filter) (err error) {
		begun = true
		act := func(ctx context.Context) (int, error) { return report.Run(ctx, f.js, store, filter, c.ReplayOptions) }
		if report.DryRun {
			_, err = act(ctx)
			return err
		}
		return f.audited(ctx, f.js, verb, c.Target(c.sequences), act)
	}
	err := f.filtered(ctx, &c.DeadLetters, c.sequences, run)
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
		return fmt.Errorf("%w: dead letter %d", ErrNotFound, report.Problems[0].Sequence)
	case stay > 0:
		return fmt.Errorf("%d of %d %w", stay, stay+report.Done, errNotAll)
	}
	return nil
}

func (f *deadFlags) tell(report operate.Change, format string) error {
	if asJSON(format) {
		return f.writeLine(report)
	}
	for _, p := range report.Problems {
		f.notef("dead letter %d: %s\n", p.Sequence, p.Error)
	}
	f.more(report.Skipped + report.Failed - len(report.Problems))
	note := strings.TrimRight(" "+report.Note, " ")
	if report.DryRun {
		return f.would("%s %d, skip %d, fail %d.%s", report.Action, report.Done, report.Skipped, report.Failed, note)
	}
	past := map[string]string{operate.Discard: "Discarded", operate.Replay: "Replayed"}[report.Action]
	return f.say("%s %d, skipped %d, failed %d.%s\n", past, report.Done, report.Skipped, report.Failed, note)
}

func newDeadShow(f *deadFlags) *cobra.Command {
	payload := false
	cmd := f.listing("show NUMBER", func(ctx context.Context, args []string, format string) error {
		sequences, err := operate.ParseSequences(args)
		if err != nil {
			return usage(err)
		}
		return f.use(ctx, func(ctx context.Context, store *deadletter.Store) error {
			e, err := store.Get(ctx, sequences[0])
			if err != nil {
				return err
			}
			return f.show(e, format, payload)
		})
	})
	cmd.Flags().BoolVar(&payload, "payload", false, "write the payload alone")
	return cmd
}

func (f *deadFlags) show(e deadletter.Entry, format string, payload bool) error {
	switch {
	case payload && e.Problem != nil:
		return e.Problem
	case payload:
		return f.say("%s", e.DeadLetter.Payload)
	case asJSON(format):
		return f.writeLine(operate.NewDeadLetter(e))
	}
	return f.describe(e)
}

// details is a description for a person: a line for each value that is not empty.
type details struct{ strings.Builder }

func (d *details) line(name, value string) {
	if value != "" {
		fmt.Fprintf(&d.Builder, "%-10s %s\n", name, terminal.Printable(value))
	}
}

// describe writes a dead letter for a person. It makes text from a job harmless to a terminal.
func (f *deadFlags) describe(e deadletter.Entry) error {
	l := e.DeadLetter
	var text details
	line := text.line
	line("number", strconv.FormatUint(e.Sequence, 10))
	line("kind", string(e.Kind))
	line("stored", terminal.Time(e.StoredAt))
	if e.Problem != nil {
		line("problem", e.Problem.Error())
	}
	line("subject", operate.NewDeadLetter(e).About())
	if e.Kind != deadletter.KindUnreadable {
		line("job", l.ID)
		line("stream", fmt.Sprintf("%s, sequence %d, consumer %s", l.Stream, l.Sequence, l.Consumer))
		if !l.EnqueuedAt.IsZero() {
			line("enqueued", terminal.Time(l.EnqueuedAt))
		}
		line("attempts", fmt.Sprintf("%d of %d, in %d deliveries", l.Attempts, l.MaxAttempts, l.Deliveries))
		line("worker", strings.TrimSpace(l.Worker+" "+l.Version))
		line("reason", string(l.Reason))
		line("signature", l.Signature)
	}
	text.section("error", l.Error)
	text.section("stack", l.Stack)
	text.section("headers", headerLines(l.Header))
	text.section(fmt.Sprintf("payload (%d bytes)", len(l.Payload)), readable(l.Payload))
	return f.say("%s", text.String())
}

// section writes a text of several lines under a name, unless it is empty.
func (d *details) section(name, body string) {
	if body == "" {
		return
	}
	fmt.Fprintf(&d.Builder, "\n%s\n", name)
	for row := range strings.SplitSeq(strings.TrimRight(body, "\n"), "\n") {
		fmt.Fprintf(&d.Builder, "  %s\n", terminal.Printable(strings.ReplaceAll(row, "\t", "    ")))
	}
}

func headerLines(header map[string][]string) string {
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			fmt.Fprintf(&lines, "%s: %s\n", name, value)
		}
	}
	return lines.String()
}

// readable returns a payload as text, or as a hex dump when it is not text.
func readable(payload []byte) string {
	const most = 64 << 10
	cut := ""
	if len(payload) > most {
		payload, cut = payload[:most], "\n... see --payload for the rest"
	}
	for rest := payload; len(rest) > 0; {
		r, size := utf8.DecodeRune(rest)
		if r == utf8.RuneError && size == 1 && len(rest) >= utf8.UTFMax || unicode.IsControl(r) && !unicode.IsSpace(r) {
			return hex.Dump(payload[:min(len(payload), 512)]) + cut
		}
		rest = rest[size:]
	}
	return string(payload) + cut
}

func (f *deadFlags) stranded(ctx context.Context, args []string, format string) error {
	stream := args[0]
	f.named = stream
	var found deadletter.Unclaimed
	err := f.use(ctx, func(ctx context.Context, store *deadletter.Store) (err error) {
		found, err = store.Stranded(ctx, stream)
		return err
	})
	if err != nil {
		return err
	}
	if !found.Complete {
		return fmt.Errorf("stream %s has too many subjects to be looked through", stream)
	}
	out := f.rows(format, "No stranded messages: a consumer will deliver all of "+stream+".", "MESSAGES", "SUBJECT", "PASSED BY")
	for _, s := range found.Subjects {
		out.Add(s, s.Messages, s.Subject, s.PassedBy)
	}
	return out.Close(nil)
}
