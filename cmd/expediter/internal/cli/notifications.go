package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

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
	json     bool
	kind     string
	limit    int
	reason   string
	state    string
	user     string
}

func newNotifications(g *globals) *cobra.Command {
	f := &notificationsFlags{natsFlags: natsFlags{globals: g}}
	cmd := action("notifications", func(ctx context.Context, _ []string) error { return f.run(ctx) })
	shared := cmd.PersistentFlags()
	f.register(shared)
	shared.BoolVar(&f.json, "json", false, "write a line of JSON for each row, or for the result")
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
		refuse(f.attempts && f.json, "--attempts and --json exclude each other: the JSON has them"),
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
		id, notify.ErrNotFound)
}

// describe writes the facts about the event.
func (f *notificationsFlags) describe(ctx context.Context, client *notify.Client) error {
	e, err := client.Event(ctx, f.event)
	if errors.Is(err, notify.ErrNotFound) {
		return unknownEvent(f.event)
	}
	if err != nil || f.json {
		return err
	}
	switch {
	case e.State == "seen":
		f.notef("Seen %s; it is not planned yet. When that lasts, see: expediter dead list --job-stream EVENTS\n", stamp(e.At))
	case e.State == "refused":
		f.notef("Seen %s; it could not be planned: %s\nMend that, and replay its letter: expediter dead list --job-stream EVENTS\n",
			stamp(e.At), terminal.Printable(e.Reason))
	default:
		f.notef("%s, seen %s: %s for %s.\n",
			terminal.Printable(e.EventType), stamp(e.At), counted(e.Rows, "row"), counted(e.Recipients, "recipient"))
	}
	return nil
}

func (f *notificationsFlags) list(ctx context.Context, client *notify.Client) (err error) {
	q := f.query()
	if f.limit > 0 {
		q.Limit = f.limit + 1 // one more shows whether there are more
	}
	out, n := f.table(), 0
	for row, err := range client.Rows(ctx, q) {
		if err != nil && n > 0 && !f.json {
			err = errors.Join(out.Close(), err) // the rows found so far
		}
		if err != nil {
			return err
		}
		n++
		if f.limit > 0 && n > f.limit {
			break
		}
		if err := f.write(out, row); err != nil {
			return err
		}
	}
	switch {
	case n > 0 && !f.json:
		err = out.Close()
	case n == 0 && !f.json:
		f.notef("There are no such notifications.\n")
	}
	if f.limit > 0 && n > f.limit {
		f.notef("Only %d are shown: see --limit.\n", f.limit)
	}
	return err
}

func (f *notificationsFlags) table() *terminal.Table {
	columns := []terminal.Column{
		{Name: "EVENT", Width: cells},
		{Name: "TYPE"},
		{Name: "USER", Width: cells},
		{Name: "CHANNEL"},
		{Name: "ADDRESS", Optional: true},
	}
	if f.attempts {
		columns = append(columns,
			terminal.Column{Name: "TRY"}, terminal.Column{Name: "TIME"}, terminal.Column{Name: "TOOK"},
			terminal.Column{Name: "OUTCOME", Colors: f.colored(stateColors)}, terminal.Column{Name: "WORKER"}, terminal.Column{Name: "DETAIL"})
	} else {
		columns = append(columns,
			terminal.Column{Name: "STATE", Colors: f.colored(stateColors)}, terminal.Column{Name: "REASON", Optional: true},
			terminal.Column{Name: "TRIES"}, terminal.Column{Name: "TIME"}, terminal.Column{Name: "UNTIL", Optional: true})
	}
	return terminal.NewTable(f.config.Stdout, columns...)
}

// write writes a row, or its attempts.
func (f *notificationsFlags) write(out *terminal.Table, row notifier.Notification) error {
	if f.json {
		return f.writeLine(row)
	}
	whose := []string{row.EventID, string(row.RecipientType), row.UserID, row.Channel, row.Address}
	if !f.attempts {
		return out.Write(append(whose, string(row.State), row.Reason, strconv.Itoa(len(row.Attempts)), stampOf(row.UpdatedAt, row.CreatedAt),
			stampOf(row.Until))...)
	}
	for i, a := range row.Attempts {
		outcome, took := a.Outcome, (time.Duration(a.TookMS) * time.Millisecond).String()
		if outcome == "" {
			outcome, took = "under way", ""
		}
		if err := out.Write(append(whose, strconv.Itoa(i+1), stamp(a.At), took, outcome, a.Worker, firstLine(a.Detail))...); err != nil {
			return err
		}
	}
	if len(row.Attempts) == 0 {
		return out.Write(append(whose, "", stampOf(row.UpdatedAt, row.CreatedAt), "", string(row.State), "", row.Reason)...)
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
	cmd := action("cancel EVENT", func(ctx context.Context, args []string) error {
		if err := shared.usage(checkID("event", args[0])); err != nil {
			return err
		}
		return shared.cancel(ctx, notifier.Cancellation{
			EventID: args[0], RecipientType: contracts.RecipientType(kind), UserID: user,
		})
	})
	flags := cmd.Flags()
	shared.kindFlag(cmd, flags, &kind, "kind of recipient that the user is, such as CUSTOMER")
	flags.StringVar(&user, "user", "", "only for this user")
	cmd.MarkFlagsRequiredTogether("type", "user")
	return cmd
}

func (f *notificationsFlags) cancel(ctx context.Context, c notifier.Cancellation) error {
	var done notifier.Cancelled
	err := f.ask(ctx, func(ctx context.Context, client *notify.Client) (err error) {
		done, err = client.Cancel(ctx, c)
		return err
	})
	switch {
	case errors.Is(err, notify.ErrNotFound):
		return unknownEvent(c.EventID)
	case err != nil:
		return err
	case f.json:
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
	f := &notificationsFlags{natsFlags: natsFlags{globals: shared.globals}, state: "failed"}
	var yes bool
	cmd := action("replay", func(ctx context.Context, _ []string) error {
		f.natsFlags, f.json = shared.natsFlags, shared.json
		return f.replay(ctx, yes || f.event != "")
	})
	f.selecting(cmd, "failed", "bounced")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

func (f *notificationsFlags) replay(ctx context.Context, do bool) error {
	if err := f.check(); err != nil {
		return err
	}
	return f.ask(ctx, func(ctx context.Context, client *notify.Client) error {
		if !do {
			return f.wouldReplay(ctx, client)
		}
		done, err := client.Replay(ctx, f.query())
		if f.json {
			err = errors.Join(err, f.writeLine(done))
		} else {
			f.notef("%s sent again.\n", counted(done.Replayed, "row"))
		}
		return errors.Join(err, refuse(done.Gone > 0, "%s cannot be sent again: the stream keeps them no more", counted(done.Gone, "row")))
	})
}

// wouldReplay counts the rows that would be sent again.
func (f *notificationsFlags) wouldReplay(ctx context.Context, client *notify.Client) error {
	n := 0
	for _, err := range client.Rows(ctx, f.query()) {
		if err != nil {
			return err
		}
		n++
	}
	f.notef("%s would be sent again. Do it with --yes.\n", counted(n, "row"))
	return nil
}
