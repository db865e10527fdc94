package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier"
)

// listTimeout bounds reading a whole inbox.
const listTimeout = time.Minute

type notificationsFlags struct {
	natsFlags
	operate.Notifications

	attempts bool
	format   string
	limit    int
}

func newNotifications(g *globals) *cobra.Command {
	f := &notificationsFlags{natsFlags: natsFlags{globals: g}}
	cmd := action("notifications", func(ctx context.Context, _ []string) error { return f.run(ctx) })
	f.register(cmd.PersistentFlags())
	f.outputFlag(cmd, &f.format, listFormats...)
	states := make([]string, 0, len(operate.NotificationStates))
	for _, s := range operate.NotificationStates {
		states = append(states, s[0])
	}
	f.selecting(cmd, states...)
	flags := cmd.Flags()
	flags.BoolVar(&f.attempts, "attempts", false, "write a line for each attempt")
	flags.IntVar(&f.limit, "limit", 100, "most notifications to list, 0 for all")
	cmd.AddCommand(newNotificationsCancel(f), newNotificationsReplay(f))
	return cmd
}

func (f *notificationsFlags) selecting(cmd *cobra.Command, states ...string) {
	f.filterFlags(cmd, &f.Notifications)
	f.kindFlag(cmd, cmd.Flags(), &f.RecipientType, "notifications of this kind of recipient, such as CUSTOMER")
	f.choice(cmd, &f.State, "state", "", "notifications in this state", states...)
}

func (f *notificationsFlags) query() notifier.Query {
	return notifier.Query{
		Address: f.Address, Channel: f.Channel, EventID: f.EventID, Reason: f.Reason, RecipientType: contracts.RecipientType(f.RecipientType),
		State: notifier.State(f.State), UserID: f.UserID,
	}
}

// check returns every mistake that can be found before a connection is opened.
func (f *notificationsFlags) check() error {
	errs := []error{
		refuse(f.limit < 0, "--limit %d: want 0 or more", f.limit),
		refuse(f.attempts && asJSON(f.format), "--attempts goes with a table: JSON has them"),
	}
	for _, id := range [][2]string{{"--event", f.EventID}, {"--user", f.UserID}, {"--channel", f.Channel}, {"--address", f.Address}} {
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
		if f.EventID != "" {
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
	e, err := client.Event(ctx, f.EventID)
	if errors.Is(err, api.ErrNotFound) {
		return unknownEvent(f.EventID)
	}
	if err != nil || asJSON(f.format) {
		return err
	}
	switch e.State {
	case "seen":
		f.notef("Seen %s; it is not planned yet. If that does not change, see: expediter dead list --job-stream EVENTS\n", terminal.Time(e.At))
	case "refused":
		f.notef("Seen %s; it could not be planned: %s\nFix that, and replay its dead letter: expediter dead list --job-stream EVENTS\n",
			terminal.Time(e.At), terminal.Printable(e.Reason))
	default:
		f.notef("%s, seen %s: %s for %s.\n",
			terminal.Printable(e.EventType), terminal.Time(e.At), counted(e.Planned, "notification"), counted(e.Recipients, "recipient"))
	}
	return nil
}

func (f *notificationsFlags) list(ctx context.Context, client *notify.Client) (err error) {
	columns := []string{"EVENT~", "TYPE", "USER~", "CHANNEL", "ADDRESS?"}
	if f.attempts {
		columns = append(columns, "TRY", "TIME", "TOOK-", "OUTCOME", "WORKER-", "DETAIL")
	} else {
		columns = append(columns, "STATE", "REASON?", "TRIES", "TIME", "UNTIL?")
	}
	out, n := f.rows(f.format, "No notifications: the flags select none.", columns...), 0
	defer func() { err = out.Close(err) }()
	for one, err := range client.Notifications(ctx, f.query()) {
		n++
		if err != nil || out.Err() != nil {
			return err
		}
		if f.limit > 0 && n > f.limit {
			out.Notef("Only %d are shown: see --limit.", f.limit)
			return nil
		}
		f.write(out, one)
	}
	return nil
}

func (f *notificationsFlags) write(out *terminal.Rows, n notifier.Notification) {
	whose, at := []any{n.EventID, n.RecipientType, n.UserID, n.Channel, n.Address}, cmp.Or(n.UpdatedAt, n.CreatedAt)
	if !f.attempts {
		out.Add(n, append(whose, n.State, n.Reason, len(n.Attempts), at, n.Until)...)
		return
	}
	for i, a := range n.Attempts {
		outcome, took := a.Outcome, (time.Duration(a.TookMS) * time.Millisecond).String()
		if outcome == "" {
			outcome, took = "under way", ""
		}
		out.Add(n, append(whose, i+1, a.At, took, outcome, a.Worker, firstLine(a.Detail))...)
	}
	if len(n.Attempts) == 0 {
		out.Add(n, append(whose, "", at, "", n.State, "", n.Reason)...)
	}
}

func newNotificationsCancel(shared *notificationsFlags) *cobra.Command {
	var kind, user string
	cmd := shared.listing("cancel EVENT", func(ctx context.Context, args []string, format string) error {
		return shared.cancel(ctx, notifier.Cancellation{
			EventID: args[0], RecipientType: contracts.RecipientType(kind), UserID: user,
		}, format)
	})
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
	case asJSON(format):
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
	f := &notificationsFlags{Notifications: operate.Notifications{State: "failed"}}
	var yes bool
	cmd := shared.listing("replay", func(ctx context.Context, _ []string, format string) error {
		f.natsFlags = shared.natsFlags
		if err := f.check(); err != nil {
			return err
		}
		return f.ask(ctx, func(ctx context.Context, client *notify.Client) error { return f.replay(ctx, client, format, yes) })
	})
	f.globals = shared.globals
	f.selecting(cmd, "failed", "bounced")
	yesFlag(cmd, &yes)
	return cmd
}

// replay resends the selected notifications, or only counts them.
func (f *notificationsFlags) replay(ctx context.Context, client *notify.Client, format string, yes bool) error {
	n := 0
	for _, err := range client.Notifications(ctx, f.query()) {
		if yes {
			break
		}
		n++
		if err != nil {
			return err
		}
	}
	if !yes {
		return f.would("resend %s.", counted(n, "notification"))
	}
	done, err := client.Replay(ctx, f.query())
	if asJSON(format) {
		err = errors.Join(err, f.writeLine(done))
	} else {
		f.notef("%s resent.\n", counted(done.Replayed, "notification"))
	}
	return errors.Join(err, refuse(done.Gone > 0, "%s cannot be resent: the stream no longer stores them", counted(done.Gone, "notification")))
}
