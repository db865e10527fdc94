package cli

import (
	"context"
	"fmt"
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

	deadSubject string
	js          jetstream.JetStream // once it is open
	stream      string
}

func newDead(g *globals) *cobra.Command {
	f := &deadFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "Look at jobs that were given up, and run them again",
		Long: `Dead shows, replays and discards dead letters: jobs that failed for good, each with its payload and its last error, and
messages that other consumers have left stranded.

Begin with "groups": it puts letters whose errors differ only in numbers, ids and quoted values into one group, whose
signature selects it in other commands. Commands that change something only report what they would do until --yes is
given; letters that are named one by one are replayed without it.`,
		Example: `  expediter dead groups --since 24h
  expediter dead list --signature 'smtp: code #'
  expediter dead show 17
  expediter dead replay 17
  expediter dead replay --signature 'smtp: code #' --rate 10 --yes`,
	}
	flags := cmd.PersistentFlags()
	f.register(flags)
	f.registerAccount(flags)
	flags.StringVar(&f.deadSubject, "dead-subject", "dead", "first part of the letters' subjects")
	flags.StringVar(&f.stream, "stream", contracts.StreamDead, "stream that holds the letters")
	cmd.AddCommand(newDeadDiscard(f), newDeadGroups(f), newDeadList(f), newDeadReplay(f), newDeadShow(f), newDeadStranded(f))
	return cmd
}

// open connects to the server and opens the dead letters. The caller calls stop.
func (f *deadFlags) open(ctx context.Context) (store *deadletter.Store, stop func(), err error) {
	js, stop, err := f.connect(ctx, "expediter dead")
	if err != nil {
		return nil, nil, err
	}
	f.js = js
	store, err = deadletter.Open(ctx, js, deadletter.Config{
		DeadSubject: f.deadSubject, RequestTimeout: f.timeout, Stream: f.stream,
	})
	if err != nil {
		stop()
		return nil, nil, err
	}
	return store, stop, nil
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
}

func (f *filterFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.jobStream, "job-stream", "", "stream of the jobs")
	flags.StringVar(&f.kind, "kind", "", "letter, stranded or unreadable")
	flags.StringVar(&f.reason, "reason", "", "why jobs were given up: exhausted, cancelled, undecodable, max_deliveries or terminated")
	flags.StringVar(&f.signature, "signature", "", "signature of a group of errors, as dead groups lists it")
	flags.StringVar(&f.since, "since", "", "given up at this time or later: 2h, 7d, or 2006-01-02T15:04:05Z")
	flags.StringVar(&f.subject, "subject", "", "pattern of the jobs' subjects, such as 'jobs.mail.>'")
	flags.StringVar(&f.until, "until", "", "given up before this time, as --since")
	completeWith(cmd, "kind", string(deadletter.KindLetter), string(deadletter.KindStranded), string(deadletter.KindUnreadable))
	completeWith(cmd, "reason", string(worker.ReasonExhausted), string(worker.ReasonCancelled), string(worker.ReasonUndecodable),
		string(deadletter.ReasonMaxDeliveries), string(deadletter.ReasonTerminated))
}

// check returns every mistake that can be seen before anything is opened.
func (f *filterFlags) check() error {
	_, err := f.filter(time.Now(), nil)
	return err
}

// filter makes the filter of the flags. now is the server's time.
func (f *filterFlags) filter(now time.Time, sequences []uint64) (deadletter.Filter, error) {
	filter := deadletter.Filter{
		Kind: deadletter.Kind(f.kind), Reason: worker.Reason(f.reason), Sequences: sequences, Signature: f.signature,
		Stream: f.jobStream, Subject: f.subject,
	}
	var errs []error
	for _, bound := range []struct {
		flag, value string
		at          *time.Time
	}{{"since", f.since, &filter.Since}, {"until", f.until, &filter.Until}} {
		if bound.value == "" {
			continue
		}
		at, err := parseTime(now, bound.value)
		errs = append(errs, refuse(err != nil, "--%s: %w", bound.flag, err))
		*bound.at = at
	}
	errs = append(errs, filter.Validate())
	return filter, usage(errs...)
}

// empty reports whether the flags select everything.
func (f *filterFlags) empty() bool { return *f == filterFlags{} }

// parseTime reads a moment, or how long ago it was.
func parseTime(now time.Time, text string) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.Add(-time.Duration(n) * 24 * time.Hour), nil
		}
	}
	ago, err := time.ParseDuration(text)
	if err != nil || ago < 0 {
		return time.Time{}, fmt.Errorf("%q: want how long ago, such as 2h or 7d, or a time such as 2006-01-02T15:04:05Z", text)
	}
	return now.Add(-ago), nil
}

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
