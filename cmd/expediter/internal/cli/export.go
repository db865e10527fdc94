package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// exportLine is a message that is stored about a user.
type exportLine struct {
	Stream   string          `json:"stream"`
	Subject  string          `json:"subject"`
	StoredAt time.Time       `json:"storedAt"`
	Data     json.RawMessage `json:"data,omitempty"`
}

func newExport(g *globals) *cobra.Command {
	f := &natsFlags{globals: g}
	var kind, format string
	cmd := action("export USER", func(ctx context.Context, args []string) error {
		if err := f.usage(); err != nil {
			return err
		}
		out := f.rows(format, "Nothing is stored under this id.", "STORED", "STREAM", "SUBJECT~")
		return out.Close(f.export(ctx, args[0], kind, out))
	})
	f.outputFlag(cmd, &format, exportFormats...)
	f.register(cmd.Flags())
	f.registerAccount(cmd.Flags())
	f.kindFlag(cmd, cmd.Flags(), &kind, "kind of recipient that the user is, such as CUSTOMER (default all kinds)")
	return cmd
}

func (f *natsFlags) export(ctx context.Context, user, kind string, out *terminal.Rows) error {
	kind = cmp.Or(kind, "*")
	return f.with(ctx, "expediter export", func(ctx context.Context, js jetstream.JetStream) error {
		return f.audited(ctx, js, "export", fmt.Sprintf("user=%q type=%q", audit.User(user), kind), func(ctx context.Context) (int, error) {
			return f.exportFrom(ctx, js, user, kind, out)
		})
	})
}

// exportFrom writes the messages of a user, and returns their number.
func (f *natsFlags) exportFrom(
	ctx context.Context, js jetstream.JetStream, user, kind string, out *terminal.Rows,
) (n int, err error) {
	id, err := contracts.EncodeToken(user)
	if err != nil {
		return 0, &UsageError{Err: err}
	}
	who := kind + "." + id
	records, err := f.records(js)
	if err != nil {
		return 0, err
	}
	defer records.Close()
	for _, of := range append([]kept{{"KV_" + contracts.BucketDirectory, []string{"$KV.directory." + who}}}, keptOf(who)...) {
		written, err := exportStream(ctx, records.Stream(of.stream), of, out)
		if n += written; err != nil {
			return n, fmt.Errorf("%w: export from %s: %w", errUnavailable, of.stream, err)
		}
	}
	return n, nil
}

// records returns a client that repeats its requests while a cluster is not ready. The caller closes it.
func (f *natsFlags) records(js jetstream.JetStream) (*kvrecord.Client, error) {
	records, err := kvrecord.New(kvrecord.Config{JetStream: js, Try: f.timeout, Timeout: max(f.timeout, jsapi.RetryWait)})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return records, nil
}

// kept selects the messages of a stream that are stored under the id of a user.
type kept struct {
	stream  string
	filters []string
}

// keptOf returns the places with messages under the id of a user, except the record in the directory and dead letters.
func keptOf(who string) []kept {
	return []kept{
		{"KV_" + contracts.BucketDirectory, []string{"$KV.directory.member.*.*." + who}},
		{contracts.StreamNotifications, []string{sentTo(who)}},
		{"KV_" + contracts.BucketDeliveries, []string{"$KV.deliveries.*.*." + who, "$KV.deliveries.*.*.*." + who}},
		{"KV_" + contracts.BucketInbox, []string{"$KV.inbox." + who + ".*"}},
	}
}

// sentTo returns a filter for the subjects of the rows of a user.
func sentTo(who string) string { return "notify.send.*." + who + ".>" }

// exportStream writes the messages of a stream, in the order of their subjects, except the marks of deleted keys, and returns their number.
// One round trip for each filter and each message.
func exportStream(ctx context.Context, stream *kvrecord.Stream, of kept, out *terminal.Rows) (n int, err error) {
	for _, filter := range of.filters {
		subjects, err := subjectsUnder(ctx, stream, filter)
		if err != nil {
			return n, err
		}
		for _, subject := range subjects {
			r, err := stream.Latest(ctx, subject)
			if err != nil {
				return n, err
			}
			if r.Revision == 0 || r.Deleted() {
				continue
			}
			line := exportLine{Stream: of.stream, Subject: r.Subject, StoredAt: r.Stored.UTC(), Data: r.Data}
			if len(line.Data) > 0 && !json.Valid(line.Data) {
				line.Data, _ = json.Marshal(string(r.Data))
			}
			out.Add(line, line.StoredAt, line.Stream, line.Subject)
			if out.Err() != nil {
				return n, nil //nolint:nilerr // Close returns it
			}
			n++
		}
	}
	return n, nil
}

// subjectsUnder returns the subjects of a stream that match a filter, sorted. Each has one message. One round trip for each 100,000.
func subjectsUnder(ctx context.Context, stream *kvrecord.Stream, filter string) (all []string, err error) {
	for offset := 0; ; {
		subjects, next, err := stream.Subjects(ctx, filter, offset)
		if err != nil {
			return nil, err
		}
		all = append(all, subjects...)
		if offset = next; next == 0 {
			slices.Sort(all)
			return slices.Compact(all), nil
		}
	}
}

func newForget(g *globals) *cobra.Command {
	f := &natsFlags{globals: g}
	var (
		kind string
		yes  bool
	)
	cmd := action("forget USER", func(ctx context.Context, args []string) error {
		if err := f.usage(needKind(kind)); err != nil {
			return err
		}
		return f.with(ctx, "expediter forget", func(ctx context.Context, js jetstream.JetStream) error {
			return f.forget(ctx, js, args[0], contracts.RecipientType(kind), yes)
		})
	})
	f.register(cmd.Flags())
	f.registerAccount(cmd.Flags())
	f.kindFlag(cmd, cmd.Flags(), &kind, "kind of recipient that the user is, such as CUSTOMER")
	yesFlag(cmd, &yes)
	return cmd
}

func (f *natsFlags) forget(ctx context.Context, js jetstream.JetStream, user string, kind contracts.RecipientType, yes bool) error {
	if !yes {
		n, err := f.erase(ctx, js, user, kind, true)
		if err != nil {
			return err
		}
		return f.would("remove %s.", counted(n, "message"))
	}
	return f.audited(ctx, js, "forget", fmt.Sprintf("user=%q type=%q", audit.User(user), kind), func(ctx context.Context) (int, error) {
		n, err := f.erase(ctx, js, user, kind, false)
		f.notef("%s removed.\n", counted(n, "message"))
		return n, err
	})
}

// erase removes the messages of a user, or only counts them. It writes the mark in the directory first: from then on no
// earlier row is sent, and so none adds messages after the removal.
func (f *natsFlags) erase(
	ctx context.Context, js jetstream.JetStream, user string, kind contracts.RecipientType, dry bool,
) (n int, err error) {
	id, err := contracts.EncodeToken(user)
	if err != nil {
		return 0, &UsageError{Err: err}
	}
	who := string(kind) + "." + id
	records, err := f.records(js)
	if err != nil {
		return 0, err
	}
	defer records.Close()
	var known bool
	if dry {
		known, err = hasRecord(ctx, records, who)
	} else {
		known, err = recipient.NewDirectory(js, records).Forget(ctx, kind, user)
	}
	if err != nil {
		return 0, err
	}
	if known {
		n++
	}
	for _, of := range keptOf(who) {
		removed, err := purge(ctx, js, records, of, dry)
		if n += removed; err != nil {
			return n, fmt.Errorf("%w: remove from %s: %w", errUnavailable, of.stream, err)
		}
	}
	dead, err := deadletter.Open(ctx, js, deadletter.Config{RequestTimeout: f.timeout})
	if err != nil {
		return n, err
	}
	theirs := deadletter.Filter{Stream: contracts.StreamNotifications, Subject: sentTo(who)}
	done, err := dead.Discard(ctx, theirs, deadletter.DiscardOptions{DryRun: dry})
	if err == nil && done.Failed+done.Skipped > 0 {
		err = fmt.Errorf("%w: %d of the user's", errNotAll, done.Failed+done.Skipped)
	}
	return n + done.Done, err
}

func hasRecord(ctx context.Context, records *kvrecord.Client, who string) (bool, error) {
	r, err := records.Bucket(contracts.BucketDirectory).Latest(ctx, "$KV.directory."+who)
	return r.Revision != 0 && !r.Deleted(), err
}

// purge removes messages of a stream, or only counts them. Two round trips for each filter.
func purge(ctx context.Context, js jetstream.JetStream, records *kvrecord.Client, of kept, dry bool) (n int, err error) {
	for _, filter := range of.filters {
		subjects, err := subjectsUnder(ctx, records.Stream(of.stream), filter)
		if err == nil && len(subjects) > 0 && !dry {
			err = jsapi.Retry(ctx, jsapi.RetryWait, func(ctx context.Context) error {
				stream, err := js.Stream(ctx, of.stream)
				if err != nil {
					return err
				}
				return stream.Purge(ctx, jetstream.WithPurgeSubject(filter))
			})
		}
		if err != nil {
			return n, err
		}
		n += len(subjects)
	}
	return n, nil
}
