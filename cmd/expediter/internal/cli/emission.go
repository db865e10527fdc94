package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/cmd/expediter/internal/terminal"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/rows"
	"github.com/expediter-io/expediter/services/notifier"
)

const (
	// maxShown is the number of mistakes of the input that are reported. The others are counted.
	maxShown = 20

	// maxAwaited is the largest number of events for which --wait waits.
	maxAwaited = 100_000
)

// emission is one run of emit.
type emission struct {
	*emitFlags

	awaited   []string // the ids of events whose rows are awaited
	bad       int
	counts    map[notify.Outcome]int
	failed    int // events that may not have been published
	paths     []string
	published int
	status    *terminal.Status
	unheard   int // number of events beyond maxAwaited
}

func newEmission(f *emitFlags, paths []string) *emission {
	return &emission{emitFlags: f, counts: map[notify.Outcome]int{}, paths: paths}
}

// draw begins a line of status when the output of a terminal has no line for each event. The caller closes it.
func (e *emission) draw() {
	if !e.config.stdout().TTY {
		e.status = terminal.NewStatus(e.config.stderr())
	}
}

// complain reports one mistake in the input.
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
	e.draw()
	err := notify.Send(ctx, target, e.messages(ctx), e.report)
	e.status.Close()
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
		if len(e.awaited) < maxAwaited {
			e.awaited = append(e.awaited, r.Event.EventID)
		} else {
			e.unheard++
		}
	}
	e.status.Setf("%d published", e.published)
	if e.format == jsonLines {
		return e.writeLine(line)
	}
	return e.say("%-9s  %s  %s\n", line.Outcome, terminal.Printable(line.EventID), terminal.Printable(line.EventType))
}

// summary writes the numbers of events by outcome, when there is more than one event.
func (e *emission) summary() {
	if n := e.published; e.format == "text" && n != 1 {
		parts := make([]string, 0, len(e.counts))
		for _, outcome := range []notify.Outcome{notify.Accepted, notify.Duplicate, notify.Ignored, notify.Mismatch} {
			if of := e.counts[outcome]; of > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", of, outcome))
			}
		}
		e.notef("%s\n", strings.TrimSuffix(counted(n, "event")+": "+strings.Join(parts, ", "), ": "))
	}
}

// counted returns a number with the noun for a thing.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// refused returns the error for events under whose ids other events were published.
func (e *emission) refused() error {
	if n := e.counts[notify.Mismatch]; n > 0 {
		return fmt.Errorf("%s %w", counted(n, "event"), errMismatch)
	}
	return nil
}

// ended is the line of JSON about the rows.
type ended struct {
	Events int `json:"events"`
	Rows   int `json:"rows"`
	Ended  int `json:"ended"`
	// Unplanned is the number of events that could not be planned.
	Unplanned int          `json:"unplanned,omitempty"`
	States    notify.Tally `json:"states"`
}

// await waits for the rows of all events.
func (e *emission) await(ctx context.Context, client *notify.Client) error {
	limit, cancel := context.WithTimeoutCause(ctx, e.limit, notify.ErrNotEnded)
	defer cancel()
	tally := notify.Tally{}
	e.draw()
	var err error
	var unplanned []error
	for i, id := range e.awaited {
		e.status.Setf("waiting for the rows of event %d of %d", i+1, len(e.awaited))
		err = client.Await(limit, id, tally)
		if errors.Is(err, notify.ErrUnplanned) {
			unplanned = append(unplanned, err)
			err = nil
		}
		if err != nil {
			break
		}
	}
	e.status.Close()
	for _, none := range unplanned[:min(len(unplanned), maxShown)] {
		e.notef("%s\n", none)
	}
	e.more(len(unplanned) - maxShown)
	if e.format == jsonLines {
		err = errors.Join(err, e.writeLine(ended{len(e.awaited), tally.Rows(), tally.Rows() - tally.Open(), len(unplanned), tally}))
	} else {
		e.notef("%s\n", rowsText(tally))
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; the published events stand")
	case errors.Is(err, notify.ErrNotEnded):
		return fmt.Errorf("%w after %s; the published events stand", err, e.limit)
	case err == nil && e.unheard > 0:
		return fmt.Errorf("%w: %d events are more than are waited for", notify.ErrNotEnded, e.unheard)
	case err == nil:
		if n := len(unplanned); n > 0 {
			err = fmt.Errorf("%s could not be planned; mend that, and replay the letters: expediter dead list --job-stream EVENTS",
				counted(n, "event"))
		}
		return errors.Join(err, e.failures(tally))
	}
	return err
}

// failures returns the error for failed rows.
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
	return fmt.Errorf("%s of %d failed; see: %s", counted(n, "row"), tally.Rows(), line)
}

// rowsText describes the states of rows in words.
func rowsText(tally notify.Tally) string {
	parts := make([]string, 0, len(tally))
	for _, state := range slices.SortedFunc(maps.Keys(tally), func(a, b notifier.State) int {
		return cmp.Or(tally[b]-tally[a], strings.Compare(string(a), string(b)))
	}) {
		parts = append(parts, fmt.Sprintf("%d %s", tally[state], state))
	}
	return strings.TrimSuffix(counted(tally.Rows(), "row")+": "+strings.Join(parts, ", "), ": ")
}
