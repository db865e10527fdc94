package cli

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

func newPrefs(g *globals) *cobra.Command {
	f := &usersFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{
		Use:   "prefs",
		Short: "Show and change what people want to be told",
		Long:  `Prefs shows and changes the preferences of a user. An opt-out is taken back by its person only, and so by no command.`,
	}
	f.registerUsers(cmd)
	none := false
	quiet := &cobra.Command{
		Use:     "quiet USER [FROM TO]",
		Short:   "Set the hours in which the user is not disturbed, or with --none remove them",
		Example: `  expediter prefs quiet carla 22:00 07:00 --type CUSTOMER`,
		Args:    cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := usage(refuse(none == (len(args) == 3) || len(args) == 2, "want FROM and TO, or --none")); err != nil {
				return err
			}
			var hours any
			if !none {
				hours = map[string]string{"from": args[1], "to": args[2]}
			}
			return f.change(cmd.Context(), args[0], recipient.Preferences, map[string]any{"quiet_hours": hours})
		},
	}
	quiet.Flags().BoolVar(&none, "none", false, "remove them: those of the profile are in force")
	cmd.AddCommand(f.showing("get", "Show the preferences of a user", recipient.Preferences), quiet, &cobra.Command{
		Use:     "opt-out USER CATEGORY CHANNEL",
		Short:   "Keep a category off a channel; * is every one",
		Example: `  expediter prefs opt-out carla news email --type CUSTOMER`,
		Args:    cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.optOut(cmd.Context(), args[0], args[1], args[2])
		},
	})
	return cmd
}

func newMembers(g *globals) *cobra.Command {
	f := &usersFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{
		Use:   "members",
		Short: "Show and change which aggregates concern people",
		Long:  `Members shows and changes the memberships of a user: the aggregates whose events concern the user, such as RESTAURANT:5.`,
	}
	f.registerUsers(cmd)
	cmd.AddCommand(
		f.showing("list", "Show the memberships of a user", memberships),
		f.newMembership("add", "Add memberships of a user"), f.newMembership("remove", "Remove memberships of a user"),
	)
	return cmd
}

// showing is a command that shows a part of a user.
func (f *usersFlags) showing(name, short string, part recipient.Part) *cobra.Command {
	return &cobra.Command{
		Use: name + " USER", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.part = string(part)
			return f.about(cmd.Context(), args[0], f.get)
		},
	}
}

func (f *usersFlags) newMembership(name, short string) *cobra.Command {
	return &cobra.Command{
		Use: name + " USER TYPE:ID...", Short: short, Args: cobra.MinimumNArgs(2),
		Example: "  expediter members " + name + " carla RESTAURANT:5 --type CUSTOMER",
		RunE: func(cmd *cobra.Command, args []string) error {
			var list []recipient.Member
			for _, arg := range args[1:] {
				kind, id, found := strings.Cut(arg, ":")
				if err := usage(refuse(!found, "%.80q: want TYPE:ID such as RESTAURANT:5", arg)); err != nil {
					return err
				}
				list = append(list, recipient.Member{Type: kind, ID: id})
			}
			return f.change(cmd.Context(), args[0], memberships, map[string]any{name: list})
		},
	}
}

// change merges a patch into a part of a user, and writes the part.
func (f *usersFlags) change(ctx context.Context, user string, part recipient.Part, patch map[string]any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err //nolint:wrapcheck // cannot fail
	}
	f.part = string(part)
	return f.about(ctx, user, func(ctx context.Context, client *notify.Client, r notifier.UserRequest) error {
		return f.put(ctx, client, r, string(body))
	})
}

// optOut adds an opt-out by a line, which leaves those that there are.
func (f *usersFlags) optOut(ctx context.Context, user, category, channel string) error {
	body, err := json.Marshal(map[string]any{"opt_out": map[string][]string{category: {channel}}})
	if err != nil {
		return err //nolint:wrapcheck // cannot fail
	}
	return f.about(ctx, user, func(ctx context.Context, client *notify.Client, r notifier.UserRequest) error {
		return f.put(ctx, client, r, string(body))
	})
}
