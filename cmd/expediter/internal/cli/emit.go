package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/rows"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier"
)

const (
	// answerTimeout bounds one answer where --timeout bounds more than that.
	answerTimeout = 5 * time.Second

	// maxPublish bounds the attempts to publish one event. It is shorter than the time for which the stream remembers
	// ids.
	maxPublish = time.Minute
)

// The ways to publish events.
const (
	viaNotifier = "notifier"
	viaStream   = "stream"
)

var (
	// errBadEvents is returned when the input has values that are no events.
	errBadEvents = errors.New("no valid event")

	// errMismatch is returned when events were refused because other events were published under their ids before.
	errMismatch = errors.New("refused: another event was published under the same id; a different event needs an id of its own")
)

// emitFlags are the flags of the emit command.
type emitFlags struct {
	natsFlags

	format string
	limit  time.Duration // --timeout
	source string
	via    string
	wait   bool
}

func newEmit(g *globals) *cobra.Command {
	f := &emitFlags{natsFlags: natsFlags{globals: g, timeout: answerTimeout}, via: viaStream}
	cmd := action("emit FILE...", func(ctx context.Context, args []string) error { return f.run(ctx, args) })
	flags := cmd.Flags()
	f.registerServer(flags)
	f.registerAccount(flags)
	f.outputFlag(cmd, &f.format, "text", jsonLines)
	flags.StringVar(&f.source, "source", "/expediter/emit", "source of the events: a URI reference")
	flags.DurationVar(&f.limit, "timeout", time.Minute, "longest time to try one event, and with --wait to wait for the end of all rows")
	f.choice(cmd, &f.via, "via", "", "where events are published: stream or notifier", viaStream, viaNotifier)
	flags.BoolVar(&f.wait, "wait", false, "wait until all rows have ended, and count them (implies --via notifier)")
	return cmd
}

// check returns every mistake that can be found before a connection is opened.
func (f *emitFlags) check(paths []string) error {
	errs := []error{refuse(f.limit <= 0, "--timeout %s: want more than 0", f.limit)}
	if err := (contracts.CloudEvent{ID: "1", Source: f.source, Type: contracts.CloudEventDomain}).Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--source %q: want a URI reference such as /reservations", f.source))
	}
	if first := slices.Index(paths, rows.Stdin); first >= 0 && slices.Contains(paths[first+1:], rows.Stdin) {
		errs = append(errs, errors.New(`"-" is given more than once`))
	}
	if err := f.usage(errs...); err != nil {
		return err
	}
	return exist(paths)
}

func (f *emitFlags) run(ctx context.Context, paths []string) error {
	if err := f.check(paths); err != nil {
		return err
	}
	e := newEmission(f, paths)
	if err := e.validate(ctx); err != nil {
		return err
	}
	js, stop, err := f.connect(ctx, "expediter emit")
	if err != nil {
		return err
	}
	defer stop()
	client := &notify.Client{Conn: js.Conn(), Service: contracts.ServiceNotifier, Timeout: f.timeout}
	target, err := f.target(ctx, js, client)
	if err != nil {
		return err
	}
	if err := e.send(ctx, target); err != nil || !f.wait {
		return errors.Join(adviseService(err), e.refused())
	}
	return errors.Join(adviseService(e.await(ctx, client)), e.refused())
}

// target returns the API that takes the events.
func (f *emitFlags) target(ctx context.Context, js jetstream.JetStream, client *notify.Client) (notify.Target, error) {
	if f.wait || f.via == viaNotifier {
		return client, nil
	}
	// A server without the stream does not answer. A user that may only publish may not ask either, and learns it by
	// publishing.
	ask, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := js.Stream(ask, contracts.StreamEvents)
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) {
		return nil, fmt.Errorf("%w: the server has no stream for events: %w (make it with \"expediter apply\")", errUnavailable, err)
	}
	publisher, err := contracts.NewPublisher(js, contracts.PublisherConfig{Source: f.source, Timeout: min(f.limit, maxPublish)})
	return notify.Stream{Publisher: publisher}, err
}

// adviseService adds a remedy to the error of a service that does not answer.
func adviseService(err error) error {
	if errors.Is(err, api.ErrUnavailable) {
		return fmt.Errorf("%w (start one with \"expediter up\", or say where its NATS server is with --server)", err)
	}
	return err
}

func newNotify(g *globals) *cobra.Command {
	f := &usersFlags{natsFlags: natsFlags{globals: g}}
	var id, payload string
	var channels []string
	words := map[string]*string{"category": new(string), "not_before": new(string), "priority": new(string), "template": new(string)}
	cmd := action("notify USER...", func(ctx context.Context, args []string) error {
		errs := make([]error, 0, 3+len(args))
		errs = append(errs, refuse(f.kind == "", "--type is required: the kind of recipient that the users are"),
			refuse(len(channels) == 0, "--channel is required"), refuse(!json.Valid([]byte(payload)), "--payload %.80q: want JSON", payload))
		body := map[string]any{"channels": channels, "event_id": cmp.Or(id, nuid.Next()), "payload": json.RawMessage(payload)}
		for name, value := range words {
			if *value != "" {
				body[name] = *value
			}
		}
		recipients := make([]map[string]string, len(args))
		for i, user := range args {
			errs = append(errs, checkID("user", user))
			recipients[i] = map[string]string{"recipient_type": f.kind, "user_id": user}
		}
		if err := f.usage(errs...); err != nil {
			return err
		}
		body["recipients"] = recipients
		return f.ask(ctx, func(ctx context.Context, client *notify.Client) error {
			var done notifier.Accepted
			if err := client.Ask(ctx, "notify", body, &done); err != nil {
				return fmt.Errorf("%w (its id is %s)", err, body["event_id"])
			}
			outcome := notify.Accepted
			if done.Duplicate {
				outcome = notify.Duplicate
			}
			return f.say("%-9s  %s\n", outcome, terminal.Printable(done.EventID))
		})
	})
	flags := cmd.Flags()
	f.registerServer(flags)
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "longest time to wait for the answer of the notifier")
	f.kindFlag(cmd, flags, &f.kind, "kind of recipient that the users are, such as CUSTOMER")
	flags.StringSliceVar(&channels, "channel", nil, "channels to notify on")
	flags.StringVar(&id, "id", "", "id of the notification (default: a new one)")
	flags.StringVar(&payload, "payload", "{}", "payload for the templates: JSON")
	flags.StringVar(words["category"], "category", "", "category that users can switch off")
	flags.StringVar(words["not_before"], "not-before", "", "earliest time, such as 2026-12-24T18:00:00Z")
	flags.StringVar(words["priority"], "priority", "", "low, normal, high or critical")
	completeWith(cmd, "priority", "low", "normal", "high", "critical")
	flags.StringVar(words["template"], "template", "", "name of the text")
	return cmd
}
