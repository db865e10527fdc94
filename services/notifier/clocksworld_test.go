package notifier

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

const (
	// lead and linger are for how long a notifier lives before and after a moment at which something is to happen. A notifier
	// that is started sends a wrong message within the lead.
	lead, linger = time.Second, time.Second

	// together is up to which gap one notifier lives through two moments: starting another costs as much.
	together = 20 * time.Second

	// late is how long after its moment a message may come. Work takes no time under fake time, but two waits do: the
	// client's 10 ms before it connects again, and a notification that the server delivers early once more.
	late = 50 * time.Millisecond

	// forever is longer than the test lasts.
	forever = 400 * day

	day = 24 * time.Hour
)

// clockKinds are types of events, and how the rules have them told.
var clockKinds = map[string]string{
	"AT_MIDNIGHT": `digest: {at: ["00:00"]}`,
	"AT_TEN_PAST": `digest: {at: ["02:10", "00:10", "17:00"]}`,
	"AT_HALF":     `digest: {at: "02:30"}`,
	"EVERY_30M":   "digest: {every: 30m}",
	"EVERY_1H":    "digest: {every: 1h}",
	"EVERY_2H":    "digest: {every: 2h}",
	"EVERY_24H":   "digest: {every: 24h}",
	"PLAIN":       "priority: normal",
	"THROTTLED":   "throttle: {limit: 2, per: 1h}",
	"URGENT":      "priority: critical",
}

// clockRules are the rules of all kinds.
func clockRules() string {
	var text strings.Builder
	text.WriteString("version: 1\nevents:\n")
	for _, name := range slices.Sorted(maps.Keys(clockKinds)) {
		fmt.Fprintf(&text, "  %s:\n    CUSTOMER: {scope: user, channels: [inapp, pigeon], category: %s, %s}\n", name, name, clockKinds[name])
	}
	return text.String()
}

// wish is a user's preferences from a moment on.
type wish struct {
	from  time.Time
	hours *contracts.QuietHours
	zone  string
}

func (w wish) String() string {
	if w.hours == nil {
		return w.zone
	}
	return w.zone + ", quiet " + w.hours.From + "-" + w.hours.To
}

// sleeper is a user.
type sleeper struct {
	id     string
	wishes []wish
}

func (s *sleeper) wish(at time.Time) wish {
	now := s.wishes[0]
	for _, w := range s.wishes {
		if !w.from.After(at) {
			now = w
		}
	}
	return now
}

func (s *sleeper) recipient(w wish) contracts.Recipient {
	return contracts.Recipient{RecipientType: "CUSTOMER", UserID: s.id, QuietHours: w.hours, TimeZone: w.zone}
}

// tale is an event about a user, and when the user is to be told.
type tale struct {
	at, due time.Time
	id      string
	kind    string
	user    *sleeper
}

// heard is one message that has reached its channel.
type heard struct {
	at     time.Time
	events string
	user   string
}

// clocked is a server for which fake time passes, and the deeds that are to happen on it.
type clocked struct {
	*place

	cfg  Config
	todo []deed

	mu    sync.Mutex
	heard []heard
}

type deed struct {
	at time.Time
	do func() // nil to be there only
}

func newClocked(t *testing.T, srv *natsrun.Server) *clocked {
	t.Helper()
	v := &clocked{place: newPlace(t, srv, nats.PingInterval(forever))}
	v.cfg = config(&pigeon{send: v.receive}, writeRules(t, clockRules()))
	v.cfg.InboxKeep, v.cfg.RulesEvery = forever, day
	return v
}

// receive is the channel.
func (v *clocked) receive(_ context.Context, m channel.Message) (channel.Receipt, error) {
	events := []string{m.EventID}
	if m.EventType == channel.EventTypeDigest {
		var payload struct {
			Items []struct {
				EventID string `json:"event_id"`
			} `json:"items"`
		}
		if err := json.Unmarshal(m.Payload, &payload); err != nil {
			return channel.Receipt{}, err
		}
		events = nil
		for _, item := range payload.Items {
			events = append(events, item.EventID)
		}
		slices.Sort(events)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.heard = append(v.heard, heard{at: time.Now(), events: strings.Join(events, " "), user: m.UserID})
	return channel.Receipt{ID: m.ID}, nil
}

func (v *clocked) plan(at time.Time, do func()) { v.todo = append(v.todo, deed{at, do}) }

// expect plans the events, and the wishes of their users.
func (v *clocked) expect(tales []*tale) {
	v.Helper()
	directory := v.directory()
	known := map[*sleeper]bool{}
	for _, t := range tales {
		e := event(t.id, t.kind, func(e *recipient.Event) { e.UserID = t.user.id })
		v.plan(t.at, func() { v.publish(e) })
		v.plan(t.due, nil)
		if known[t.user] {
			continue
		}
		known[t.user] = true
		for _, w := range t.user.wishes {
			put := func() {
				body := check.Must(contracts.Encode(t.user.recipient(w)))(v)
				check.Must(directory.Write(v.Context(), "CUSTOMER", t.user.id, recipient.Edit{Body: body}))(v)
			}
			if w.from.IsZero() {
				put()
			} else {
				v.plan(w.from, put)
			}
		}
	}
}

// pass lets the time of all deeds pass. Notifiers live around them.
func (v *clocked) pass() (notifiers int, lived time.Duration) {
	slices.SortStableFunc(v.todo, func(a, b deed) int { return a.at.Compare(b.at) })
	for i := 0; i < len(v.todo); notifiers++ {
		natstest.Pass(time.Until(v.todo[i].at.Add(-lead)))
		born := time.Now()
		n := check.Must(Start(v.Context(), v.nc, v.cfg))(v)
		v.cfg.CreateAssets = false // the first has made them
		for last := v.todo[i].at; i < len(v.todo) && v.todo[i].at.Sub(last) <= together; i++ {
			last = v.todo[i].at
			natstest.Pass(time.Until(last))
			if do := v.todo[i].do; do != nil {
				do()
			}
		}
		natstest.Pass(linger)
		check.ErrorIs(v, n.Stop(), nil)
		lived += time.Since(born)
	}
	return notifiers, lived
}

// judge compares the messages that came with those that were due.
func (v *clocked) judge(tales []*tale) {
	v.Helper()
	want, times := map[string]*tale{}, map[string]int{}
	for _, t := range tales {
		want[t.id] = t
	}
	slices.SortStableFunc(v.heard, func(a, b heard) int { return a.at.Compare(b.at) })
	v.turns(want)
	for _, m := range v.heard {
		of := map[string]bool{}
		for id := range strings.FieldsSeq(m.events) {
			t := want[id]
			times[id]++
			of[t.kind] = true
			check.That(v, t.user.id == m.user && !m.at.Before(t.due) && !m.at.After(t.due.Add(t.late())),
				"%s: told %s at %s, want %s", t, m.user, m.at.UTC().Format(time.RFC3339Nano), t.due.Format(time.RFC3339))
		}
		check.Equal(v, len(of), 1, "kinds in "+m.events)
	}
	for id, t := range want {
		check.That(v, times[id] == 1, "%s: told %d times", t, times[id])
	}
	if v.Failed() {
		for key, d := range v.deliveries() {
			check.That(v, d != nil && d.State.Ended(), "%s has not ended: %+v", key, d)
		}
	}
}

// turns are those of the tales that are throttled: which of them is told when is left open.
func (v *clocked) turns(want map[string]*tale) {
	open := map[string][]time.Time{}
	for _, t := range want {
		if t.kind == "THROTTLED" {
			open[t.user.id] = append(open[t.user.id], t.due)
		}
	}
	for _, m := range v.heard {
		if t := want[m.events]; t != nil && len(open[m.user]) > 0 {
			slices.SortFunc(open[m.user], time.Time.Compare)
			t.due, open[m.user] = open[m.user][0], open[m.user][1:]
		}
	}
}

// late is how much later than at its moment it may come. One that is throttled, and is at its turn at the moment of an
// earlier one, asks again after 200 ms.
func (t *tale) late() time.Duration {
	if t.kind == "THROTTLED" {
		return late + 200*time.Millisecond
	}
	return late
}

func (t *tale) String() string {
	w := t.user.wish(t.at)
	return fmt.Sprintf("%s of %s at %s, for %s (%s)", t.kind, t.id, t.at.Format(time.RFC3339), t.user.id, w)
}

// inboxes checks that all is in the inboxes since it was published: they disturb nobody.
func (v *clocked) inboxes(tales []*tale) {
	v.Helper()
	box := inapp.New(v.js, recordtest.Client(v, v.js), nil)
	for _, t := range tales {
		item, err := box.Get(v.Context(), "CUSTOMER", t.user.id, t.id)
		if err != nil {
			v.Errorf("%s: the inbox: %v", t, err)
			continue
		}
		there := item.ExpiresAt.Add(-forever)
		check.That(v, !there.Before(t.at) && !there.After(t.at.Add(late)), "%s: in the inbox at %s", t, there.Format(time.RFC3339Nano))
	}
}
