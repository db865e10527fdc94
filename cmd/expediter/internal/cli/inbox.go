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
		string(contracts.RecipientRestaurantUser), string(contracts.RecipientCustomer), string(contracts.RecipientAgencyUser),
		string(contracts.RecipientAdmin),
	}
)

// inboxFlags are the flags of the inbox command.
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
		if err := f.check(args[0]); err != nil {
			return err
		}
		return f.use(ctx, func(ctx context.Context, inbox *inapp.Inbox) error { return f.show(ctx, inbox, args[0]) })
	})
	flags := cmd.Flags()
	f.register(flags)
	f.registerAccount(flags)
	f.outputFlag(cmd, &f.format, "table", "json")
	f.kindFlag(cmd, flags, &f.kind, "kind of recipient that the user is, such as CUSTOMER (default all kinds)")
	flags.BoolVar(&f.follow, "follow", false, "go on with new and changed items, until it is interrupted")
	flags.IntVar(&f.limit, "limit", 100, fmt.Sprintf("most items to list, up to %d; not with --follow", maxItems))
	f.states = inboxStates
	f.severalOf(cmd, &f.states, "state", "states of the items, with commas", inboxStates...)
	return cmd
}

// check returns every mistake that can be found before a connection is opened.
func (f *inboxFlags) check(userID string) error {
	return f.usage(refuse(f.limit < 1 || f.limit > maxItems, "--limit %d: want 1 to %d", f.limit, maxItems),
		checkID("user", userID))
}

// checkID returns an error for an invalid id.
func checkID(of, id string) error {
	if _, err := contracts.EncodeToken(id); err != nil {
		return fmt.Errorf("%s %.80q: want an id of 1 to %d bytes", of, id, contracts.MaxID)
	}
	return nil
}

// use connects, and opens the inboxes for fn.
func (f *inboxFlags) use(ctx context.Context, fn func(context.Context, *inapp.Inbox) error) error {
	return f.with(ctx, "expediter inbox", func(ctx context.Context, js jetstream.JetStream) error {
		limit, cancel := context.WithTimeout(ctx, f.timeout)
		defer cancel()
		records, err := f.records(js)
		if err != nil {
			return err
		}
		defer records.Close()
		inbox, err := inapp.Open(limit, js, records, inapp.Config{})
		switch {
		case errors.Is(err, jetstream.ErrBucketNotFound):
			return fmt.Errorf("%w: the server has no inboxes: %w (make them with \"expediter apply\")", errUnavailable, err)
		case err != nil:
			return fmt.Errorf("%w: %w", errUnavailable, err)
		}
		return fn(ctx, inbox)
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

// list writes a page for a person.
func (f *inboxFlags) list(userID string, page inapp.Page) (err error) {
	counts := page.Counts
	if counts == (inapp.Counts{}) {
		f.notef("The inbox of %s is empty%s.\n", terminal.Printable(userID), f.asKind())
		return nil
	}
	out := f.rows(f.format, "STATE!", "TIME", "AS", "EVENT~", "WHAT~", "PRIORITY?", "CATEGORY?", "PAYLOAD~")
	for _, item := range page.Items {
		if err := out.Write(item, itemCells(item)...); err != nil {
			return err
		}
	}
	if len(page.Items) > 0 {
		if err := out.Close(); err != nil {
			return err
		}
	}
	f.notef("%d unread, %d read, %d archived.\n", counts.Unread, counts.Read, counts.Archived)
	if page.More {
		f.notef("Only %d are shown: see --limit.\n", len(page.Items))
	}
	return nil
}

// asKind returns words for a restriction to one kind of recipient, or "".
func (f *inboxFlags) asKind() string {
	if f.kind == "" {
		return ""
	}
	return " as " + f.kind
}

func itemCells(item inapp.Item) []string {
	priority := string(item.Priority)
	if item.Priority == contracts.UrgencyNormal {
		priority = ""
	}
	return []string{
		string(item.State), stamp(item.CreatedAt), string(item.RecipientType), item.EventID, item.EventType, priority, item.Category,
		string(item.Payload),
	}
}

// watch writes the items, and then new and changed ones, until it is interrupted.
func (f *inboxFlags) watch(ctx context.Context, inbox *inapp.Inbox, userID string) error {
	feed, err := inbox.Follow(ctx, contracts.RecipientType(f.kind), userID, 0)
	if err != nil {
		return err
	}
	defer feed.Close()
	if f.format != "json" {
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
		case f.format == "json":
			err = f.writeLine(item)
		default:
			cells := itemCells(item)
			err = f.say("%-8s  %s  %s\n", cells[0], cells[1], terminal.Printable(strings.Join(notEmpty(cells[2:]), "  ")))
		}
		if err != nil {
			return err
		}
	}
}

func notEmpty(texts []string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}
