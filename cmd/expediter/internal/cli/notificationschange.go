package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier"
)

func newNotificationsCancel(shared *notificationsFlags) *cobra.Command {
	var kind, user string
	cmd := &cobra.Command{
		Use:   "cancel EVENT",
		Short: "Cancel an event",
		Long: `Cancel cancels an event for all users, or with --type and --user for one user. Its waiting rows are suppressed. Rows that
were sent stay sent, and a row that is being sent at this moment is not retried. Cancelling an event again is no error. An event
that is not published yet is cancelled if it is published within 7 days.

A digest is cancelled by its own id: its content is not sent, and later rows go into the next digest.`,
		Example: `  expediter notifications cancel evt-001
  expediter notifications cancel evt-001 --type CUSTOMER --user carla`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			errs := []error{checkID("event", args[0]), checkKind(kind)}
			if (kind == "") != (user == "") {
				errs = append(errs, errors.New("--type and --user go together"))
			}
			if err := usage(errs...); err != nil {
				return err
			}
			return shared.cancel(cmd.Context(), notifier.Cancellation{
				EventID: args[0], RecipientType: contracts.RecipientType(kind), UserID: user,
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&kind, "type", "", "kind of recipient that the user is, such as CUSTOMER")
	flags.StringVar(&user, "user", "", "only for this user")
	completeWith(cmd, "type", recipientKinds...)
	return cmd
}

func (f *notificationsFlags) cancel(ctx context.Context, what notifier.Cancellation) error {
	client, stop, err := f.client(ctx)
	if err != nil {
		return err
	}
	defer stop()
	done, err := client.Cancel(ctx, what)
	switch {
	case errors.Is(err, notify.ErrNotFound):
		return unknownEvent(what.EventID)
	case err != nil:
		return adviseNotifier(err)
	case f.json:
		return f.writeLine(done)
	case done.Unpublished:
		_, err = fmt.Fprintf(f.config.Stdout, "%s is not published yet: it is cancelled if it is published within 7 days\n",
			table.Printable(done.EventID))
		return wrapWrite(err)
	}
	again := ""
	if done.Again {
		again = " already"
	}
	_, err = fmt.Fprintf(f.config.Stdout, "%s is cancelled%s: %d suppressed, %d had been sent, %d had ended otherwise, %d being sent\n",
		table.Printable(done.EventID), again, done.Suppressed, done.Sent, done.Ended, done.Sending)
	return wrapWrite(err)
}

func newNotificationsReplay(shared *notificationsFlags) *cobra.Command {
	f := &notificationsFlags{natsFlags: natsFlags{globals: shared.globals}}
	var yes bool
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Send failed rows again",
		Long: `Replay sends failed rows again, or with --state bounced those that have bounced. Each keeps its message id, by which the
receiving side recognises a message that it has already. Without --yes it only counts the rows, but for those of one event.`,
		Example: `  expediter notifications replay --event evt-001
  expediter notifications replay --channel email --reason exhausted --yes`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.natsFlags, f.json = shared.natsFlags, shared.json
			return f.replay(cmd.Context(), yes || f.event != "")
		},
	}
	f.selecting(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cmd.Flags().Lookup("state").DefValue = "failed"
	return cmd
}

func (f *notificationsFlags) replay(ctx context.Context, do bool) error {
	if f.state == "" {
		f.state = "failed"
	}
	if err := usage(oneOf("--state", f.state, "failed", "bounced"), f.check()); err != nil {
		return err
	}
	client, stop, err := f.client(ctx)
	if err != nil {
		return err
	}
	defer stop()
	if !do {
		return f.wouldReplay(ctx, client)
	}
	done, err := client.Replay(ctx, f.query())
	if f.json {
		err = errors.Join(err, f.writeLine(done))
	} else {
		f.notef("%s sent again.\n", counted(done.Replayed, "row"))
	}
	if done.Gone > 0 {
		err = errors.Join(err, fmt.Errorf("%s cannot be sent again: the stream keeps them no more", counted(done.Gone, "row")))
	}
	return adviseNotifier(err)
}

// wouldReplay counts the rows that would be sent again.
func (f *notificationsFlags) wouldReplay(ctx context.Context, client *notify.Client) error {
	n := 0
	for _, err := range client.Rows(ctx, f.query()) {
		if err != nil {
			return adviseNotifier(err)
		}
		n++
	}
	f.notef("%s would be sent again. Do it with --yes.\n", counted(n, "row"))
	return nil
}
