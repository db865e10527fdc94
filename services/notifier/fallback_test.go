package notifier

import (
	"sync/atomic"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/ledger"
)

// A user whom one channel does not reach is told by the next one, once, and by no other.
func TestTheNextChannelTells(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	p.directory(users(contracts.RecipientRestaurantUser, 2)...)
	var mood atomic.Value
	mood.Store(channel.KindRejected)
	dove := &pigeon{name: "dove"}
	n := p.start(moody(&mood), func(c *Config) {
		c.Channels = append(c.Channels, Channel{Channel: dove})
		c.Rules = writeRules(t, "version: 1\nevents: {X: {RESTAURANT_USER: {fallback: [pigeon, inapp, dove], priority: critical}}}")
	})
	p.publish(event("evt-001", "X", func(e *contracts.Event) { e.RecipientType = contracts.RecipientRestaurantUser }))
	all := p.settled(4)
	for key, want := range map[string]ledger.State{"evt-001.pigeon.RESTAURANT_USER.u0": ledger.Failed, "evt-001.inapp.RESTAURANT_USER.u0": ledger.Delivered} {
		if all[key] == nil || all[key].State != want {
			t.Errorf("%s: %+v, want %s", key, all[key], want)
		}
	}
	if e, err := n.Event(t.Context(), "evt-001"); err != nil || e.Rows != 2 || len(p.rows()) != 4 {
		t.Errorf("%+v, %d rows are stored: %v", e, len(p.rows()), err)
	}
	page, err := n.Notifications(t.Context(), Query{EventID: "evt-001", Channel: "pigeon"})
	if err != nil || len(page.Notifications) != 2 || page.Notifications[0].FellBackTo != "inapp" || page.Notifications[0].Reason != "rejected" {
		t.Errorf("%+v: %v", page, err)
	}
	if messages, _ := dove.counts(); messages != 0 {
		t.Errorf("%d messages by the third channel", messages)
	}
}
