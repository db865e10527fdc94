package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

func newPrefs(g *globals) *cobra.Command {
	f := &usersFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{Use: "prefs"}
	f.registerUsers(cmd)
	optOut := action("opt-out USER CATEGORY CHANNEL", func(ctx context.Context, args []string) error {
		return f.about(ctx, args[0], func(ctx context.Context, client *notify.Client, r notifier.UserRequest) error {
			return f.optOut(ctx, client, r, args[1], args[2])
		})
	})
	cmd.AddCommand(f.newQuiet(), f.newMute(), f.newDigest(), optOut)
	return cmd
}

// optOut adds an opt-out: as a line of an import it leaves the others that there are.
func (f *usersFlags) optOut(ctx context.Context, client *notify.Client, r notifier.UserRequest, category, channel string) error {
	line, err := json.Marshal(contracts.Recipient{
		OptOut: map[string][]string{category: {channel}}, RecipientType: r.RecipientType, UserID: r.UserID,
	})
	if err != nil {
		return err
	}
	results, err := client.ImportUsers(ctx, line)
	if err != nil || len(results) != 1 {
		return err
	}
	if results[0].Status == statusInvalid {
		return errors.New(terminal.Printable(problemOf(results[0])))
	}
	f.notef("%s\n", results[0].Status)
	return nil
}

func (f *usersFlags) newQuiet() *cobra.Command {
	none := false
	quiet := f.putting("quiet USER [FROM TO]", func(_ context.Context, args []string) (any, error) {
		if none == (len(args) == 2) || len(args) == 1 {
			return nil, f.usage(errors.New("want FROM and TO, or --none"))
		}
		var hours any
		if !none {
			hours = map[string]string{"from": args[0], "to": args[1]}
		}
		return map[string]any{"quiet_hours": hours}, nil
	})
	quiet.Flags().BoolVar(&none, "none", false, "remove them")
	return quiet
}

func (f *usersFlags) newMute() *cobra.Command {
	var off bool
	var until string
	var lasts time.Duration
	cmd := f.putting("mute USER [CATEGORY]", func(_ context.Context, args []string) (any, error) {
		var end any
		at, err := time.Parse(time.RFC3339, until)
		switch {
		case lasts > 0:
			end = time.Now().Add(lasts).UTC().Truncate(time.Second)
		case !off:
			end = at
		}
		category := append(args, contracts.Anything)[0]
		return map[string]any{"mute": map[string]any{category: end}}, f.usage(
			refuse(lasts < 0, "--for %s: want a duration such as 8h", lasts),
			refuse(until != "" && err != nil, "--until %.40q: want a time such as 2026-12-01T08:00:00Z", until))
	})
	cmd.Flags().DurationVar(&lasts, "for", 0, "for how long")
	cmd.Flags().StringVar(&until, "until", "", "until when")
	cmd.Flags().BoolVar(&off, "off", false, "end it")
	cmd.MarkFlagsOneRequired("for", "until", "off")
	cmd.MarkFlagsMutuallyExclusive("for", "until", "off")
	return cmd
}

func (f *usersFlags) newDigest() *cobra.Command {
	none := false
	cmd := f.putting("digest USER CATEGORY [WHEN]", func(_ context.Context, args []string) (any, error) {
		if none == (len(args) == 2) {
			return nil, f.usage(errors.New("want WHEN, or --none"))
		}
		var when any
		if !none {
			when = args[1]
		}
		return map[string]any{"digest": map[string]any{args[0]: when}}, nil
	})
	cmd.Flags().BoolVar(&none, "none", false, "leave it to the rules")
	return cmd
}

func newMembers(g *globals) *cobra.Command {
	f := &usersFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{Use: "members"}
	f.registerUsers(cmd)
	cmd.AddCommand(
		f.newMembership("list USER", func(*notifier.MembersRequest, []recipient.Member) {}),
		f.newMembership("add USER TYPE:ID...", func(r *notifier.MembersRequest, list []recipient.Member) { r.Add = list }),
		f.newMembership("remove USER TYPE:ID...", func(r *notifier.MembersRequest, list []recipient.Member) { r.Remove = list }))
	return cmd
}

// newMembership returns a command that changes the memberships of a user, and writes all.
func (f *usersFlags) newMembership(use string, change func(*notifier.MembersRequest, []recipient.Member)) *cobra.Command {
	return action(use, func(ctx context.Context, args []string) error {
		var list []recipient.Member
		for _, arg := range args[1:] {
			kind, id, found := strings.Cut(arg, ":")
			if err := f.usage(refuse(!found, "%.80q: want TYPE:ID such as RESTAURANT:5", arg)); err != nil {
				return err
			}
			list = append(list, recipient.Member{Type: kind, ID: id})
		}
		return f.about(ctx, args[0], func(ctx context.Context, client *notify.Client, r notifier.UserRequest) error {
			m := notifier.MembersRequest{RecipientType: r.RecipientType, UserID: r.UserID}
			change(&m, list)
			var all notifier.Members
			if err := client.Ask(ctx, "users.members", m, &all); err != nil {
				return err
			}
			return f.writeLine(all)
		})
	})
}
