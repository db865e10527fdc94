package notifier

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// rowsOf are the rows that a query lists, as "<channel>/<address> <state> <reason>".
func (w *web) rowsOf(query string) string {
	w.Helper()
	status, body := w.call(http.MethodGet, "/v1/notifications?"+query, "")
	var page Page
	if err := json.Unmarshal([]byte(body), &page); err != nil || status != http.StatusOK {
		w.Fatalf("%s: %d %s", query, status, body)
	}
	var all []string
	ids := map[string]bool{}
	for _, n := range page.Notifications {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s/%s %s %s", n.Channel, n.Address, n.State, n.Reason)))
		ids[n.MessageID] = true
	}
	if len(ids) != len(all) {
		w.Errorf("%d rows have %d message ids", len(all), len(ids))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// The rows of a user's addresses are listed with the one that was split for them, are selected by address, sent again one by one,
// and cancelled with it.
func TestSeveralAddresses(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	user := users(contracts.RecipientRestaurantUser, 1)[0]
	user.Addresses = map[string]string{"pigeon": "roof"}
	user.Endpoints = map[string]map[string]contracts.Endpoint{"pigeon": {"tower": {Address: "tower"}}}
	p.directory(user)
	var mood atomic.Value
	mood.Store(channel.KindRejected)
	birds := moody(&mood)
	n := p.start(birds, listening)
	w := newWeb(t, n)
	tell := func(id string) {
		p.publish(event(id, "RESERVATION_REQUESTED", func(e *contracts.Event) { e.RecipientType = contracts.RecipientRestaurantUser }))
	}
	tell("evt-001")
	p.settled(4)
	check.Same(t, "rows", w.rowsOf("event=evt-001"),
		"inapp/ delivered, pigeon/ split, pigeon/main failed rejected, pigeon/tower failed rejected")
	check.Same(t, "rows of the user", w.rowsOf("user=u0&channel=pigeon&address=tower"), "pigeon/tower failed rejected")
	check.Same(t, "failed rows", w.rowsOf("state=failed"), "pigeon/main failed rejected, pigeon/tower failed rejected")
	mood.Store(channel.Kind(""))
	check.Same(t, "replayed", w.replay("user=u0&channel=pigeon&address=tower").Replayed, 1)
	p.until("the tower has it", func() bool { return w.rowsOf("event=evt-001&address=tower") == "pigeon/tower sent" })
	check.Same(t, "the others", w.rowsOf("event=evt-001&address=main"), "inapp/ delivered, pigeon/main failed rejected")

	mood.Store(channel.KindUnavailable)
	tell("evt-002")
	p.until("both were tried", func() bool {
		return w.rowsOf("event=evt-002&channel=pigeon&state=pending") == "pigeon/main pending unavailable, pigeon/tower pending unavailable"
	})
	status, body := w.call(http.MethodDelete, "/v1/events/evt-002", "")
	var done Cancelled
	check.OK(t, json.Unmarshal([]byte(body), &done))
	check.That(t, status == http.StatusOK && done.Suppressed == 2 && done.Sent == 1 && done.Ended == 0, "%d %s", status, body)
	check.Same(t, "rows", w.rowsOf("event=evt-002&channel=pigeon"),
		"pigeon/ split, pigeon/main suppressed cancelled, pigeon/tower suppressed cancelled")

	// Of a row whose process died those of the addresses are cancelled before they are stored.
	mood.Store(channel.Kind(""))
	p.publish(event("evt-003", "RESERVATION_REQUESTED", func(e *contracts.Event) {
		e.RecipientType, e.NotBefore = contracts.RecipientRestaurantUser, time.Now().Add(time.Hour)
	}))
	p.until("it waits", func() bool { return w.rowsOf("event=evt-003&channel=pigeon") == "pigeon/ deferred not_before" })
	const key = "evt-003.pigeon.RESTAURANT_USER.u0"
	split, err := p.book.Get(t.Context(), key)
	check.OK(t, err)
	split.State, split.Reason, split.Addresses = deliveries.Split, "", []string{"main", "tower"}
	check.OK(t, p.book.Put(t.Context(), key, split))
	check.Same(t, "rows", w.rowsOf("event=evt-003&channel=pigeon"), "pigeon/ split, pigeon/main pending, pigeon/tower pending")
	check.OK(t, check.Err(n.Cancel(t.Context(), Cancellation{EventID: "evt-003"})))
	check.Same(t, "rows", w.rowsOf("event=evt-003&channel=pigeon"),
		"pigeon/ split, pigeon/main suppressed cancelled, pigeon/tower suppressed cancelled")
}
