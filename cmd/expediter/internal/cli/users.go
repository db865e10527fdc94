package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/internal/rows"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier"
)

// usersFlags are the flags of all commands about users.
type usersFlags struct {
	natsFlags

	ifMatch string
	kind    string
	replace bool
	skip    int
	yes     bool
}

func newUsers(g *globals) *cobra.Command {
	f := &usersFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{Use: "users"}
	f.registerUsers(cmd)
	cmd.AddCommand(f.newGet(), f.newPut(), f.newDelete(), f.newImport(), f.newExport())
	return cmd
}

// registerUsers adds the flags that all commands about users have.
func (f *usersFlags) registerUsers(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	f.registerServer(flags)
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "longest time to wait for one answer of the notifier")
	f.kindFlag(cmd, flags, &f.kind, "kind of recipient that the user is, such as CUSTOMER")
}

func (f *usersFlags) newGet() *cobra.Command {
	return action("get USER", func(ctx context.Context, args []string) error { return f.about(ctx, args[0], f.get) })
}

func (f *usersFlags) newPut() *cobra.Command {
	cmd := f.putting("put USER JSON", func(ctx context.Context, args []string) (any, error) {
		text := []byte(args[0])
		if args[0] == rows.Stdin {
			var err error
			if text, err = f.read(ctx, args[0], contracts.MaxBody); err != nil {
				return nil, err
			}
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal(text, &fields) != nil || fields == nil {
			return nil, f.usage(fmt.Errorf(`%.80q: want a JSON object such as {"locale":"he-IL"}`, text))
		}
		return json.RawMessage(text), nil
	})
	cmd.Flags().BoolVar(&f.replace, "replace", false, "replace the user, rather than merge")
	cmd.Flags().StringVar(&f.ifMatch, "if-match", "", `only over this ETag of the user, "0" for none and "*" for any`)
	return cmd
}

func (f *usersFlags) newDelete() *cobra.Command {
	cmd := action("delete USER", func(ctx context.Context, args []string) error {
		if err := f.usage(refuse(!f.yes, "say --yes to remove %q", args[0])); err != nil {
			return err
		}
		return f.about(ctx, args[0], func(ctx context.Context, client *notify.Client, r notifier.UserRequest) error {
			return client.Ask(ctx, "users.delete", r, &struct{}{})
		})
	})
	yesFlag(cmd, &f.yes)
	return cmd
}

func (f *usersFlags) newExport() *cobra.Command {
	return action("export", func(ctx context.Context, _ []string) error {
		return f.ask(ctx, func(ctx context.Context, client *notify.Client) error {
			for line, err := range client.Users(ctx, notifier.UserQuery{RecipientType: contracts.RecipientType(f.kind)}) {
				if err == nil {
					err = f.writeLine(line)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// needKind returns an error when --type is missing.
func needKind(kind string) error {
	return refuse(kind == "", "--type is required: the kind of recipient that the user is")
}

// ask connects to a notifier, and calls do with the client.
func (f *natsFlags) ask(ctx context.Context, do func(context.Context, *notify.Client) error) error {
	return f.askService(ctx, contracts.ServiceNotifier, do)
}

// askService is ask for a service of any name.
func (f *natsFlags) askService(ctx context.Context, name string, do func(context.Context, *notify.Client) error) error {
	return f.with(ctx, "expediter", func(ctx context.Context, js jetstream.JetStream) error {
		return adviseService(do(ctx, &notify.Client{Conn: js.Conn(), Service: name, Timeout: f.timeout}))
	})
}

// about is ask for one user.
func (f *usersFlags) about(
	ctx context.Context, user string, do func(context.Context, *notify.Client, notifier.UserRequest) error,
) error {
	if err := f.usage(checkID("user", user), needKind(f.kind)); err != nil {
		return err
	}
	return f.ask(ctx, func(ctx context.Context, client *notify.Client) error {
		return do(ctx, client, notifier.UserRequest{
			IfMatch: f.ifMatch, Merge: !f.replace, RecipientType: contracts.RecipientType(f.kind), UserID: user,
		})
	})
}

// get writes a user, with the memberships.
func (f *usersFlags) get(ctx context.Context, client *notify.Client, r notifier.UserRequest) error {
	var u notifier.User
	var members notifier.Members
	if err := client.Ask(ctx, "users.get", r, &u); err != nil {
		return err
	}
	group := notifier.MembersRequest{RecipientType: r.RecipientType, UserID: r.UserID}
	if err := client.Ask(ctx, "users.members", group, &members); err != nil {
		return err
	}
	all := map[string]any{}
	if err := json.Unmarshal(u.Body, &all); err != nil {
		return err
	}
	all["memberships"] = members.Memberships
	f.notef("ETag %s\n", u.ETag)
	return f.writeLine(all)
}

// putting returns a command that puts a document, made of the arguments behind the user, and writes the user.
func (f *usersFlags) putting(use string, document func(context.Context, []string) (any, error)) *cobra.Command {
	return action(use, func(ctx context.Context, args []string) error {
		made, err := document(ctx, args[1:])
		if err != nil {
			return err
		}
		body, err := json.Marshal(made)
		if err != nil {
			return err
		}
		return f.about(ctx, args[0], func(ctx context.Context, client *notify.Client, r notifier.UserRequest) error {
			r.Body = body
			var u notifier.User
			if err := client.Ask(ctx, "users.put", r, &u); err != nil {
				return err
			}
			return f.writeLine(u.Body)
		})
	})
}

// statusInvalid is the status of a line with mistakes.
const statusInvalid = "invalid"

// problemOf returns the problem of a line.
func problemOf(r notifier.ImportedUser) string {
	if len(r.Errors) > 0 {
		return notify.Fields(r.Errors)
	}
	return r.Detail
}

func newEndpoints(g *globals) *cobra.Command {
	f := &usersFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{Use: "endpoints"}
	f.registerUsers(cmd)
	var since time.Duration
	var template string
	add := func(use string, run func(context.Context, *notify.Client, notifier.AddressRequest) error) *cobra.Command {
		one := action(use+" USER CHANNEL ID", func(ctx context.Context, args []string) error {
			if err := f.usage(refuse(since < 0, "--since %s: want a duration such as 24h", since)); err != nil {
				return err
			}
			return f.about(ctx, args[0], func(ctx context.Context, c *notify.Client, u notifier.UserRequest) error {
				r := notifier.AddressRequest{
					Channel: args[1], ID: args[2], RecipientType: u.RecipientType, Template: template, UserID: u.UserID,
				}
				if since > 0 {
					r.Since = time.Now().Add(-since)
				}
				return run(ctx, c, r)
			})
		})
		cmd.AddCommand(one)
		return one
	}
	show := func(operation string) func(context.Context, *notify.Client, notifier.AddressRequest) error {
		return func(ctx context.Context, c *notify.Client, r notifier.AddressRequest) error {
			var answer map[string]any
			if err := c.Ask(ctx, "endpoints."+operation, r, &answer); err != nil {
				return err
			}
			return f.writeLine(answer)
		}
	}
	add("secret", show("secret"))
	add("rotate", show("rotate"))
	test := add("test", func(ctx context.Context, c *notify.Client, r notifier.AddressRequest) error {
		return f.sendTest(ctx, c, "endpoints.test", r)
	})
	test.Flags().StringVar(&template, "template", "", "template of the text, on a channel that has texts")
	replay := add("replay", f.replayAddress)
	replay.Flags().DurationVar(&since, "since", 0, "how long ago at most (default at any time)")
	return cmd
}

func (f *usersFlags) replayAddress(ctx context.Context, c *notify.Client, r notifier.AddressRequest) error {
	all := 0
	for {
		var done notifier.Replayed
		err := c.Ask(ctx, "endpoints.replay", r, &done)
		if all += done.Replayed; err != nil || done.Next == "" {
			f.notef("%s sent again.\n", counted(all, "row"))
			return err
		}
		r.Cursor = done.Next
	}
}
