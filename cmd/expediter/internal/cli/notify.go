package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nuid"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
)

func newNotify(g *globals) *cobra.Command {
	f := &usersFlags{natsFlags: natsFlags{globals: g}}
	var id, payload string
	var channels []string
	words := map[string]*string{"category": new(string), "not_before": new(string), "priority": new(string), "template": new(string)}
	cmd := &cobra.Command{
		Use:   "notify USER...",
		Short: "Notify users at once, without a rule",
		Long: `Notify delivers one notification to users on the channels that it names; their opt-outs and quiet hours are kept. It takes
effect once under its id: after an error, repeat it with the same --id. POST /v1/notify of a notifier can do more.`,
		Example: `  expediter notify carla dana --type CUSTOMER --channel inapp,email --template welcome --payload '{"name":"Ada"}'`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			errs := make([]error, 0, 4+len(args))
			errs = append(errs, checkKind(f.kind),
				refuse(f.kind == "", "--type is required: the kind of recipient that the users are"),
				refuse(len(channels) == 0, "--channel is required"), refuse(!json.Valid([]byte(payload)), "--payload %.80q: want JSON", payload))
			body := map[string]any{"channels": channels, "event_id": cmp.Or(id, nuid.Next()), "payload": json.RawMessage(payload)}
			for name, value := range words {
				if *value != "" {
					body[name] = *value
				}
			}
			recipients := make([]map[string]string, len(args))
			for i, user := range args {
				errs = append(errs, checkID("user", user))
				recipients[i] = map[string]string{"recipient_type": f.kind, "user_id": user}
			}
			if err := usage(errs...); err != nil {
				return err
			}
			body["recipients"] = recipients
			return f.ask(cmd.Context(), func(ctx context.Context, client *notify.Client) error {
				done, err := client.Notify(ctx, body)
				if err != nil {
					return fmt.Errorf("%w (its id is %s)", err, body["event_id"])
				}
				outcome := notify.Accepted
				if done.Duplicate {
					outcome = notify.Duplicate
				}
				_, err = fmt.Fprintf(f.config.Stdout, "%-9s  %s\n", outcome, table.Printable(done.EventID))
				return wrapWrite(err)
			})
		},
	}
	flags := cmd.Flags()
	f.registerServer(flags)
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "longest time to wait for the answer of the notifier")
	flags.StringVar(&f.kind, "type", "", "kind of recipient that the users are, such as CUSTOMER")
	flags.StringSliceVar(&channels, "channel", nil, "channels to notify on")
	flags.StringVar(&id, "id", "", "id of the notification (default: a new one)")
	flags.StringVar(&payload, "payload", "{}", "payload for the templates: JSON")
	flags.StringVar(words["category"], "category", "", "what users switch off together")
	flags.StringVar(words["not_before"], "not-before", "", "earliest time, such as 2026-12-24T18:00:00Z")
	flags.StringVar(words["priority"], "priority", "", "low, normal, high or critical")
	flags.StringVar(words["template"], "template", "", "name of the text")
	completeWith(cmd, "type", recipientKinds...)
	completeWith(cmd, "priority", "low", "normal", "high", "critical")
	return cmd
}
