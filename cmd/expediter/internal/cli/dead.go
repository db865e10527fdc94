package cli

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// deadFlags are the flags of all commands about dead letters.
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
	flags.StringVar(&f.stream, "stream", contracts.StreamDead, "stream that holds the letters")
	cmd.AddCommand(newDeadDiscard(f), newDeadGroups(f), newDeadList(f), newDeadReplay(f), newDeadShow(f), newDeadStranded(f))
	return cmd
}

// use opens the dead letters for fn.
func (f *deadFlags) use(ctx context.Context, fn func(context.Context, *deadletter.Store) error) error {
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
	ctx context.Context, letters *operate.Letters, sequences []uint64, fn func(context.Context, *deadletter.Store, deadletter.Filter) error,
) error {
	return f.use(ctx, func(ctx context.Context, store *deadletter.Store) error {
		now, err := store.Now(ctx)
		if err != nil {
			return err
		}
		filter, err := letters.Filter(now, sequences)
		if err != nil {
			return usage(err)
		}
		return fn(ctx, store, filter)
	})
}

// letterRow is a letter in a list.
type letterRow struct {
	deadletter.Entry

	Problem string `json:"problem,omitempty"`
}

func newLetterRow(e deadletter.Entry) letterRow {
	row := letterRow{Entry: e}
	if e.Problem != nil {
		row.Problem = e.Problem.Error()
	}
	return row
}

// about is the subject of the job, or that of a letter which cannot be read.
func (r letterRow) about() string { return cmp.Or(r.Letter.Subject, r.Subject) }

// listedLetter is a letter among many, without what can be large or secret: the headers, the payload and the stack.
type listedLetter struct {
	worker.DeadLetter

	Payload []byte `json:"payload,omitempty"`
}

func listLetter(l worker.DeadLetter) listedLetter {
	l.Header, l.Stack = nil, ""
	return listedLetter{DeadLetter: l}
}

func newDeadList(f *deadFlags) *cobra.Command {
	var (
		letters operate.Letters
		limit   int
		oldest  bool
	)
	cmd := f.listing("list", func(ctx context.Context, _ []string, format string) error {
		if err := f.usage(letters.Check()); err != nil {
			return err
		}
		order := deadletter.NewestFirst
		if oldest {
			order = deadletter.OldestFirst
		}
		return f.filtered(ctx, &letters, nil, func(ctx context.Context, store *deadletter.Store, filter deadletter.Filter) error {
			return f.list(store.List(ctx, filter, order), format, limit)
		})
	})
	f.filterFlags(cmd, &letters)
	cmd.Flags().IntVar(&limit, "limit", 100, "most letters to list, 0 for all")
	cmd.Flags().BoolVar(&oldest, "oldest", false, "the oldest first")
	return cmd
}

func (f *deadFlags) list(letters iter.Seq2[deadletter.Entry, error], format string, limit int) (err error) {
	out := f.rows(format, "LETTER", "TIME", "KIND", "REASON", "JOB~", "SUBJECT~", "ERROR")
	defer func() { err = errors.Join(err, out.Close()) }()
	for e, err := range letters {
		if err != nil {
			return err
		}
		row, l := newLetterRow(e), e.Letter
		listed := struct {
			letterRow

			Letter listedLetter `json:"letter,omitzero"`
		}{row, listLetter(l)}
		err = out.Write(listed, strconv.FormatUint(row.Sequence, 10), stamp(row.StoredAt), string(row.Kind), string(l.Reason), l.ID, row.about(),
			firstLine(cmp.Or(row.Problem, l.Error)))
		if err != nil {
			return err
		}
		if limit > 0 && out.Written() == limit {
			f.notef("Only %d are shown; there may be more: see --limit.\n", limit)
			return nil
		}
	}
	return nil
}

func stamp(at time.Time) string { return at.UTC().Format("2006-01-02 15:04:05") }

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

func newDeadGroups(f *deadFlags) *cobra.Command {
	var letters operate.Letters
	kinds := []string{string(deadletter.BySignature), string(deadletter.BySubject), string(deadletter.ByStream), string(deadletter.ByWorker)}
	by := kinds[0]
	cmd := f.listing("groups", func(ctx context.Context, _ []string, format string) error {
		if err := f.usage(letters.Check()); err != nil {
			return err
		}
		return f.filtered(ctx, &letters, nil, func(ctx context.Context, store *deadletter.Store, filter deadletter.Filter) error {
			overview, err := store.Survey(ctx, filter, deadletter.SurveyOptions{By: deadletter.Grouping(by)})
			if err != nil {
				return err
			}
			return f.groups(overview, by, format)
		})
	})
	f.filterFlags(cmd, &letters)
	f.choice(cmd, &by, "by", "", "the property that the letters of a group share: "+strings.Join(kinds, ", "), kinds...)
	return cmd
}

func (f *deadFlags) groups(overview deadletter.Overview, by, format string) error {
	name := "SIGNATURE"
	if by == string(deadletter.ByWorker) {
		name = "WORKER"
	}
	out := f.rows(format, "COUNT", "FIRST", "LAST", "REASON", "STREAM", "SUBJECTS~", "EXAMPLE", name)
	for _, g := range overview.Groups {
		out.Add(g, g.Count, g.FirstAt, g.LastAt, cmp.Or(string(g.Reason), string(g.Kind)), g.Stream, g.Subjects, g.Example,
			cmp.Or(g.Signature, g.Worker))
	}
	if overview.Others > 0 {
		f.notef("%d more letters are in smaller groups that are not shown.\n", overview.Others)
	}
	return out.Close()
}
