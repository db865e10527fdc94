package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/service/audit"
)

func newAudit(g *globals) *cobra.Command {
	f := &natsFlags{globals: g}
	limit, list := 0, audit.List
	var users bool
	cmd := f.listing("audit", func(ctx context.Context, _ []string, format string) error {
		if users {
			list = audit.ListUsers
		}
		return f.with(ctx, "expediter audit", func(ctx context.Context, js jetstream.JetStream) error {
			records, err := list(ctx, js, limit)
			return f.audit(records, err, format)
		})
	})
	f.register(cmd.Flags())
	cmd.Flags().IntVar(&limit, "limit", 100, "most records to list")
	f.want(cmd.Flags(), "limit", fmt.Sprint("1 to ", audit.MaxList), func() bool { return limit >= 1 && limit <= audit.MaxList })
	cmd.Flags().BoolVar(&users, "users", false, "list the requests of callers who are no operators")
	return cmd
}

func (f *natsFlags) audit(records []audit.Record, err error, format string) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("%w: %w: make it with expediter apply", ErrNotFound, err)
	}
	if err != nil {
		return err
	}
	out := f.rows(format, "No records: no action was recorded yet.", "TIME", "SOURCE-", "ACTOR", "ACTION", "COUNT", "OUTCOME", "TARGET")
	for _, r := range records {
		out.Add(r, r.At, r.Source, r.Actor, r.Action, r.Count, r.Outcome, r.Target)
	}
	return out.Close(nil)
}

// audited acts and writes a record into the audit of the user's account. It asks the server for the user's name. js
// may be of another account.
func (f *natsFlags) audited(
	ctx context.Context, js jetstream.JetStream, action, target string, act func(context.Context) (int, error),
) error {
	own, err := jetstream.New(js.Conn(), jetstream.WithDefaultTimeout(f.timeout))
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	user, err := f.user(ctx, js)
	if err != nil {
		return err
	}
	log := audit.New(audit.Config{Actor: func(context.Context) string { return user }, JetStream: own, Logger: f.logger, Source: "cli"})
	if err = log.Do(ctx, action, target, act); errors.Is(err, audit.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", errUnavailable, err)
	}
	return err
}

// perform carries out an action and says what it did, or without yes what it would do.
func (f *natsFlags) perform(ctx context.Context, js jetstream.JetStream, a operate.Action, yes bool) error {
	if !yes {
		return f.would("%s", terminal.Printable(a.Plan))
	}
	done := ""
	err := f.audited(ctx, js, a.Name, a.Target, func(ctx context.Context) (n int, err error) {
		n, done, err = a.Do(ctx)
		return n, err
	})
	if err != nil {
		return gone(err)
	}
	return f.say("%s\n", terminal.Printable(done))
}

// gone gives the error of an action on something that is not there its exit code.
func gone(err error) error {
	if _, ok := errors.AsType[operate.GoneError](err); ok {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// user returns the account and the user of the connection, as the server knows them.
func (f *natsFlags) user(ctx context.Context, js jetstream.JetStream) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	msg, err := js.Conn().RequestWithContext(ctx, "$SYS.REQ.USER.INFO", nil)
	if err != nil {
		return "", fmt.Errorf("%w: ask the server for the name of its user: %w", errUnavailable, err)
	}
	var answer struct {
		Data struct {
			Account string `json:"account"`
			User    string `json:"user"`
		} `json:"data"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return "", fmt.Errorf("the name of the user: %w", err)
	}
	answer.Data.User = cmp.Or(answer.Data.User, audit.ActorAnyone)
	return answer.Data.Account + "/" + answer.Data.User, nil
}
