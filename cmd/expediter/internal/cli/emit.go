package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/api"
	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/rows"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/recipient"
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

// errBadEvents is returned when the input has values that are no events.
var errBadEvents = errors.New("no valid event")

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
	f.outputFlag(cmd, &f.format, listFormats...)
	flags.StringVar(&f.source, "source", "/expediter/emit", "source of the events: a URI reference")
	flags.DurationVar(&f.limit, "timeout", time.Minute,
		"longest time to try one event, and with --wait to wait for the end of all notifications")
	f.choice(cmd, &f.via, "via", "", "where events are published: stream or notifier", viaStream, viaNotifier)
	flags.BoolVar(&f.wait, "wait", false, "wait until all notifications have ended, and count them (implies --via notifier)")
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
	e := &emission{emitFlags: f, counts: map[notify.Outcome]int{}, paths: paths}
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
	publishing := recipient.PublisherConfig()
	publishing.Source, publishing.Timeout = f.source, min(f.limit, maxPublish)
	publisher, err := contracts.NewPublisher(js, publishing)
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
		err := f.usage(refuse(f.kind == "", "--type is required: the kind of recipient that the users are"),
			refuse(len(channels) == 0, "--channel is required"), refuse(!json.Valid([]byte(payload)), "--payload %.80q: want JSON", payload))
		if err != nil {
			return err
		}
		body := map[string]any{"channels": channels, "event_id": cmp.Or(id, nuid.Next()), "payload": json.RawMessage(payload)}
		for name, value := range words {
			if *value != "" {
				body[name] = *value
			}
		}
		recipients := make([]map[string]string, len(args))
		for i, user := range args {
			recipients[i] = map[string]string{"recipient_type": f.kind, "user_id": user}
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

// maxShown is the number of mistakes of the input that are reported. The others are counted.
const maxShown = 20

type emission struct {
	*emitFlags

	awaited   []string // the ids of events whose notifications are awaited
	bad       int
	counts    map[notify.Outcome]int
	failed    int // events that may not have been published
	paths     []string
	published int
}

func (e *emission) complain(err error) {
	e.bad++
	if e.bad <= maxShown {
		e.notef("%s\n", err)
	}
}

// validate reads the files that can be read twice, and reports every mistake in them.
func (e *emission) validate(ctx context.Context) error {
	n := 0
	for _, path := range e.paths {
		if info, err := os.Stat(path); path == rows.Stdin || err != nil || !info.Mode().IsRegular() {
			continue
		}
		for _, err := range notify.Messages(ctx, path, nil) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			n++
			if err != nil {
				e.complain(err)
			}
		}
	}
	e.more(e.bad - maxShown)
	if e.bad > 0 {
		return fmt.Errorf("%w: %d of %d; no event was published", errBadEvents, e.bad, n)
	}
	return nil
}

// messages yields the events of the files. It ends at the first value that is no event.
func (e *emission) messages(ctx context.Context) iter.Seq2[notify.Message, error] {
	return func(yield func(notify.Message, error) bool) {
		for _, path := range e.paths {
			for message, err := range notify.Messages(ctx, path, e.config.Stdin) {
				switch {
				case err != nil && ctx.Err() != nil:
					yield(message, context.Cause(ctx))
					return
				case err != nil:
					yield(message, fmt.Errorf("%w: %w; the events before it are published, and none from there on", errBadEvents, err))
					return
				case !yield(message, nil):
					return
				}
			}
		}
	}
}

// send publishes the events, and reports the outcome of each.
func (e *emission) send(ctx context.Context, target notify.Target) error {
	err := notify.Send(ctx, target, e.messages(ctx), e.report)
	e.summary()
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; to go on, emit the same again: published events count once")
	case e.failed > 0:
		return fmt.Errorf("%w; emit the same again: published events count once", err)
	}
	return err
}

// emitted is the line of JSON about an event.
type emitted struct {
	EventID   string         `json:"event_id"`
	EventType string         `json:"event_type"`
	Outcome   notify.Outcome `json:"outcome"`
	Where     string         `json:"where"`
	Error     string         `json:"error,omitempty"`
}

func (e *emission) report(r notify.Result) error {
	line := emitted{EventID: r.Event.EventID, EventType: r.Event.EventType, Outcome: r.Outcome, Where: r.Document.Where()}
	if r.Err != nil {
		e.failed++
		line.Outcome, line.Error = "failed", r.Err.Error()
	} else {
		e.counts[r.Outcome]++
		e.published++
	}
	if e.wait && (r.Outcome == notify.Accepted || r.Outcome == notify.Duplicate) {
		e.awaited = append(e.awaited, r.Event.EventID)
	}
	if asJSON(e.format) {
		return e.writeLine(line)
	}
	exists := map[notify.Outcome]string{notify.Duplicate: " (exists already)"}[line.Outcome]
	return e.say("%-9s  %s  %s%s\n", line.Outcome, terminal.Printable(line.EventID), terminal.Printable(line.EventType), exists)
}

// summary writes the numbers of events by outcome, when there is more than one event.
func (e *emission) summary() {
	if n := e.published; !asJSON(e.format) && n != 1 {
		parts := make([]string, 0, len(e.counts))
		for _, outcome := range []notify.Outcome{notify.Accepted, notify.Duplicate, notify.Ignored, notify.Mismatch} {
			if of := e.counts[outcome]; of > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", of, outcome))
			}
		}
		e.notef("%s\n", strings.TrimSuffix(counted(n, "event")+": "+strings.Join(parts, ", "), ": "))
	}
}

func counted(n int, thing string) string { return operate.Counted(n, thing) }

// refused returns the error for events under whose ids other events were published.
func (e *emission) refused() error {
	if n := e.counts[notify.Mismatch]; n > 0 {
		return fmt.Errorf("%s refused: another event was published under the same id; a different event needs another id",
			counted(n, "event"))
	}
	return nil
}

// ended is the line of JSON about the notifications.
type ended struct {
	Events        int `json:"events"`
	Notifications int `json:"notifications"`
	Ended         int `json:"ended"`
	// Unplanned is the number of events that could not be planned.
	Unplanned int          `json:"unplanned,omitempty"`
	States    notify.Tally `json:"states"`
}

// await waits for the notifications of all events.
func (e *emission) await(ctx context.Context, client *notify.Client) error {
	limit, cancel := context.WithTimeoutCause(ctx, e.limit, notify.ErrNotEnded)
	defer cancel()
	tally := notify.Tally{}
	var err error
	var unplanned []error
	for _, id := range e.awaited {
		err = client.Await(limit, id, tally)
		if errors.Is(err, notify.ErrUnplanned) {
			unplanned = append(unplanned, err)
			err = nil
		}
		if err != nil {
			break
		}
	}
	for _, none := range unplanned[:min(len(unplanned), maxShown)] {
		e.notef("%s\n", none)
	}
	e.more(len(unplanned) - maxShown)
	if asJSON(e.format) {
		err = errors.Join(err, e.writeLine(ended{len(e.awaited), tally.All(), tally.All() - tally.Open(), len(unplanned), tally}))
	} else {
		e.notef("%s\n", tallyText(tally))
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; the published events stand")
	case errors.Is(err, notify.ErrNotEnded):
		return fmt.Errorf("%w after %s; the published events stand", err, e.limit)
	case err == nil:
		if n := len(unplanned); n > 0 {
			err = fmt.Errorf("%s could not be planned; fix that, and replay the dead letters: expediter dead list --job-stream EVENTS",
				counted(n, "event"))
		}
		return errors.Join(err, e.failures(tally))
	}
	return err
}

func (e *emission) failures(tally notify.Tally) error {
	state := notifier.State("failed")
	n := tally[state] + tally["bounced"]
	if n == 0 {
		return nil
	}
	if tally[state] == 0 {
		state = "bounced"
	}
	line := fmt.Sprintf("expediter notifications --attempts --state %s", state)
	if len(e.awaited) == 1 {
		line += " --event " + operate.Quote(e.awaited[0])
	}
	return fmt.Errorf("%d of %s failed; see: %s", n, counted(tally.All(), "notification"), line)
}

// tallyText describes the states of notifications in words.
func tallyText(tally notify.Tally) string {
	parts := make([]string, 0, len(tally))
	for _, state := range slices.SortedFunc(maps.Keys(tally), func(a, b notifier.State) int {
		return cmp.Or(tally[b]-tally[a], strings.Compare(string(a), string(b)))
	}) {
		parts = append(parts, fmt.Sprintf("%d %s", tally[state], state))
	}
	return strings.TrimSuffix(counted(tally.All(), "notification")+": "+strings.Join(parts, ", "), ": ")
}
