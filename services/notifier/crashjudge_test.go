package notifier

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
)

// view is the state of the deliveries, as far as it has been read.
type view struct {
	next  [2]uint64       // of the records, and of those in the inbox
	open  map[string]bool // notifications that are there and go on
	rows  map[string]*deliveries.Delivery
	moved time.Time // when it was last found changed
	left  uint64    // jobs that were not delivered then, as of the last question
}

// ask asks until there is an answer: servers are killed.
func (c *cell) ask(question func(ctx context.Context) error) {
	c.Helper()
	check.OK(c, natstest.UntilAnswered(c.T, question))
}

// look reads the records written since the last call, and reports whether all notifications of all events have ended.
func (c *cell) look() bool {
	c.Helper()
	if c.view.rows == nil {
		c.view = view{next: [2]uint64{1, 1}, open: map[string]bool{}, rows: map[string]*deliveries.Delivery{}, moved: time.Now()}
	}
	c.read(&c.view.next[0], c.store.Scan)
	c.read(&c.view.next[1], c.store.ScanItems)
	if time.Since(c.view.moved) > patience { // forgotten consumers deliver all again, and what has ended changes no record
		left := c.undelivered()
		if left != c.view.left {
			c.view.left, c.view.moved = left, time.Now()
			return false
		}
		c.Fatalf("nothing has changed for %s: %d of %d rows are there, and %d are open\n%s",
			patience, len(c.view.rows), len(c.wants), len(c.view.open), c.some(c.view.open))
	}
	return len(c.view.open) == 0 && len(c.view.rows) >= len(c.wants)
}

// read reads the records written from a position on.
func (c *cell) read(from *uint64, scan func(context.Context, uint64, int) ([]deliveries.Entry, int, uint64, error)) {
	c.Helper()
	const some = 1000
	for {
		var entries []deliveries.Entry
		var next uint64
		c.ask(func(ctx context.Context) (err error) {
			entries, _, next, err = scan(ctx, *from, some)
			return err
		})
		for _, entry := range entries {
			c.view.rows[entry.Key] = entry.Delivery
			*from = entry.Revision + 1
			c.view.moved = time.Now()
			if stays := entry.State.Ended() || entry.State == deliveries.Deferred; stays {
				delete(c.view.open, entry.Key)
			} else {
				c.view.open[entry.Key] = true
			}
		}
		if next == 0 {
			return
		}
		*from = next
	}
}

// some describes the crew's last messages, the histories of the first notifications that are missing or open, and what holds the
// others.
func (c *cell) some(open map[string]bool) string {
	var b strings.Builder
	c.mu.Lock()
	for _, p := range c.hands {
		fmt.Fprintf(&b, "  %s said: %s\n", nameOf(p), p.Said())
	}
	c.mu.Unlock()
	told := 0
	for key := range c.wants {
		if _, there := c.view.rows[key]; (!there || open[key]) && told < 5 {
			told++
			b.WriteString(c.history(key))
		}
	}
	return b.String()
}

// settled waits until all notifications of all events have come to where they stay, for as long as some still move.
func (c *cell) settled() {
	c.Helper()
	c.view.moved = time.Now() // nobody has looked until now
	for !c.look() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-c.Context().Done():
			c.Fatal("the test ends")
		}
	}
}

// tally counts the outcomes of the notifications.
type tally struct {
	calls, deaths, late, dark, duplicates, unknown int
	endings                                        map[ending]int
	refused, unique                                int
}

// judge compares the calls of the providers, the deliveries, and the stream.
func (c *cell) judge(took time.Duration) {
	c.Helper()
	c.look()
	c.far.mu.Lock()
	defer c.far.mu.Unlock()
	check.That(c, len(c.far.foreign) == 0, "%d calls are nobody's: %.2000q", len(c.far.foreign), c.far.foreign)
	for key := range c.far.calls {
		if _, wanted := c.wants[key]; !wanted {
			c.Errorf("nobody was to be told %s", key)
		}
	}
	for key := range c.view.rows {
		if _, wanted := c.wants[key]; !wanted {
			c.Errorf("there is a notification that nobody wanted: %s", c.history(key))
		}
	}
	count := tally{endings: map[ending]int{}}
	bad := 0
	for key, w := range c.wants {
		if wrong := c.wrong(key, w, &count); wrong != "" {
			bad++
			if bad <= 20 {
				c.Errorf("%s\n%s", wrong, c.history(key))
			}
		}
	}
	c.judgeStream()
	c.judgeInbox()
	most := (c.accidents.kills+c.accidents.frozen+len(c.accidents.servers)*(c.crew+3))*3*inFlight + count.dark + count.late
	check.That(c, count.duplicates <= most,
		"%d duplicates, want at most %d: those in flight at each accident, and those of which providers said nothing", count.duplicates, most)
	check.That(c, !c.once || count.duplicates <= 0, "%d duplicates in at-most-once", count.duplicates)
	c.Logf("%d events, %d rows, %d wrong; %d calls brought %d messages and %d duplicates; %d processes killed, %d frozen, servers killed %d times; "+
		"%d attempts whose caller died, %d calls without a clear answer, %d overtaken; %d rows refused, %d given up as unknown; %v; in %s",
		c.published, len(c.wants), bad, count.calls, count.unique, count.duplicates, c.accidents.kills, c.accidents.frozen,
		len(c.accidents.servers), count.deaths, count.dark, count.late, count.refused, count.unknown, count.endings, took.Round(time.Millisecond))
}

// wrong says what is wrong with a notification, "" when nothing is.
func (c *cell) wrong(key string, w want, count *tally) string {
	d, calls := c.view.rows[key], c.far.calls[key]
	if d == nil {
		return "lost: the store of deliveries has no such row"
	}
	ending := w.ending()
	count.endings[ending]++
	count.calls += len(calls)
	if w.Channel != inapp.Name && len(calls) > len(d.Attempts) {
		return fmt.Sprintf("the provider was called %d times, and %d attempts are kept", len(calls), len(d.Attempts))
	}
	if wrong := c.unexplained(d, w, calls, count); wrong != "" {
		return wrong
	}
	state := string(d.State) + ": " + d.Reason
	given := d.State == deliveries.Failed && d.Reason == deliveries.ReasonUnknownOutcome && c.once
	if given {
		count.unknown++
	}
	switch ending {
	case told:
		return c.wrongTold(d, w, calls, count, given)
	case vanished:
		if given || state == "bounced: gone" || state == string(nowhere) {
			return ""
		}
	case nowhere:
		if given && len(calls) == 0 {
			return ""
		}
	case divided, suppressed, deferred:
	}
	if state != string(ending) || len(calls) > 0 {
		return fmt.Sprintf("it is %s after %d calls, and not %s", state, len(calls), ending)
	}
	return ""
}

// wrongTold is wrong for a notification of which nothing kept the provider but itself.
func (c *cell) wrongTold(d *deliveries.Delivery, w want, calls []call, count *tally, given bool) string {
	taken, refused := 0, false
	for _, call := range calls {
		if call.how.took() {
			taken++
		}
		refused = refused || call.how == refuses
	}
	count.unique += min(1, taken)
	if w.Channel == inapp.Name {
		taken = 1 // judgeInbox looks
	}
	count.duplicates += max(0, taken-1)
	end := deliveries.Sent
	if w.Channel == webhook.Name || w.Channel == inapp.Name {
		end = deliveries.Delivered
	}
	switch {
	case given:
		if taken > 1 {
			return fmt.Sprintf("at most once, and it was taken %d times", taken)
		}
	case refused:
		count.refused++
		reason := string(channel.KindRejected)
		if w.Channel == webhook.Name { // it is tried again in spite of that
			reason = deliveries.ReasonExhausted
		}
		if d.State != deliveries.Failed || d.Reason != reason || taken > 0 {
			return fmt.Sprintf("it was refused for good, and is %s: %s", d.State, d.Reason)
		}
	case d.State != end || d.Reason != "":
		return fmt.Sprintf("lost: it is %s: %s, and was taken %d times", d.State, d.Reason, taken)
	case taken == 0:
		return "lost: nobody got it"
	case c.once && taken > 1:
		return fmt.Sprintf("at most once, and it was taken %d times", taken)
	}
	return ""
}

// unexplained says which attempt was followed by another although its outcome was clear, or has no outcome, or an unknown one
// for no reason.
func (c *cell) unexplained(d *deliveries.Delivery, w want, calls []call, count *tally) string {
	dark := 0
	for _, call := range calls {
		if call.how.dark(w.Channel) {
			dark++
		}
	}
	count.dark += dark
	for i, a := range d.Attempts {
		last := i == len(d.Attempts)-1
		overtaken := !last && d.Attempts[i+1].At.Sub(a.At) >= callTimeout
		switch kind := channel.Kind(a.Outcome); {
		case a.Outcome == "":
			return fmt.Sprintf("attempt %d has no outcome", i+1)
		case a.Outcome == deliveries.OutcomeUnknown && a.Detail == "": // its process died before it wrote the provider's answer down
			count.deaths++
			if c.accidents.workers[a.Worker] == "" && !c.away(a.At) {
				return fmt.Sprintf("attempt %d: nothing happened to %s", i+1, a.Worker)
			}
		case kind == channel.KindTimeout && a.TookMS >= callTimeout.Milliseconds()*9/10: // it hung, or this machine did
		case kind == channel.KindTimeout, kind == channel.KindUnknown, kind == channel.KindInterrupted:
			dark--
			if dark < 0 {
				return fmt.Sprintf("attempt %d: the provider gave it a clear answer", i+1)
			}
		case a.Outcome == deliveries.OutcomeSent && !last:
			if !overtaken {
				return fmt.Sprintf("attempt %d was sent, and another followed", i+1)
			}
			count.late++
		}
	}
	return ""
}

// away reports whether a server was away in the life of an attempt, so that its outcome could not be written down.
func (c *cell) away(begun time.Time) bool {
	for _, s := range c.accidents.servers {
		if begun.Before(s.to) && begun.Add(time.Minute).After(s.from) {
			return true
		}
	}
	return false
}

// judgeStream compares the notifications and the records of events that are stored with the events that were
// published.
func (c *cell) judgeStream() {
	c.Helper()
	rows := map[string]bool{}
	var info *jetstream.StreamInfo
	c.ask(func(ctx context.Context) error {
		stream, err := c.js.Stream(ctx, contracts.StreamNotifications)
		if err == nil {
			info, err = stream.Info(ctx, jetstream.WithSubjectFilter("notify.send.>"))
		}
		return err
	})
	for subject, n := range info.State.Subjects {
		key, _, _ := keys.OfSubject(subject)
		rows[key] = true
		check.Equal(c, n, 1, subject+" is there, times")
	}
	unstored := c.judgeUnstored(rows)
	check.Equal(c, len(rows)+unstored, len(c.wants), "rows are in the streams, or in the inbox")
	for n := range c.published {
		e := c.event(n)
		var kept *plan.Event
		c.ask(func(ctx context.Context) (err error) {
			kept, err = c.reader.Event(ctx, e.EventID)
			return err
		})
		rows := c.rowsOf(e)
		maps.DeleteFunc(rows, func(_ string, w want) bool { return w.Address != "" })
		check.That(c, kept.State == plan.StateExpanded && kept.Recipients == len(kinds)*c.users && kept.Notifications == len(rows),
			"%s is %+v", e.EventID, kept)
	}
}

// judgeInbox counts the items that customers find in the application.
func (c *cell) judgeInbox() {
	c.Helper()
	items := 0
	c.ask(func(ctx context.Context) error {
		items = 0
		inbox := c.records.Bucket(contracts.BucketInbox)
		for offset, more := 0, true; more; more = offset > 0 {
			found, next, err := inbox.Subjects(ctx, inbox.Key("CUSTOMER"+".*.*"), offset)
			if err != nil {
				return err
			}
			items, offset = items+len(found), next
		}
		return nil
	})
	want := c.users * c.published
	check.That(c, items == want, "customers have %d items in their inboxes, want %d", items, want)
}

// history tells all that is known of a notification.
func (c *cell) history(key string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s (%+v):\n", key, c.wants[key])
	d, _ := json.Marshal(c.view.rows[key])
	fmt.Fprintf(&b, "    delivery: %s\n", d)
	for _, call := range c.far.calls[key] {
		fmt.Fprintf(&b, "    called at %s as %s: %s\n", call.at.Format(time.RFC3339Nano), call.id, call.how)
	}
	if row := c.view.rows[key]; row != nil {
		for _, a := range row.Attempts {
			if fate := c.accidents.workers[a.Worker]; fate != "" {
				fmt.Fprintf(&b, "    %s %s\n", a.Worker, fate)
			}
		}
	}
	return b.String()
}
