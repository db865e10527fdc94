package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
)

// maxItems is the largest number of items that are listed.
const maxItems = 1000

var (
	inboxStates    = []string{string(inapp.Unread), string(inapp.Read), string(inapp.Archived)}
	recipientKinds = []string{
		"RESTAURANT_USER", "CUSTOMER", "AGENCY_USER", "ADMIN",
	}
)

type inboxFlags struct {
	natsFlags

	follow bool
	format string
	kind   string
	limit  int
	states []string
}

func newInbox(g *globals) *cobra.Command {
	f := &inboxFlags{natsFlags: natsFlags{globals: g}}
	cmd := action("inbox USER", func(ctx context.Context, args []string) error {
		return f.use(ctx, func(ctx context.Context, inbox *inapp.Inbox) error { return f.show(ctx, inbox, args[0]) })
	})
	flags := cmd.Flags()
	f.register(flags)
	f.registerAccount(flags)
	f.outputFlag(cmd, &f.format, listFormats...)
	f.kindFlag(cmd, flags, &f.kind, "kind of recipient that the user is, such as CUSTOMER (default all kinds)")
	flags.BoolVar(&f.follow, "follow", false, "go on with new and changed items, until it is interrupted")
	flags.IntVar(&f.limit, "limit", 100, fmt.Sprintf("most items to list, up to %d; not with --follow", maxItems))
	f.want(flags, "limit", fmt.Sprint("1 to ", maxItems), func() bool { return f.limit >= 1 && f.limit <= maxItems })
	f.states = inboxStates
	f.severalOf(cmd, &f.states, "state", "states of the items, with commas", inboxStates...)
	return cmd
}

func checkID(of, id string) error {
	if _, err := contracts.EncodeToken(id); err != nil {
		return fmt.Errorf("%s %.80q: want an id of 1 to %d bytes", of, id, contracts.MaxID)
	}
	return nil
}

func (f *inboxFlags) use(ctx context.Context, fn func(context.Context, *inapp.Inbox) error) error {
	return f.with(ctx, "expediter inbox", func(ctx context.Context, js jetstream.JetStream) error {
		limit, cancel := context.WithTimeout(ctx, f.timeout)
		defer cancel()
		records, err := f.records(js)
		if err != nil {
			return err
		}
		defer records.Close()
		switch _, err := js.KeyValue(limit, contracts.BucketInbox); {
		case errors.Is(err, jetstream.ErrBucketNotFound):
			return fmt.Errorf("%w: the server has no inboxes: %w (make them with \"expediter apply\")", errUnavailable, err)
		case err != nil:
			return fmt.Errorf("%w: %w", errUnavailable, err)
		}
		return fn(ctx, inapp.New(js, records, nil))
	})
}

func (f *inboxFlags) show(ctx context.Context, inbox *inapp.Inbox, userID string) error {
	if f.follow {
		return f.watch(ctx, inbox, userID)
	}
	limit, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	page, err := inbox.Page(limit, contracts.RecipientType(f.kind), userID, inapp.ListOptions{Limit: f.limit, States: f.wanted()})
	if err != nil {
		return err
	}
	if f.format == "json" {
		return f.writeLine(page)
	}
	return f.list(userID, page)
}

func (f *inboxFlags) wanted() []inapp.State {
	states := make([]inapp.State, len(f.states))
	for i, state := range f.states {
		states[i] = inapp.State(state)
	}
	return states
}

func (f *inboxFlags) list(userID string, page inapp.Page) error {
	counts := page.Counts
	if counts == (inapp.Counts{}) {
		f.notef("The inbox of %s is empty%s.\n", terminal.Printable(userID), f.asKind())
		return nil
	}
	out := f.rows(f.format, "No items are in these states.", "STATE", "TIME", "AS-", "EVENT~", "WHAT~", "PRIORITY?", "CATEGORY?", "PAYLOAD~")
	for _, item := range page.Items {
		out.Add(item, itemCells(item)...)
	}
	out.Notef("%d unread, %d read, %d archived.", counts.Unread, counts.Read, counts.Archived)
	if page.More {
		out.Notef("Only %d are shown: see --limit.", len(page.Items))
	}
	return out.Close(nil)
}

// asKind returns words for a restriction to one kind of recipient, or "".
func (f *inboxFlags) asKind() string {
	if f.kind == "" {
		return ""
	}
	return " as " + f.kind
}

func itemCells(item inapp.Item) []any {
	if item.Priority == "normal" {
		item.Priority = ""
	}
	return []any{
		item.State, item.CreatedAt, item.RecipientType, item.EventID, item.EventType, item.Priority, item.Category, string(item.Payload),
	}
}

// watch writes the items, and then new and changed ones, until it is interrupted.
func (f *inboxFlags) watch(ctx context.Context, inbox *inapp.Inbox, userID string) error {
	feed, err := inbox.Follow(ctx, contracts.RecipientType(f.kind), userID, 0)
	if err != nil {
		return err
	}
	defer feed.Close()
	if !asJSON(f.format) {
		f.notef("Following the inbox of %s%s. Stop with Ctrl-C.\n", terminal.Printable(userID), f.asKind())
	}
	wanted := f.wanted()
	for {
		item, err := feed.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case !slices.Contains(wanted, item.State):
			continue
		case asJSON(f.format):
			err = f.writeLine(item)
		default:
			cells := itemCells(item)
			line := []string{fmt.Sprintf("%-8s", cells[0]), terminal.Time(item.CreatedAt)}
			for _, cell := range cells[2:] {
				if text := fmt.Sprint(cell); text != "" {
					line = append(line, text)
				}
			}
			err = f.say("%s\n", terminal.Printable(strings.Join(line, "  ")))
		}
		if err != nil {
			return err
		}
	}
}
