package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/rows"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

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

func (f *usersFlags) registerUsers(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	f.registerServer(flags)
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "longest time to wait for one answer of the notifier")
	f.kindFlag(cmd, flags, &f.kind, "kind of recipient that the user is, such as CUSTOMER")
}

func (f *usersFlags) newGet() *cobra.Command {
	return f.listing("get USER", func(ctx context.Context, args []string, format string) error {
		return f.about(ctx, args[0], func(ctx context.Context, client *notify.Client, r notifier.UserRequest) error {
			return f.get(ctx, client, r, format)
		})
	})
}

func (f *usersFlags) newPut() *cobra.Command {
	cmd := f.listing("put USER JSON", func(ctx context.Context, args []string, format string) error {
		text := []byte(args[1])
		if args[1] == rows.Stdin {
			var err error
			if text, err = f.read(ctx, args[1], contracts.MaxBody); err != nil {
				return err
			}
		}
		var fields map[string]json.RawMessage
		if json.Unmarshal(text, &fields) != nil || fields == nil {
			return f.usage(fmt.Errorf(`%.80q: want a JSON object such as {"locale":"he-IL"}`, text))
		}
		return f.about(ctx, args[0], func(ctx context.Context, client *notify.Client, r notifier.UserRequest) error {
			r.Body = text
			var u notifier.User
			if err := client.Ask(ctx, "users.put", r, &u); err != nil {
				return err
			}
			return f.object(format, u.Body)
		})
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
	var format string
	cmd := action("export", func(ctx context.Context, _ []string) error {
		return f.ask(ctx, func(ctx context.Context, client *notify.Client) (err error) {
			out := f.rows(format, "No users: expediter users import adds many at once.", "TYPE", "USER", "LOCALE", "TIME ZONE")
			defer func() { err = out.Close(err) }()
			for line, err := range client.Users(ctx, notifier.UserQuery{RecipientType: contracts.RecipientType(f.kind)}) {
				var u contracts.Recipient
				if err = errors.Join(err, json.Unmarshal(line, &u)); err != nil || out.Err() != nil {
					return err
				}
				out.Add(line, u.RecipientType, u.UserID, u.Locale, u.TimeZone)
			}
			return nil
		})
	})
	f.outputFlag(cmd, &format, exportFormats...)
	return cmd
}

func needKind(kind string) error {
	return refuse(kind == "", "--type is required: the kind of recipient that the user is")
}

// ask connects to a notifier, and calls do with the client.
func (f *natsFlags) ask(ctx context.Context, do func(context.Context, *notify.Client) error) error {
	return f.askService(ctx, contracts.ServiceNotifier, do)
}

func (f *natsFlags) askService(ctx context.Context, name string, do func(context.Context, *notify.Client) error) error {
	return f.with(ctx, "expediter", func(ctx context.Context, js jetstream.JetStream) error {
		return adviseService(do(ctx, &notify.Client{Conn: js.Conn(), Service: name, Timeout: f.timeout}))
	})
}

// about is ask for one user.
func (f *usersFlags) about(
	ctx context.Context, user string, do func(context.Context, *notify.Client, notifier.UserRequest) error,
) error {
	if err := f.usage(needKind(f.kind)); err != nil {
		return err
	}
	return f.ask(ctx, func(ctx context.Context, client *notify.Client) error {
		return do(ctx, client, notifier.UserRequest{
			IfMatch: f.ifMatch, Merge: !f.replace, RecipientType: contracts.RecipientType(f.kind), UserID: user,
		})
	})
}

func (f *usersFlags) get(ctx context.Context, client *notify.Client, r notifier.UserRequest, format string) error {
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
	return f.object(format, all)
}

const statusInvalid = "invalid"

func problemOf(r notifier.ImportedUser) string {
	if len(r.Errors) > 0 {
		return api.Fields(r.Errors)
	}
	return r.Detail
}

func newEndpoints(g *globals) *cobra.Command {
	f := &usersFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{Use: "endpoints"}
	f.registerUsers(cmd)
	var since time.Duration
	var template, format string
	add := func(use string, run func(context.Context, *notify.Client, notifier.AddressRequest) error) *cobra.Command {
		one := action(use+" USER CHANNEL ADDRESS", func(ctx context.Context, args []string) error {
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
			return f.object(format, answer)
		}
	}
	f.outputFlag(add("secret", show("secret")), &format, listFormats...)
	f.outputFlag(add("rotate", show("rotate")), &format, listFormats...)
	test := add("test", func(ctx context.Context, c *notify.Client, r notifier.AddressRequest) error {
		return f.sendTest(ctx, c, "endpoints.test", r)
	})
	test.Flags().StringVar(&template, "template", "", "template of the text, on a channel that has texts")
	replay := add("replay", f.replayAddress)
	replay.Flags().DurationVar(&since, "since", 0, "how long ago at most (default at any time)")
	f.want(replay.Flags(), "since", "a duration such as 24h", func() bool { return since >= 0 })
	return cmd
}

func (f *usersFlags) replayAddress(ctx context.Context, c *notify.Client, r notifier.AddressRequest) error {
	all := 0
	for {
		var done notifier.Replayed
		err := c.Ask(ctx, "endpoints.replay", r, &done)
		if all += done.Replayed; err == nil && done.Next == "" || all > 0 && err != nil {
			f.notef("%s resent.\n", counted(all, "notification"))
		}
		if err != nil || done.Next == "" {
			return err
		}
		r.Cursor = done.Next
	}
}

func newPlaces(g *globals) *cobra.Command {
	f := &natsFlags{globals: g}
	cmd := f.listing("places PLACE", func(ctx context.Context, args []string, format string) error {
		return f.askService(ctx, contracts.ServiceEnricher, func(ctx context.Context, client *notify.Client) error {
			var place map[string]json.RawMessage
			if err := client.Ask(ctx, "place", map[string]string{"placeId": args[0]}, &place); err != nil {
				return err
			}
			if string(place["lookups"]) == "[]" {
				return fmt.Errorf("%w: no enricher has looked up the place %q", ErrNotFound, args[0])
			}
			return f.object(format, place)
		})
	})
	f.register(cmd.Flags())
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

func (f *usersFlags) newMembership(use string, change func(*notifier.MembersRequest, []recipient.Member)) *cobra.Command {
	return f.listing(use, func(ctx context.Context, args []string, format string) error {
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
			return f.object(format, all)
		})
	})
}

// batchLines and batchBytes bound one request of an import.
const batchLines, batchBytes = 1000, 512 << 10

func (f *usersFlags) newImport() *cobra.Command {
	cmd := action("import FILE", func(ctx context.Context, args []string) error {
		return f.ask(ctx, func(ctx context.Context, client *notify.Client) error {
			return f.importUsers(ctx, client, args[0])
		})
	})
	cmd.Flags().IntVar(&f.skip, "skip", 0, "leave out as many users at the beginning")
	f.want(cmd.Flags(), "skip", "0 or more", func() bool { return f.skip >= 0 })
	return cmd
}

type userLine struct {
	json  []byte
	where string
	wrong string // the reason why it is no user, "" when the notifier decides
}

type userImport struct {
	*usersFlags

	batch  []userLine
	bytes  int
	client *notify.Client
	counts map[string]int // by status
	done   int            // users of the file
}

func (f *usersFlags) importUsers(ctx context.Context, client *notify.Client, path string) error {
	run := &userImport{usersFlags: f, client: client, counts: map[string]int{}}
	err := run.read(ctx, path)
	bad := run.counts[statusInvalid]
	f.more(bad - maxShown)
	if err != nil && run.done == 0 {
		return err
	}
	f.notef("%s stored, %d unchanged, %d with mistakes.\n", counted(run.counts["stored"], "user"), run.counts["unchanged"], bad)
	if err != nil {
		return fmt.Errorf("%w; resume with --skip %d", err, run.done)
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d users are not valid", bad, run.done-f.skip)
	}
	return nil
}

func (i *userImport) read(ctx context.Context, path string) error {
	columns := []string{"user_id", "recipient_type"}
	if i.kind != "" {
		columns = columns[:1]
	}
	for record, err := range rows.Open(ctx, path, i.config.Stdin, rows.Options{Columns: columns, MaxBytes: recipient.MaxDocument}) {
		line := userLine{where: record.Where()}
		broken, one := errors.AsType[*rows.Error](err)
		switch {
		case one:
			line.json, line.wrong = noUser, broken.Problem
		case errors.Is(err, rows.ErrFormat) && i.kind == "":
			return errors.Join(i.flush(ctx), fmt.Errorf("%w (a file of one type of users goes with --type)", err))
		case err != nil:
			return errors.Join(i.flush(ctx), err)
		case record.CSV:
			line.json, err = i.userOf(record.Body)
		default:
			line.json = i.withKind(record.Body)
		}
		if err != nil && !one {
			return err
		}
		if i.done+len(i.batch) < i.skip {
			i.done++
			continue
		}
		if i.bytes+len(line.json) > batchBytes || len(i.batch) == batchLines {
			if err := i.flush(ctx); err != nil {
				return err
			}
			i.notef("%d users, %d with mistakes\n", i.done, i.counts[statusInvalid])
		}
		i.batch, i.bytes = append(i.batch, line), i.bytes+len(line.json)+1
	}
	return i.flush(ctx)
}

func (i *userImport) flush(ctx context.Context) error {
	if len(i.batch) == 0 {
		return nil
	}
	var body bytes.Buffer
	for _, line := range i.batch {
		body.Write(append(line.json, '\n'))
	}
	results, err := i.client.ImportUsers(ctx, body.Bytes())
	if err != nil {
		return err
	}
	for _, r := range results {
		i.counts[r.Status]++
		if r.Status == statusInvalid && r.Line <= len(i.batch) {
			line := i.batch[r.Line-1]
			if i.counts[statusInvalid] <= maxShown {
				i.notef("%s\n", terminal.Printable(line.where+": "+cmp.Or(line.wrong, problemOf(r))))
			}
		}
	}
	i.done += len(i.batch)
	i.batch, i.bytes = i.batch[:0], 0
	return nil
}

// noUser is a line that a notifier refuses, so that every line of a file is counted.
var noUser = []byte(`""`)

// withKind returns a user as one line, with the type of the flag if the user has no type.
func (i *userImport) withKind(body []byte) []byte {
	var fields map[string]json.RawMessage
	if i.kind != "" && json.Unmarshal(body, &fields) == nil && fields["recipient_type"] == nil && fields != nil {
		fields["recipient_type"], _ = json.Marshal(i.kind)
		if line, err := json.Marshal(fields); err == nil {
			return line
		}
	}
	var line bytes.Buffer
	if json.Compact(&line, body) != nil {
		return bytes.ReplaceAll(body, []byte("\n"), nil) // no JSON: the notifier reports the mistake
	}
	return line.Bytes()
}

func (i *userImport) userOf(row []byte) ([]byte, error) {
	var cells map[string]string
	if err := json.Unmarshal(row, &cells); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	user := map[string]any{}
	if i.kind != "" {
		user["recipient_type"] = i.kind
	}
	addresses, optOut := map[string]string{}, map[string][]string{}
	var members []recipient.Member
	for name, value := range cells {
		channel, isAddress := strings.CutPrefix(name, "addresses.")
		switch {
		case isAddress:
			addresses[channel] = value
		case name == "opt_out":
			for pair := range strings.FieldsSeq(value) {
				category, channel, _ := strings.Cut(pair, ":")
				optOut[category] = append(optOut[category], channel)
			}
		case name == "mute", name == "digest":
			wishes := map[string]string{}
			for pair := range strings.FieldsSeq(value) {
				category, wish, _ := strings.Cut(pair, ":")
				wishes[category] = wish
			}
			user[name] = wishes
		case name == "memberships":
			for pair := range strings.FieldsSeq(value) {
				kind, id, _ := strings.Cut(pair, ":")
				members = append(members, recipient.Member{Type: kind, ID: id})
			}
		case name == "quiet_hours":
			from, to, _ := strings.Cut(value, "-")
			user[name] = map[string]string{"from": from, "to": to}
		default:
			user[name] = value
		}
	}
	if len(addresses) > 0 {
		user["addresses"] = addresses
	}
	if len(optOut) > 0 {
		user["opt_out"] = optOut
	}
	if len(members) > 0 {
		user["memberships"] = members
	}
	return json.Marshal(user)
}
