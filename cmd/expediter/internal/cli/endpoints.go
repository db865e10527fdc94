package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier"
)

func newEndpoints(g *globals) *cobra.Command {
	f := &usersFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{
		Use:   "endpoints",
		Short: "Show and replace the secrets of people's addresses, and try them",
		Long: `Endpoints is about one of the addresses that a user has on a channel, by its id; the plain one is "main". users get --part
addresses shows them, and users put --part addresses changes them.`,
		Example: `  expediter endpoints secret carla webhook main --type CUSTOMER
  expediter endpoints test carla webhook phone --type CUSTOMER
  expediter endpoints replay carla webhook phone --since 24h --type CUSTOMER`,
	}
	f.registerUsers(cmd)
	var since time.Duration
	var template string
	add := func(use, short string, run func(context.Context, *notify.Client, notifier.AddressRequest) error) *cobra.Command {
		one := &cobra.Command{
			Use: use + " USER CHANNEL ID", Short: short, Args: cobra.ExactArgs(3),
			RunE: func(cmd *cobra.Command, args []string) error {
				err := usage(checkID("user", args[0]), checkKind(f.kind),
					refuse(f.kind == "", "--type is required: the kind of recipient that the user is"),
					refuse(since < 0, "--since %s: want a duration such as 24h", since))
				if err != nil {
					return err
				}
				r := notifier.AddressRequest{
					Channel: args[1], ID: args[2], RecipientType: contracts.RecipientType(f.kind), Template: template, UserID: args[0],
				}
				if since > 0 {
					r.Since = time.Now().Add(-since)
				}
				return f.ask(cmd.Context(), func(ctx context.Context, c *notify.Client) error { return run(ctx, c, r) })
			},
		}
		cmd.AddCommand(one)
		return one
	}
	show := func(what string) func(context.Context, *notify.Client, notifier.AddressRequest) error {
		return func(ctx context.Context, c *notify.Client, r notifier.AddressRequest) error {
			var answer map[string]any
			if err := c.Address(ctx, what, r, &answer); err != nil {
				return err
			}
			return f.writeLine(answer)
		}
	}
	add("secret", "Show the secret that signs what the address gets", show("secret"))
	add("rotate", "Replace the secret: the one before signs for another day", show("rotate"))
	test := add("test", "Send a test message now", f.testAddress)
	test.Flags().StringVar(&template, "template", "", "template of the text, on a channel that has texts")
	replay := add("replay", "Send again what has failed", f.replayAddress)
	replay.Flags().DurationVar(&since, "since", 0, "how long ago at most (default at any time)")
	return cmd
}

func (f *usersFlags) testAddress(ctx context.Context, c *notify.Client, r notifier.AddressRequest) error {
	var sent notifier.TestSent
	err := c.Address(ctx, "test", r, &sent)
	if err == nil && sent.Problem != "" {
		err = fmt.Errorf("%s: %w", table.Printable(sent.Problem), errNotSent)
	}
	if err == nil {
		f.notef("%s is sent.\n", sent.ID)
	}
	return err
}

func (f *usersFlags) replayAddress(ctx context.Context, c *notify.Client, r notifier.AddressRequest) error {
	all := 0
	for {
		var done notifier.Replayed
		err := c.Address(ctx, "replay", r, &done)
		if all += done.Replayed; err != nil || done.Next == "" {
			f.notef("%s sent again.\n", counted(all, "row"))
			return err
		}
		r.Cursor = done.Next
	}
}
