package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier"
)

// listTimeout bounds reading a whole inbox.
const listTimeout = time.Minute

// notificationsFlags are the flags of the commands about notifications.
type notificationsFlags struct {
	natsFlags

	address  string
	attempts bool
	channel  string
	event    string
	format   string
	kind     string
	limit    int
	reason   string
	state    string
	user     string
}

func newNotifications(g *globals) *cobra.Command {
	f := &notificationsFlags{natsFlags: natsFlags{globals: g}}
	cmd := action("notifications", func(ctx context.Context, _ []string) error { return f.run(ctx) })
	f.register(cmd.PersistentFlags())
	f.outputFlag(cmd, &f.format, listFormats...)
	f.selecting(cmd, "pending", "deferred", "sending", "sent", "delivered", "bounced", "suppressed", "split", "failed")
	flags := cmd.Flags()
	flags.BoolVar(&f.attempts, "attempts", false, "write a line for each attempt")
	flags.IntVar(&f.limit, "limit", 100, "most rows to list, 0 for all")
	cmd.AddCommand(newNotificationsCancel(f), newNotificationsReplay(f))
	return cmd
}

// selecting adds the flags that select rows, which may be in some states.
func (f *notificationsFlags) selecting(cmd *cobra.Command, states ...string) {
	flags := cmd.Flags()
	flags.StringVar(&f.address, "address", "", "rows of this one of the user's addresses on a channel, such as main")
	flags.StringVar(&f.channel, "channel", "", "rows of this channel, such as inapp or email")
	flags.StringVar(&f.event, "event", "", "rows of this event")
	f.kindFlag(cmd, flags, &f.kind, "rows of this kind of recipient, such as CUSTOMER")
	flags.StringVar(&f.reason, "reason", "", "rows that are in their state for this reason, such as exhausted or opt_out")
	f.choice(cmd, &f.state, "state", "", "rows in this state", states...)
	flags.StringVar(&f.user, "user", "", "rows of this user")
}

// query returns the query by the flags.
func (f *notificationsFlags) query() notifier.Query {
	return notifier.Query{
		Address: f.address, Channel: f.channel, EventID: f.event, Reason: f.reason, RecipientType: contracts.RecipientType(f.kind),
		State: notifier.State(f.state), UserID: f.user,
	}
}

// check returns every mistake that can be found before a connection is opened.
func (f *notificationsFlags) check() error {
	errs := []error{
		refuse(f.limit < 0, "--limit %d: want 0 or more", f.limit),
		refuse(f.attempts && f.format != listFormats[0], "--attempts goes with a table: JSON has them"),
	}
	for _, id := range [][2]string{{"--event", f.event}, {"--user", f.user}, {"--channel", f.channel}, {"--address", f.address}} {
		if id[1] != "" {
			errs = append(errs, checkID(id[0], id[1]))
		}
	}
	return f.usage(errs...)
}

func (f *notificationsFlags) run(ctx context.Context) error {
	if err := f.check(); err != nil {
		return err
	}
	return f.ask(ctx, func(ctx context.Context, client *notify.Client) error {
		if f.event != "" {
			if err := f.describe(ctx, client); err != nil {
				return err
			}
		}
		return f.list(ctx, client)
	})
}

func unknownEvent(id string) error {
	return fmt.Errorf("event %q is %w: it was not published, or no rule matches it "+
		"(publish it with \"expediter emit --wait\", which reports that)",
		id, api.ErrNotFound)
}

// describe writes the facts about the event.
func (f *notificationsFlags) describe(ctx context.Context, client *notify.Client) error {
	e, err := client.Event(ctx, f.event)
	if errors.Is(err, api.ErrNotFound) {
		return unknownEvent(f.event)
	}
	if err != nil || f.format != listFormats[0] {
		return err
	}
	switch e.State {
	case "seen":
		f.notef("Seen %s; it is not planned yet. When that lasts, see: expediter dead list --job-stream EVENTS\n", stamp(e.At))
	case "refused":
		f.notef("Seen %s; it could not be planned: %s\nMend that, and replay its letter: expediter dead list --job-stream EVENTS\n",
			stamp(e.At), terminal.Printable(e.Reason))
	default:
		f.notef("%s, seen %s: %s for %s.\n",
			terminal.Printable(e.EventType), stamp(e.At), counted(e.Rows, "row"), counted(e.Recipients, "recipient"))
	}
	return nil
}

func (f *notificationsFlags) list(ctx context.Context, client *notify.Client) (err error) {
	columns := []string{"EVENT~", "TYPE", "USER~", "CHANNEL", "ADDRESS?"}
	if f.attempts {
		columns = append(columns, "TRY", "TIME", "TOOK", "OUTCOME!", "WORKER", "DETAIL")
	} else {
		columns = append(columns, "STATE!", "REASON?", "TRIES", "TIME", "UNTIL?")
	}
	out, n := f.rows(f.format, columns...), 0
	for row, failed := range client.Rows(ctx, f.query()) {
		n++
		if failed == nil && f.limit > 0 && n > f.limit {
			f.notef("Only %d are shown: see --limit.\n", f.limit)
			break
		}
		if failed == nil {
			failed = f.write(out, row)
		}
		if err = failed; err != nil {
			break
		}
	}
	switch {
	case out.Written() > 0, err == nil && f.format != listFormats[0]:
		err = errors.Join(out.Close(), err)
	case err == nil:
		f.notef("There are no such notifications.\n")
	}
	return err
}

// write writes a row, or its attempts.
func (f *notificationsFlags) write(out *terminal.Rows, row notifier.Notification) error {
	whose := []string{row.EventID, string(row.RecipientType), row.UserID, row.Channel, row.Address}
	if !f.attempts {
		return out.Write(row, append(whose, string(row.State), row.Reason, strconv.Itoa(len(row.Attempts)), stampOf(row.UpdatedAt, row.CreatedAt),
			stampOf(row.Until))...)
	}
	for i, a := range row.Attempts {
		outcome, took := a.Outcome, (time.Duration(a.TookMS) * time.Millisecond).String()
		if outcome == "" {
			outcome, took = "under way", ""
		}
		if err := out.Write(row, append(whose, strconv.Itoa(i+1), stamp(a.At), took, outcome, a.Worker, firstLine(a.Detail))...); err != nil {
			return err
		}
	}
	if len(row.Attempts) == 0 {
		return out.Write(row, append(whose, "", stampOf(row.UpdatedAt, row.CreatedAt), "", string(row.State), "", row.Reason)...)
	}
	return nil
}

// stampOf returns the first of the times that is not zero.
func stampOf(times ...time.Time) string {
	for _, at := range times {
		if !at.IsZero() {
			return stamp(at)
		}
	}
	return ""
}

func newNotificationsCancel(shared *notificationsFlags) *cobra.Command {
	var kind, user string
	cmd := shared.listing("cancel EVENT", func(ctx context.Context, args []string, format string) error {
		if err := shared.usage(checkID("event", args[0])); err != nil {
			return err
		}
		return shared.cancel(ctx, notifier.Cancellation{
			EventID: args[0], RecipientType: contracts.RecipientType(kind), UserID: user,
		}, format)
	}, textFormats...)
	flags := cmd.Flags()
	shared.kindFlag(cmd, flags, &kind, "kind of recipient that the user is, such as CUSTOMER")
	flags.StringVar(&user, "user", "", "only for this user")
	cmd.MarkFlagsRequiredTogether("type", "user")
	return cmd
}

func (f *notificationsFlags) cancel(ctx context.Context, c notifier.Cancellation, format string) error {
	var done notifier.Cancelled
	err := f.ask(ctx, func(ctx context.Context, client *notify.Client) (err error) {
		done, err = client.Cancel(ctx, c)
		return err
	})
	switch {
	case errors.Is(err, api.ErrNotFound):
		return unknownEvent(c.EventID)
	case err != nil:
		return err
	case format == "json":
		return f.writeLine(done)
	}
	again := ""
	if done.Again {
		again = " already"
	}
	return f.say("%s is cancelled%s: %d suppressed, %d had been sent, %d had ended otherwise, %d being sent\n",
		terminal.Printable(done.EventID), again, done.Suppressed, done.Sent, done.Ended, done.Sending)
}

func newNotificationsReplay(shared *notificationsFlags) *cobra.Command {
	f := &notificationsFlags{state: "failed"}
	var yes bool
	cmd := shared.listing("replay", func(ctx context.Context, _ []string, format string) error {
		f.natsFlags = shared.natsFlags
		if err := f.check(); err != nil {
			return err
		}
		return f.ask(ctx, func(ctx context.Context, client *notify.Client) error { return f.replay(ctx, client, format, yes) })
	}, textFormats...)
	f.globals = shared.globals
	f.selecting(cmd, "failed", "bounced")
	yesFlag(cmd, &yes)
	return cmd
}

// replay sends the selected notifications again, or only counts them.
func (f *notificationsFlags) replay(ctx context.Context, client *notify.Client, format string, yes bool) error {
	n := 0
	for _, err := range client.Rows(ctx, f.query()) {
		if yes {
			break
		}
		n++
		if err != nil {
			return err
		}
	}
	if !yes {
		return f.would("send %s again.", counted(n, "row"))
	}
	done, err := client.Replay(ctx, f.query())
	if format == "json" {
		err = errors.Join(err, f.writeLine(done))
	} else {
		f.notef("%s sent again.\n", counted(done.Replayed, "row"))
	}
	return errors.Join(err, refuse(done.Gone > 0, "%s cannot be sent again: the stream keeps them no more", counted(done.Gone, "row")))
}
