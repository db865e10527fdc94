package notifier

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
)

// trace is what a notifier process did with a job: it began an attempt, or ended it.
type trace struct {
	At       time.Time      `json:"at"`
	Attempt  int            `json:"attempt"`
	Consumer string         `json:"consumer"`
	Delay    time.Duration  `json:"delay"`
	Delivery int            `json:"delivery"`
	Error    string         `json:"error"`
	Outcome  worker.Outcome `json:"outcome"` // "" is a beginning
	Ran      time.Duration  `json:"ran"`
	Sequence uint64         `json:"sequence"`
	Subject  string         `json:"subject"`
	Worker   string         `json:"worker"`
}

func (t trace) String() string {
	text := fmt.Sprintf("%s %s: %s #%d %s, delivery %d, attempt %d", t.At.Format("15:04:05.000"), t.Worker, t.Consumer, t.Sequence, t.Subject,
		t.Delivery, t.Attempt)
	if t.Outcome == "" {
		return text + " began"
	}
	return fmt.Sprintf("%s is %s after %s, put off for %s: %s", text, t.Outcome, t.Ran.Round(time.Millisecond), t.Delay, t.Error)
}

// traced returns hooks that write what this process does into a file in dir, line by line: a process that is killed leaves it.
func traced(dir, name string) (worker.Hooks, error) {
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return worker.Hooks{}, err
	}
	var mu sync.Mutex
	write := func(i worker.Info, t trace) {
		t.At, t.Worker = time.Now(), name
		t.Attempt, t.Consumer, t.Delivery, t.Sequence, t.Subject = i.Attempt, i.Consumer, i.Deliveries, i.Sequence, i.Subject
		data, err := json.Marshal(t)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			_, err = file.Write(append(data, '\n'))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "trace:", err)
		}
	}
	return worker.Hooks{
		Settled: func(s worker.Settlement) {
			t := trace{Delay: s.Delay, Outcome: s.Outcome, Ran: s.Ran}
			if s.Err != nil {
				t.Error = s.Err.Error()
			}
			write(s.Info, t)
		},
		Started: func(i worker.Info) { write(i, trace{}) },
	}, nil
}

// traces are those of all processes so far, in the order of time. The last line of one that was killed may be torn.
func (c *cell) traces() []trace {
	c.Helper()
	files, err := filepath.Glob(filepath.Join(c.duty.Traces, "*"))
	check.OK(c, err)
	var all []trace
	for _, name := range files {
		file, err := os.Open(name)
		check.OK(c, err)
		for lines := bufio.NewScanner(file); lines.Scan(); {
			var t trace
			if json.Unmarshal(lines.Bytes(), &t) == nil {
				all = append(all, t)
			}
		}
		check.Is(c, file.Close(), nil)
	}
	slices.SortStableFunc(all, func(a, b trace) int { return a.At.Compare(b.At) })
	return all
}

// judgePutOffs looks at how long jobs were put off: nothing but what waits for the end of quiet hours, for longer than all is to
// be told in. How long that took is not looked at: other programs run on this machine.
func (c *cell) judgePutOffs() {
	c.Helper()
	var longest trace
	for _, t := range c.traces() {
		if key, _, row := contracts.RowKey(t.Subject); row && c.wants[key].ending() == deferred {
			continue
		}
		if t.Delay > soon {
			c.Errorf("it was put off for longer than %s: %s", soon, t)
		}
		if t.Delay > longest.Delay {
			longest = t
		}
	}
	c.Logf("the longest put-off: %s", longest)
}

// held tells what is open, where, since when, and what holds it.
func (c *cell) held() string {
	var b strings.Builder
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), lookTimeout)
	defer cancel()
	c.heldConsumers(ctx, &b)
	c.heldEvents(ctx, &b)
	all := c.traces()
	b.WriteString("  events and plans that were not worked to their end at once:\n")
	for _, t := range all {
		if _, _, row := contracts.RowKey(t.Subject); !row && t.Outcome != "" && t.Outcome != worker.OutcomeCompleted {
			fmt.Fprintf(&b, "    %s\n", t)
		}
	}
	b.WriteString("  under way:\n")
	for _, t := range unsettled(all) {
		if what := c.fate(t.Worker); what == "" {
			fmt.Fprintf(&b, "    for %s: %s\n", time.Since(t.At).Round(time.Millisecond), t)
		}
	}
	return b.String()
}

// lookTimeout bounds the questions that a test asks that has failed.
const lookTimeout = 10 * time.Second

func (c *cell) heldConsumers(ctx context.Context, b *strings.Builder) {
	for stream, names := range consumers {
		for _, name := range names {
			consumer, err := c.js.Consumer(ctx, stream, name)
			if err != nil {
				fmt.Fprintf(b, "  consumer %s: %v\n", name, err)
				continue
			}
			i := consumer.CachedInfo()
			fmt.Fprintf(b, "  consumer %s: %d to be delivered, %d to be acknowledged, %d delivered again; %d wait for jobs; delivered %d, acknowledged %d\n",
				name, i.NumPending, i.NumAckPending, i.NumRedelivered, i.NumWaiting, i.Delivered.Stream, i.AckFloor.Stream)
		}
	}
}

// heldEvents tells of the events that are not expanded how far they have come.
func (c *cell) heldEvents(ctx context.Context, b *strings.Builder) {
	for n := range c.published {
		id := c.event(n).EventID
		if kept, err := c.reader.Event(ctx, id); err != nil || kept.State != plan.StateExpanded {
			fmt.Fprintf(b, "  %s: %+v (%v)\n", id, kept, err)
		}
	}
}

// unsettled are the attempts that have begun and not ended.
func unsettled(all []trace) []trace {
	type attempt struct {
		worker, consumer string
		sequence         uint64
	}
	last := map[attempt]trace{}
	for _, t := range all {
		last[attempt{t.Worker, t.Consumer, t.Sequence}] = t
	}
	var open []trace
	for _, t := range last {
		if t.Outcome == "" {
			open = append(open, t)
		}
	}
	slices.SortFunc(open, func(a, b trace) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Sequence, b.Sequence)) })
	return open
}

// fate is how a process ended, "" for one that runs.
func (c *cell) fate(name string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if what := c.accidents.workers[name]; what != freezing {
		return what
	}
	return ""
}
