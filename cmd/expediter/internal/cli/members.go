package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

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
