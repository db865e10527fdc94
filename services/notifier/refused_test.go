package notifier

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
)

// An event that cannot be planned says so, and why, until it is told again, or its letter is replayed. Another event under
// its id changes nothing about it.
func TestAnEventThatCannotBePlannedSaysWhy(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	p.directory(users(contracts.RecipientRestaurantUser, 2)...)
	file := writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, channels: [inapp]}}}")
	n := p.start(&pigeon{}, func(c *Config) { c.Rules, c.RulesEvery = file, time.Hour })
	nobody := event("evt-001", "X")
	refused := func(letters int) {
		t.Helper()
		p.until("it is dead-lettered", func() bool { return len(p.letters()) == letters })
		if e, err := n.Event(t.Context(), "evt-001"); err != nil || e.State != plan.StateRefused || !strings.Contains(e.Reason, "no user_id") {
			t.Fatalf("%+v: %v", e, err)
		}
	}
	told := func(want Accepted) {
		t.Helper()
		want.Duplicate, want.EventID = true, "evt-001"
		if got, err := n.Publish(t.Context(), nobody); err != nil || got != want {
			t.Errorf("%+v: %v, want %+v", got, err, want)
		}
	}
	p.publish(nobody) // without an id that the stream would know
	refused(1)
	told(Accepted{State: plan.StateSeen})
	refused(2)
	p.publish(event("evt-001", "X", func(e *contracts.Event) { e.Payload = json.RawMessage(`{"guests":5}`) }))
	refused(3)
	check.OK(t, os.WriteFile(file, []byte("version: 1\nevents: {X: {RESTAURANT_USER: {channels: [inapp]}}}"), 0o600))
	n.rules.look(t.Context())
	told(Accepted{State: plan.StateRefused}) // the stream knows it now, and does not deliver it
	p.publish(nobody)                        // as a replay does
	if e := p.expanded(n, "evt-001"); e.Reason != "" || e.Rows != 2 {
		t.Errorf("%+v", e)
	}
	told(Accepted{State: plan.StateExpanded})
	p.settled(2)
}
