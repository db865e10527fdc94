package api_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/hold"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stored is a notification that a test stored.
type stored struct {
	contracts.Notification

	state    deliveries.State // "" without a record
	missing  bool             // from the stream
	unstored bool             // it was delivered at once
}

// name tells notifications apart.
func name(event, channel string, kind contracts.RecipientType, user, address string, state deliveries.State) string {
	return fmt.Sprintf("%s %s %s %s %s %s", event, channel, kind, user, address, state)
}

// fixture is a stream of notifications, and the notifications that were stored in it.
type fixture struct {
	*testing.T

	js     jetstream.JetStream
	random *rand.Rand
	all    []stored
	store  *deliveries.Store
}

const (
	digestID = "digest:c:2026-01-01T00:00:00Z"
	nextID   = "digest:c:2026-01-01T01:00:00Z"
	lostPlan = "e4"
)

// put stores a message.
func (p *fixture) put(subject string, body any) {
	p.Helper()
	check.OK(p, check.Err(p.js.Publish(p.Context(), subject, check.Must(json.Marshal(body))(p))))
}

// records begins the subjects of the bucket of deliveries.
const records = "$KV." + contracts.BucketDeliveries + "."

// record stores the record of a notification.
func (p *fixture) record(n contracts.Notification, d *deliveries.Delivery) {
	p.Helper()
	check.OK(p, p.store.Put(p.Context(), check.Must(keys.Of(&n))(p), d))
}

// notification stores a notification, and a record of most: of all when recorded. Of some there is nothing but the item.
func (p *fixture) notification(n contracts.Notification, recorded bool) {
	p.Helper()
	if n.Channel == deliveries.Inbox && p.random.IntN(4) == 0 {
		p.record(n, &deliveries.Delivery{
			AtOnce: true, Attempts: []deliveries.Attempt{{Worker: "w"}}, Item: json.RawMessage(`{"id":"ntf_"}`), State: deliveries.Delivered,
		})
		p.all = append(p.all, stored{Notification: n, state: deliveries.Delivered, unstored: true})
		return
	}
	is := stored{Notification: n, missing: n.Address != "" && p.random.IntN(2) == 0} // its split has died, or not begun
	if !is.missing {
		p.put(check.Must(keys.Send(&n))(p), n)
	}
	if recorded || p.random.IntN(4) > 0 {
		states := []deliveries.State{deliveries.Delivered, deliveries.Failed, deliveries.Deferred, deliveries.Split}
		if n.Channel == deliveries.Inbox {
			states = states[:3]
		}
		d := deliveries.Delivery{State: states[p.random.IntN(len(states))]}
		if n.Address != "" {
			d.State = deliveries.Failed
		} else if d.State == deliveries.Split {
			d.Addresses = []string{"b", "main"}
		}
		is.state = d.State
		p.record(n, &d)
		for _, n.Address = range d.Addresses {
			p.notification(n, recorded)
		}
	}
	p.all = append(p.all, is)
}

// event stores the plan of an event, and some of its notifications: it may be on its way, and falls back for some.
func (p *fixture) event(id string) {
	p.Helper()
	route := rules.Route{Channels: []string{"inapp"}, Fallback: []string{"email", "sms"}}
	e := plan.Plan{
		Attempt: "a", EventID: id, EventType: "X", CreatedAt: time.Unix(1, 0).UTC(), Fingerprint: "f",
		Routes: map[contracts.RecipientType]rules.Route{"CUSTOMER": route, "ADMIN": route},
	}
	var entries []contracts.Recipient
	for _, kind := range []contracts.RecipientType{"CUSTOMER", "ADMIN"} {
		for u := range 8 {
			if p.random.IntN(3) > 0 {
				entries = append(entries, contracts.Recipient{RecipientType: kind, UserID: fmt.Sprintf("u/%d", u)})
			}
		}
	}
	if p.random.IntN(2) == 0 {
		e.Entries = entries
	} else {
		for some := range slices.Chunk(entries, 1+p.random.IntN(5)) {
			p.put(check.Must(keys.Page(id, e.Attempt, e.Pages))(p), map[string]any{"entries": some})
			e.Pages++
		}
	}
	if id != lostPlan {
		p.put(check.Must(keys.Plan(id))(p), e)
	}
	p.put(records+check.Must(keys.Event(id))(p), plan.Event{State: plan.StateExpanded})
	for _, entry := range entries {
		for _, channel := range slices.Concat(route.Channels, route.Fallback) {
			if p.random.IntN(3) > 0 {
				p.notification(e.Notification(entry, channel), id == lostPlan)
			}
		}
	}
}

// digest stores the digests of some users, who are not those of any event.
func (p *fixture) digest(id string) {
	p.Helper()
	for u := range 5 {
		n := contracts.Notification{
			Channel: "email", Collected: true, CreatedAt: time.Unix(1, 0).UTC(), EventID: id, EventType: "DIGEST",
			RecipientType: "AGENCY_USER", UserID: fmt.Sprintf("u/%d", u),
		}
		p.notification(n, false)
		key := check.Must(keys.Digest(id, n.Channel, n.RecipientType, n.UserID))(p)
		p.put(records+key, map[string]any{"items": []any{}, "members": ""})
	}
}

// others stores messages that are no notifications.
func (p *fixture) others() {
	p.Helper()
	of := &contracts.Notification{Channel: "inapp", RecipientType: "CUSTOMER", UserID: "u/1", EventID: "e1"}
	p.put(check.Must(keys.Replay(of, 1))(p), contracts.Notification{})
	p.put(records+check.Must(keys.CancelledUser("e1", "CUSTOMER", "u/1"))(p), map[string]any{})
	p.put("notify.send.inapp.CUSTOMER.someone.e1", "not a notification")
	p.put(records+"/endpoint.inapp.abc", map[string]any{})
}

func newFixture(t *testing.T, js jetstream.JetStream, seed uint64) *fixture {
	t.Helper()
	p := &fixture{T: t, js: js, random: rand.New(rand.NewPCG(seed, 0)), store: deliveries.New(recordtest.Client(t, js))}
	for e := range 5 {
		p.event(fmt.Sprint("e", e))
	}
	p.digest(digestID)
	p.digest(nextID)
	p.event(digestID) // events may be called like a digest
	p.others()
	return p
}

// query is any that can be asked.
func (p *fixture) query() api.Query {
	q := api.Query{}
	some := func(of int) bool { return p.random.IntN(of) == 0 }
	if some(2) {
		q.EventID = append([]string{digestID, nextID, "none", "*"}, "e0", "e1", "e2", "e3", lostPlan)[p.random.IntN(9)]
	}
	if some(3) {
		q.UserID = fmt.Sprintf("u/%d", p.random.IntN(9))
	}
	if some(4) {
		q.Channel = []string{"inapp", "email", "sms", "none"}[p.random.IntN(4)]
	}
	if some(4) {
		q.RecipientType = []contracts.RecipientType{"CUSTOMER", "AGENCY_USER"}[p.random.IntN(2)]
	}
	if some(4) {
		q.Address = []string{"b", "main"}[p.random.IntN(2)]
	}
	if some(3) {
		q.State = []deliveries.State{deliveries.Delivered, deliveries.Failed, deliveries.Pending}[p.random.IntN(3)]
	}
	return q
}

// want are the names of the notifications that a query is to find, in alphabetical order.
func (p *fixture) want(q api.Query) []string {
	names := []string{}
	for _, r := range p.all {
		state := cmp.Or(r.state, deliveries.Pending)
		byRecord := q.EventID == "" && q.UserID == "" && q.State != ""
		switch {
		case q.EventID != "" && q.EventID != r.EventID, q.UserID != "" && q.UserID != r.UserID,
			q.Channel != "" && q.Channel != r.Channel, q.RecipientType != "" && q.RecipientType != r.RecipientType,
			q.State != "" && q.State != state, byRecord && r.state == "",
			q.EventID == "" && q.UserID == "" && !byRecord && r.missing,
			q.EventID == lostPlan && q.UserID == "" && r.Channel == deliveries.Inbox, // only the plan knows of it
			q.Address != "" && (q.Address != cmp.Or(r.Address, "main") || state == deliveries.Split):
			continue
		}
		names = append(names, name(r.EventID, r.Channel, r.RecipientType, r.UserID, r.Address, state))
	}
	slices.Sort(names)
	return names
}

// got are the names of the notifications that a query finds in pages of a size, in their order.
func (p *fixture) got(d *api.API, q api.Query) []string {
	p.Helper()
	names := []string{}
	for {
		page, err := d.Notifications(p.Context(), q)
		check.Require(p, err == nil && len(page.Notifications) <= q.Limit+2, // those of addresses stay with the one that was split
			"%+v: a page of %d notifications: %v", q, len(page.Notifications), err)
		for _, n := range page.Notifications {
			names = append(names, name(n.EventID, n.Channel, n.RecipientType, n.UserID, n.Address, n.State))
		}
		if page.Next == "" {
			return names
		}
		check.Require(p, page.Next != q.Cursor, "%+v: the page goes on with itself", q)
		q.Cursor = page.Next
	}
}

// Any query finds the notifications that it selects, each once and always in the same order, in pages of any size.
func TestAQueryFindsItsNotificationsOnceInPagesOfAnySize(t *testing.T) {
	t.Parallel()
	seed := crash.Seed(t)
	js, _ := recordtest.Open(t, natstest.Server(t))
	p := newFixture(t, js, seed)
	d := openAPI(t, js)
	for range 150 {
		q := p.query()
		q.Limit = api.MaxLimit
		all := p.got(d, q)
		if want, got := p.want(q), slices.Sorted(slices.Values(all)); !slices.Equal(want, got) {
			t.Fatalf("seed %d: %+v finds %d notifications, want %d:\n%s\nwant\n%s", seed, q, len(got), len(want), strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for _, q.Limit = range []int{1, 2, 7} {
			if got := p.got(d, q); !slices.Equal(all, got) {
				t.Fatalf("seed %d: in pages of %d, %+v finds\n%s\nwant\n%s", seed, q.Limit, q, strings.Join(got, "\n"), strings.Join(all, "\n"))
			}
		}
	}
}

// The server looks through all subjects for a page that is filtered by a wildcard: nothing asks for one, and nothing makes a
// consumer.
func TestNoQueryPagesByAPartialWildcard(t *testing.T) {
	t.Parallel()
	seed := crash.Seed(t)
	srv := natstest.Server(t)
	direct, _ := recordtest.Open(t, srv)
	p := newFixture(t, direct, seed)
	proxy := natstest.NewProxy(t, srv)
	_, js := natstest.Connect(t, srv, proxy.Through())
	d := openAPI(t, js)
	var mu sync.Mutex
	var bad []string
	proxy.Filter(func(f natstest.Frame) natstest.Verdict {
		mu.Lock()
		defer mu.Unlock()
		body := string(f.Payload())
		filtered := strings.Contains(body, `"next_by_subj"`) && !strings.Contains(body, `"next_by_subj":">"`) && !strings.Contains(body, `"next_by_subj":"\u003e"`)
		if f.FromClient && (strings.Contains(f.Subject, ".DIRECT.GET.") && (filtered || strings.Contains(body, "*")) || strings.Contains(f.Subject, ".CONSUMER.CREATE.")) {
			bad = append(bad, f.Subject+" "+body)
		}
		return natstest.Relay
	})
	for range 50 {
		q := p.query()
		q.Limit = 10
		p.got(d, q)
	}
	for _, c := range []api.Cancellation{
		{EventID: "e1"}, {EventID: digestID}, {EventID: "e2", RecipientType: "CUSTOMER", UserID: "u/1"},
	} {
		check.ErrorIs(t, check.Err(d.Cancel(t.Context(), c)), nil)
	}
	check.ErrorIs(t, check.Err(d.Replay(t.Context(), api.Query{})), nil)
	mu.Lock()
	defer mu.Unlock()
	if len(bad) > 0 {
		t.Errorf("%d requests, among them %s", len(bad), bad[0])
	}
}

func TestCursorsThatWereNotGivenOutAreRefused(t *testing.T) {
	t.Parallel()
	js, _ := recordtest.Open(t, natstest.Server(t))
	newFixture(t, js, 1)
	d := openAPI(t, js)
	// "1" and "zz" are revisions, which were cursors for events before their notifications came in the order of the plan.
	for _, cursor := range []string{"0", "!", "p-", "p-1", "p--1-0", "p-0--1", "p-0-0-0", "-1", "d-", "d-0", "d-!", "i-", "i-0", "1", "zz"} {
		check.That(t, check.Err(d.Notifications(t.Context(), api.Query{EventID: "e1", Cursor: cursor})) != nil, "%q is taken", cursor)
	}
}

func openAPI(t *testing.T, js jetstream.JetStream) *api.API {
	t.Helper()
	records := recordtest.Client(t, js)
	return api.New(records, api.Config{
		Audit: audit.New(audit.Config{JetStream: js, Source: "notifier"}), Digests: hold.NewDigests(records), Deliveries: deliveries.New(records),
		Reader: plan.NewReader(records), Cancelled: check.Must(hold.OpenCancelled(t.Context(), js.Conn(), records))(t),
		Directory: recipient.NewDirectory(js, records),
	})
}
