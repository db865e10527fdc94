package notifier

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// TestRowsAreFound lists rows by user, by event with and without a plan, and by state, in pages of every size: each row is listed once.
// A cancellation for one user finds the user's rows, one for all finds the others.
func TestRowsAreFound(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const guests, cancelled = 24, 10
		p := newPlace(t, srv)
		everyone := users(contracts.RecipientRestaurantUser, guests)
		p.directory(everyone...)
		rules := writeRules(t, "version: 1\nevents:\n  LATER: {RESTAURANT_USER: {channels: [pigeon]}}\n")
		tell := func(id string) {
			t.Helper()
			p.publish(event(id, "LATER", func(e *contracts.Event) {
				e.RecipientType, e.NotBefore = contracts.RecipientRestaurantUser, time.Now().Add(time.Hour)
			}))
		}
		n := p.start(&pigeon{}, func(c *Config) { c.Rules = rules })
		tell("another")
		tell("planned")
		tell("without a plan")
		elapse(2 * time.Minute) // until it is certain whom they concern
		plans := check.Must(contracts.NotifyPlanSubject("without a plan"))(t)
		check.OK(t, check.Must(p.js.Stream(t.Context(), contracts.StreamNotifications))(t).Purge(t.Context(), jetstream.WithPurgeSubject(plans)))

		for _, of := range everyone[:cancelled] {
			for _, again := range []bool{false, true} {
				got, err := n.Cancel(t.Context(), Cancellation{EventID: "planned", RecipientType: of.RecipientType, UserID: of.UserID})
				check.That(t, err == nil && got.Suppressed == 1 && got.Again == again, "%s: %+v, %v", of.UserID, got, err)
			}
			check.Must(n.Cancel(t.Context(), Cancellation{EventID: "without a plan", RecipientType: of.RecipientType, UserID: of.UserID}))(t)
		}
		for _, tc := range []struct {
			q    Query
			want int
		}{
			{Query{}, 3 * guests},
			{Query{EventID: "without a plan"}, guests},
			{Query{EventID: "planned"}, guests},
			{Query{UserID: "u7"}, 3},
			{Query{EventID: "without a plan", State: deliveries.Suppressed}, cancelled},
		} {
			for tc.q.Limit = 1; tc.q.Limit <= tc.want; tc.q.Limit++ {
				got := map[string]bool{}
				for tc.q.Cursor = ""; ; {
					page := check.Must(n.Notifications(t.Context(), tc.q))(t)
					for _, row := range page.Notifications {
						got[row.EventID+" "+row.UserID] = true
					}
					if tc.q.Cursor = page.Next; page.Next == "" {
						break
					}
				}
				check.Same(t, fmt.Sprintf("rows of %q %q %q by %d", tc.q.UserID, tc.q.EventID, tc.q.State, tc.q.Limit), len(got), tc.want)
			}
		}
		got, err := n.Cancel(t.Context(), Cancellation{EventID: "without a plan"})
		check.That(t, err == nil && got.Suppressed == guests, "%+v, %v", got, err)
	})
}

// A notifier starts when an answer about each of its streams is lost: the first, of the preparation, or a later one.
func TestStartThroughLostMessages(t *testing.T) {
	for nth := range 5 {
		natstest.RunBubble(t, fmt.Sprint(nth), func(t *testing.T, srv *natsrun.Server) {
			p := newPlace(t, srv)
			consumers := contracts.Consumers(contracts.AssetOptions{Channels: []string{"pigeon"}, Services: []string{contracts.ServiceNotifier}})
			check.OK(t, check.Err(contracts.ApplyConsumers(t.Context(), p.js, consumers, contracts.ApplyOptions{})))
			proxy := natstest.NewProxy(t, srv)
			nc, _ := natstest.Connect(t, srv, proxy.Through())
			asked := map[string]int{}
			proxy.Hit(func(m natstest.Frame) bool {
				asked[m.Subject]++
				return strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO.") && asked[m.Subject] == nth+1
			}, natstest.ReplyLost, 100)
			cfg := config(&pigeon{}, writeRules(t, testRules))
			cfg.CreateAssets = false
			n := check.Must(Start(t.Context(), nc, cfg))(t)
			check.OK(t, n.Stop())
		})
	}
}

// TestRowsOfAnErasedUserEnd checks that a row that is not sent because its user was erased is listed as suppressed, though it has no record,
// so that nobody waits for it.
func TestRowsOfAnErasedUserEnd(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := newPlace(t, srv)
		guests := users(contracts.RecipientRestaurantUser, 2)
		d := p.directory(guests...)
		rules := writeRules(t, "version: 1\nevents:\n  TOLD: {RESTAURANT_USER: {channels: [inapp, pigeon]}}\n")
		n := p.start(&pigeon{}, func(c *Config) { c.Rules = rules })
		check.Must(d.Forget(t.Context(), guests[0].RecipientType, guests[0].UserID))(t)
		p.publish(event("e", "TOLD", func(e *contracts.Event) { e.Recipients = guests }))
		elapse(time.Minute)
		page := check.Must(n.Notifications(t.Context(), Query{EventID: "e"}))(t)
		check.Same(t, "rows", len(page.Notifications), 4)
		for _, row := range page.Notifications {
			erased := row.State == deliveries.Suppressed && row.Reason == deliveries.ReasonErased
			check.That(t, row.State.Ended() && erased == (row.UserID == guests[0].UserID), "%s by %s: %s %s", row.UserID, row.Channel, row.State, row.Reason)
		}
	})
}
