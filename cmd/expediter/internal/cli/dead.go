package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

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
func (f *deadFlags) use(ctx context.Context, fn func(*deadletter.Store) error) error {
	return f.with(ctx, "expediter dead", func(js jetstream.JetStream) error {
		f.js = js
		store, err := deadletter.Open(ctx, js, deadletter.Config{RequestTimeout: f.timeout, Stream: f.stream})
		if err != nil {
			return err
		}
		return fn(store)
	})
}

// filtered opens the dead letters for fn, and makes the filter by the server's clock.
func (f *deadFlags) filtered(
	ctx context.Context, flags filterFlags, sequences []uint64, fn func(*deadletter.Store, deadletter.Filter) error,
) error {
	return f.use(ctx, func(store *deadletter.Store) error {
		now, err := store.Now(ctx)
		if err != nil {
			return err
		}
		filter, err := flags.filter(now, sequences)
		if err != nil {
			return err
		}
		return fn(store, filter)
	})
}

// filterFlags are the flags that select letters.
type filterFlags struct {
	jobStream string
	kind      string
	reason    string
	signature string
	since     string
	subject   string
	until     string
	worker    string
}

func (f *filterFlags) register(g *globals, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.jobStream, "job-stream", "", "stream of the jobs")
	flags.StringVar(&f.signature, "signature", "", "signature of a group of errors, as dead groups lists it")
	flags.StringVar(&f.since, "since", "", "given up at this time or later: 2h, 7d, or 2006-01-02T15:04:05Z")
	flags.StringVar(&f.subject, "subject", "", "pattern of the jobs' subjects, such as 'jobs.mail.>'")
	flags.StringVar(&f.until, "until", "", "given up before this time, as --since")
	flags.StringVar(&f.worker, "worker", "", "worker that gave the jobs up")
	g.choice(cmd, &f.kind, "kind", "", "letter, stranded or unreadable",
		string(deadletter.KindLetter), string(deadletter.KindStranded), string(deadletter.KindUnreadable))
	g.choice(cmd, &f.reason, "reason", "", "why jobs were given up: exhausted, cancelled, undecodable, max_deliveries or terminated",
		string(worker.ReasonExhausted), string(worker.ReasonCancelled), string(worker.ReasonUndecodable),
		string(deadletter.ReasonMaxDeliveries), string(deadletter.ReasonTerminated))
}

// check returns every mistake that can be found before a connection is opened.
func (f *filterFlags) check() error {
	_, err := f.filter(time.Now(), nil)
	return err
}

// filter returns the filter by the flags. now is the server's time.
func (f *filterFlags) filter(now time.Time, sequences []uint64) (deadletter.Filter, error) {
	filter := deadletter.Filter{
		Kind: deadletter.Kind(f.kind), Reason: worker.Reason(f.reason), Sequences: sequences, Signature: f.signature,
		Stream: f.jobStream, Subject: f.subject, Worker: f.worker,
	}
	var errs []error
	for _, bound := range []struct {
		flag, value string
		at          *time.Time
	}{{"since", f.since, &filter.Since}, {"until", f.until, &filter.Until}} {
		if bound.value == "" {
			continue
		}
		at, err := deadletter.ParseTime(now, bound.value)
		errs = append(errs, refuse(err != nil, "--%s: %w", bound.flag, err))
		*bound.at = at
	}
	errs = append(errs, filter.Validate())
	return filter, usage(errs...)
}

// empty reports whether the flags select everything.
func (f *filterFlags) empty() bool { return *f == filterFlags{} }

// parseSequences reads the positions of letters.
func parseSequences(args []string) ([]uint64, error) {
	sequences := make([]uint64, 0, len(args))
	for _, arg := range args {
		seq, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || seq == 0 {
			return nil, &UsageError{Err: fmt.Errorf("%q is no letter: want its number, the first column of expediter dead list", arg)}
		}
		sequences = append(sequences, seq)
	}
	return sequences, nil
}

// entryRow is a letter in a list.
type entryRow struct {
	Sequence  uint64    `json:"sequence"`
	Kind      string    `json:"kind"`
	StoredAt  time.Time `json:"storedAt"`
	JobStream string    `json:"jobStream,omitempty"`
	Subject   string    `json:"subject"`
	ID        string    `json:"id,omitempty"`
	Attempts  int       `json:"attempts,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Signature string    `json:"signature,omitempty"`
	Error     string    `json:"error,omitempty"`
	Problem   string    `json:"problem,omitempty"`
	Size      int       `json:"size"`
}

func newEntryRow(e deadletter.Entry) entryRow {
	l := e.Letter
	row := entryRow{
		Sequence: e.Sequence, Kind: string(e.Kind), StoredAt: e.StoredAt.UTC(), JobStream: l.Stream, Subject: l.Subject, ID: l.ID,
		Attempts: l.Attempts, Reason: string(l.Reason), Signature: l.Signature, Error: l.Error, Size: e.Size,
	}
	if e.Problem != nil {
		row.Problem = e.Problem.Error()
	}
	if row.Subject == "" && e.Kind == deadletter.KindUnreadable {
		row.Subject = e.Subject
	}
	return row
}

func newDeadList(f *deadFlags) *cobra.Command {
	var (
		filter filterFlags
		limit  int
		oldest bool
	)
	cmd := f.listing("list", func(ctx context.Context, _ []string, format string) error {
		if err := f.usage(filter.check()); err != nil {
			return err
		}
		order := deadletter.NewestFirst
		if oldest {
			order = deadletter.OldestFirst
		}
		return f.filtered(ctx, filter, nil, func(store *deadletter.Store, filter deadletter.Filter) error {
			return f.list(store.List(ctx, filter, order), format, limit)
		})
	})
	filter.register(f.globals, cmd)
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
		row := newEntryRow(e)
		err = out.Write(row, strconv.FormatUint(row.Sequence, 10), stamp(row.StoredAt), row.Kind, row.Reason, row.ID, row.Subject,
			firstLine(cmp.Or(row.Problem, row.Error)))
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

// groupRow is a group of letters.
type groupRow struct {
	Count     int       `json:"count"`
	FirstAt   time.Time `json:"firstAt"`
	LastAt    time.Time `json:"lastAt"`
	Kind      string    `json:"kind"`
	Reason    string    `json:"reason,omitempty"`
	JobStream string    `json:"jobStream,omitempty"`
	Subjects  string    `json:"subjects,omitempty"`
	Signature string    `json:"signature,omitempty"`
	Worker    string    `json:"worker,omitempty"`
	Example   uint64    `json:"example"`
}

func newDeadGroups(f *deadFlags) *cobra.Command {
	var filter filterFlags
	kinds := []string{string(deadletter.BySignature), string(deadletter.BySubject), string(deadletter.ByStream), string(deadletter.ByWorker)}
	by := kinds[0]
	cmd := f.listing("groups", func(ctx context.Context, _ []string, format string) error {
		if err := f.usage(filter.check()); err != nil {
			return err
		}
		return f.filtered(ctx, filter, nil, func(store *deadletter.Store, filter deadletter.Filter) error {
			overview, err := store.Survey(ctx, filter, deadletter.SurveyOptions{By: deadletter.Grouping(by)})
			if err != nil {
				return err
			}
			return f.groups(overview, by, format)
		})
	})
	filter.register(f.globals, cmd)
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
		row := groupRow{
			Count: g.Count, FirstAt: g.FirstAt.UTC(), LastAt: g.LastAt.UTC(), Kind: string(g.Kind), Reason: string(g.Reason), JobStream: g.Stream,
			Subjects: g.Subjects, Signature: g.Signature, Worker: g.Worker, Example: g.Example,
		}
		out.Add(row, g.Count, g.FirstAt, g.LastAt, cmp.Or(row.Reason, row.Kind), g.Stream, g.Subjects, g.Example,
			cmp.Or(g.Signature, g.Worker))
	}
	if overview.Others > 0 {
		f.notef("%d more letters are in smaller groups that are not shown.\n", overview.Others)
	}
	return out.Close()
}
