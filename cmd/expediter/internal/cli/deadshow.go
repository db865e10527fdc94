package cli

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

func newDeadShow(f *deadFlags) *cobra.Command {
	payload := false
	cmd := f.listing("show LETTER", func(ctx context.Context, args []string, format string) error {
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
	}, textFormats...)
	cmd.Flags().BoolVar(&payload, "payload", false, "write the payload alone")
	return cmd
}

func (f *deadFlags) show(e deadletter.Entry, format string, payload bool) error {
	switch {
	case payload && e.Problem != nil:
		return e.Problem
	case payload:
		return f.say("%s", e.Letter.Payload)
	case format == "json":
		return f.writeLine(newLetterRow(e))
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

// describe writes a letter for a person. It makes text from a job harmless to a terminal.
func (f *deadFlags) describe(e deadletter.Entry) error {
	l := e.Letter
	var text details
	line := text.line
	line("letter", strconv.FormatUint(e.Sequence, 10))
	line("kind", string(e.Kind))
	line("stored", stamp(e.StoredAt))
	if e.Problem != nil {
		line("problem", e.Problem.Error())
	}
	line("subject", newLetterRow(e).about())
	if e.Kind != deadletter.KindUnreadable {
		line("job", l.ID)
		line("stream", fmt.Sprintf("%s, sequence %d, consumer %s", l.Stream, l.Sequence, l.Consumer))
		if !l.EnqueuedAt.IsZero() {
			line("enqueued", stamp(l.EnqueuedAt))
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

// headerLines returns the headers of a message, a line each.
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

func newDeadStranded(f *deadFlags) *cobra.Command {
	return f.listing("stranded JOB-STREAM", f.stranded)
}

func (f *deadFlags) stranded(ctx context.Context, args []string, format string) error {
	stream := args[0]
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
	out := f.rows(format, "MESSAGES", "SUBJECT", "PASSED BY")
	for _, s := range found.Subjects {
		out.Add(s, s.Messages, s.Subject, s.PassedBy)
	}
	return out.Close()
}
