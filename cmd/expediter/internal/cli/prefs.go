package cli

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

func newPrefs(g *globals) *cobra.Command {
	f := &usersFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{Use: "prefs"}
	f.registerUsers(cmd)
	get := f.showing("get", recipient.Preferences)
	get.Aliases = []string{"show"}
	cmd.AddCommand(get, f.newQuiet(), f.newMute(), f.newDigest(), &cobra.Command{
		Use:  "opt-out USER CATEGORY CHANNEL",
		Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			optOut := map[string][]string{args[1]: {args[2]}} // a user's line leaves the others that there are
			return f.change(cmd.Context(), args[0], "", map[string]any{"opt_out": optOut})
		},
	})
	return cmd
}

func (f *usersFlags) newQuiet() *cobra.Command {
	none := false
	quiet := &cobra.Command{
		Use:  "quiet USER [FROM TO]",
		Args: cobra.RangeArgs(1, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.usage(refuse(none == (len(args) == 3) || len(args) == 2, "want FROM and TO, or --none")); err != nil {
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
	return quiet
}

func (f *usersFlags) newMute() *cobra.Command {
	var off bool
	var until string
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:  "mute USER [CATEGORY]",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var end any
			at, err := time.Parse(time.RFC3339, until)
			switch {
			case lasts > 0:
				end = time.Now().Add(lasts).UTC().Truncate(time.Second)
			case !off:
				end = at
			}
			if err := f.usage(
				refuse(lasts < 0, "--for %s: want a duration such as 8h", lasts),
				refuse(until != "" && err != nil, "--until %.40q: want a time such as 2026-12-01T08:00:00Z", until),
			); err != nil {
				return err
			}
			category := append(args, contracts.Anything)[1]
			return f.change(cmd.Context(), args[0], recipient.Preferences, map[string]any{"mute": map[string]any{category: end}})
		},
	}
	cmd.Flags().DurationVar(&lasts, "for", 0, "for how long")
	cmd.Flags().StringVar(&until, "until", "", "until when")
	cmd.Flags().BoolVar(&off, "off", false, "end it")
	cmd.MarkFlagsOneRequired("for", "until", "off")
	cmd.MarkFlagsMutuallyExclusive("for", "until", "off")
	return cmd
}

func (f *usersFlags) newDigest() *cobra.Command {
	none := false
	cmd := &cobra.Command{
		Use:  "digest USER CATEGORY [WHEN]",
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.usage(refuse(none == (len(args) == 3), "want WHEN, or --none")); err != nil {
				return err
			}
			var when any
			if !none {
				when = args[2]
			}
			return f.change(cmd.Context(), args[0], recipient.Preferences, map[string]any{"digest": map[string]any{args[1]: when}})
		},
	}
	cmd.Flags().BoolVar(&none, "none", false, "leave it to the rules")
	return cmd
}

func newMembers(g *globals) *cobra.Command {
	f := &usersFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{Use: "members"}
	f.registerUsers(cmd)
	cmd.AddCommand(f.showing("list", memberships), f.newMembership("add"), f.newMembership("remove"))
	return cmd
}

// showing returns a command that shows a part of a user.
func (f *usersFlags) showing(name string, part recipient.Part) *cobra.Command {
	return &cobra.Command{
		Use: name + " USER", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.part = string(part)
			return f.about(cmd.Context(), args[0], f.get)
		},
	}
}

func (f *usersFlags) newMembership(name string) *cobra.Command {
	return &cobra.Command{
		Use: name + " USER TYPE:ID...", Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var list []recipient.Member
			for _, arg := range args[1:] {
				kind, id, found := strings.Cut(arg, ":")
				if err := f.usage(refuse(!found, "%.80q: want TYPE:ID such as RESTAURANT:5", arg)); err != nil {
					return err
				}
				list = append(list, recipient.Member{Type: kind, ID: id})
			}
			return f.change(cmd.Context(), args[0], memberships, map[string]any{name: list})
		},
	}
}

// change merges a patch into a part of a user, and writes the part. Without a part it merges a user's line.
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
