package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/rows"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// batchLines and batchBytes bound one request of an import.
const batchLines, batchBytes = 1000, 512 << 10

// errBadUsers is returned when the input has lines that are no users.
var errBadUsers = errors.New("no valid user")

func (f *usersFlags) newImport() *cobra.Command {
	cmd := action("import FILE", func(ctx context.Context, args []string) error {
		if err := f.usage(refuse(f.skip < 0, "--skip %d: want 0 or more", f.skip)); err != nil {
			return err
		}
		return f.ask(ctx, func(ctx context.Context, client *notify.Client) error {
			return f.importUsers(ctx, client, args[0])
		})
	})
	cmd.Flags().IntVar(&f.skip, "skip", 0, "leave out as many users at the beginning")
	return cmd
}

// userLine is a user of a file.
type userLine struct {
	json  []byte
	where string
	wrong string // the reason why it is no user, "" when the notifier decides
}

// userImport is an import that is under way.
type userImport struct {
	*usersFlags

	batch  []userLine
	bytes  int
	client *notify.Client
	counts map[string]int // by status
	done   int            // users of the file
	status *terminal.Status
}

func (f *usersFlags) importUsers(ctx context.Context, client *notify.Client, path string) error {
	run := &userImport{usersFlags: f, client: client, counts: map[string]int{}, status: terminal.NewStatus(f.config.stderr())}
	err := run.read(ctx, path)
	run.status.Close()
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
		return fmt.Errorf("%w: %d of %d", errBadUsers, bad, run.done-f.skip)
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
		}
		i.batch, i.bytes = append(i.batch, line), i.bytes+len(line.json)+1
	}
	return i.flush(ctx)
}

// flush puts the users of a batch.
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
	i.status.Setf("%d users, %d with mistakes", i.done, i.counts[statusInvalid])
	i.batch, i.bytes = i.batch[:0], 0
	return nil
}

// noUser is a line that a notifier refuses, so that every line of a file is counted.
var noUser = []byte(`""`)

// withKind returns a user as one line, with the type of the flag if the user has no type.
func (i *userImport) withKind(body []byte) []byte {
	var fields map[string]json.RawMessage
	if i.kind != "" && json.Unmarshal(body, &fields) == nil && fields["recipient_type"] == nil && fields != nil {
		fields["recipient_type"], _ = json.Marshal(i.kind) //nolint:errchkjson // a text
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

// userOf returns a row of CSV as a line of JSON.
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
