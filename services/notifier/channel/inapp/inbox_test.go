package inapp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
)

func open(t *testing.T, srv *natsrun.Server, configure ...func(*deliveries.Store)) (*inapp.Inbox, jetstream.JetStream) {
	t.Helper()
	js, records := recordtest.Open(t, srv)
	store := deliveries.New(records)
	for _, change := range configure {
		change(store)
	}
	return inapp.New(js, records, store), js
}

func message(user, event string, at time.Time) channel.Message {
	return channel.Message{
		CreatedAt: at, EventID: event, EventType: "X", ID: "ntf_" + event, Payload: []byte(`{"a":1}`), RecipientType: "CUSTOMER", Template: "x", UserID: user,
	}
}

const day = 24 * time.Hour

func send(t *testing.T, b *inapp.Inbox, m channel.Message) {
	t.Helper()
	receipt, err := b.Send(t.Context(), m)
	check.Require(t, err == nil && receipt.Delivered, "%+v: %v", receipt, err)
}

// Sent again, by many at once, and after the user has read it: the item is there once, as the user left it. Reading makes no consumer.
func TestAnItemIsThereOnce(t *testing.T) {
	t.Parallel()
	b, js := open(t, natstest.Server(t))
	m := message("u/1", "e", time.Now())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { send(t, b, m) })
	}
	all.Wait()
	check.OK(t, check.Err(b.Mark(t.Context(), "CUSTOMER", "u/1", "e", inapp.Read)))
	send(t, b, m)
	page, err := b.Page(t.Context(), "CUSTOMER", "u/1", inapp.ListOptions{})
	items := page.Items
	check.That(t,
		err == nil && len(items) == 1 && items[0].State == inapp.Read && items[0].ID == "ntf_e" && string(items[0].Payload) == `{"a":1}`,
		"%+v: %v", items, err)
	check.Equal(t, check.Must(js.Stream(t.Context(), "KV_inbox"))(t).CachedInfo().State.Consumers, 0, "consumers")
}

// Items of one event have what their messages have, however alike those are.
func TestItemsHaveTheFieldsOfTheirMessages(t *testing.T) {
	t.Parallel()
	b, _ := open(t, natstest.Server(t))
	at, payload := time.Now().UTC(), json.RawMessage(`{"a":1}`)
	for i, change := range []func(*channel.Message){
		func(*channel.Message) {},
		func(m *channel.Message) { m.ID = `i"d` },
		func(m *channel.Message) { m.Category = "c" },
		func(m *channel.Message) { m.CreatedAt = at.Add(time.Second) },
		func(m *channel.Message) { m.EventID = "f" },
		func(m *channel.Message) { m.EventType = "Y" },
		func(m *channel.Message) { m.Locale = "de" },
		func(m *channel.Message) { m.Payload = []byte(`{"a":2}`) },
		func(m *channel.Message) { m.Payload = nil },
		func(m *channel.Message) { m.Priority = channel.UrgencyCritical },
		func(m *channel.Message) { m.RecipientType = "ADMIN" },
		func(m *channel.Message) { m.Template = "y" },
	} {
		m := message(fmt.Sprint("u", i), "e", at)
		m.Payload = payload
		change(&m)
		send(t, b, m)
		item := check.Must(b.Get(t.Context(), m.RecipientType, m.UserID, m.EventID))(t)
		until := time.Until(item.ExpiresAt)
		check.That(t, until > 89*day && until <= 90*day, "it expires in %s", until)
		want := check.Must(json.Marshal(inapp.Item{
			Category: m.Category, CreatedAt: m.CreatedAt, EventID: m.EventID, EventType: m.EventType, ExpiresAt: item.ExpiresAt, ID: m.ID,
			Locale: m.Locale, Payload: m.Payload, Priority: m.Priority, RecipientType: m.RecipientType,
			State: inapp.Unread, StateAt: m.CreatedAt, Template: m.Template,
		}))(t)
		check.Equal(t, string(check.Must(json.Marshal(item))(t)), string(want), "the item")
	}
}

// Two mark an item at the same time: both are told that they did, and one of the states holds.
func TestMarksDoNotGetLost(t *testing.T) {
	t.Parallel()
	b, _ := open(t, natstest.Server(t))
	send(t, b, message("u", "e", time.Now()))
	var all sync.WaitGroup
	for _, state := range []inapp.State{inapp.Read, inapp.Archived, inapp.Read, inapp.Archived} {
		all.Go(func() {
			check.ErrorIs(t, check.Err(b.Mark(t.Context(), "CUSTOMER", "u", "e", state)), nil)
		})
	}
	all.Wait()
	item, err := b.Get(t.Context(), "CUSTOMER", "u", "e")
	check.That(t, err == nil && item.State != inapp.Unread, "%+v: %v", item, err)
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	b, _ := open(t, natstest.Server(t))
	check.ErrorIs(t, check.Err(b.Mark(t.Context(), "CUSTOMER", "u", "e", inapp.Read)), inapp.ErrNotFound)
	check.That(t, check.Err(b.Page(t.Context(), "CUSTOMER", "u", inapp.ListOptions{Limit: -1})) != nil, "a negative limit was accepted")
	for name, payload := range map[string]string{"too large": `"` + strings.Repeat("x", 2<<20) + `"`, "no JSON": "{"} {
		m := message("u", "bad", time.Now())
		m.Payload = []byte(payload)
		_, err := b.Send(t.Context(), m)
		check.That(t, channel.Of("", err).Kind == channel.KindRejected, "%s: %v", name, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Send(ctx, message("u", "e", time.Now()))
	failure := channel.Of("", err)
	check.That(t, failure.Kind == channel.KindTimeout && failure.Temporary() && failure.Unsure(), "%v", err)
	check.That(t, check.Err(b.Counts(ctx, "CUSTOMER", "u")) != nil, "a list that never began was taken for an empty one")
}

// An item is removed when it is old, also when it was read in the meantime.
func TestItemsAreRemovedWhenTheyAreOld(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b, _ := open(t, srv, func(s *deliveries.Store) { s.ItemKeep = 5 * day })
		send(t, b, message("u", "e", time.Now()))
		natstest.Pass(3 * day)
		check.OK(t, check.Err(b.Mark(t.Context(), "CUSTOMER", "u", "e", inapp.Read)))
		natstest.Pass(day)
		check.ErrorIs(t, check.Err(b.Get(t.Context(), "CUSTOMER", "u", "e")), nil)
		natstest.Pass(2 * day)
		check.ErrorIs(t, check.Err(b.Get(t.Context(), "CUSTOMER", "u", "e")), inapp.ErrNotFound)
	})
}

// An item goes at its own time, by default after 90 days, wherever it is marked in between.
func TestItemsAreKeptUntilTheirTime(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b, js := open(t, srv)
		kept := func() time.Duration {
			key := check.Must(contracts.InboxKey("CUSTOMER", "u", "e"))(t)
			stream := check.Must(js.Stream(t.Context(), "KV_"+contracts.BucketInbox))(t)
			stored := check.Must(stream.GetLastMsgForSubject(t.Context(), "$KV."+contracts.BucketInbox+"."+key))(t)
			return check.Must(time.ParseDuration(stored.Header.Get(jetstream.MsgTTLHeader)))(t)
		}
		send(t, b, message("u", "e", time.Now()))
		check.Equal(t, kept(), 90*day)
		natstest.Pass(day)
		check.OK(t, check.Err(b.Mark(t.Context(), "CUSTOMER", "u", "e", inapp.Read)))
		check.Equal(t, kept(), 89*day)
	})
}

// One item that cannot be read hides no other, and is reported.
func TestAnUnreadableItem(t *testing.T) {
	t.Parallel()
	reported := ""
	b, js := open(t, natstest.Server(t), func(s *deliveries.Store) {
		s.Unreadable = func(_ context.Context, r kvrecord.Record, _ error) { reported = r.Subject }
	})
	for _, event := range []string{"a", "b", "c"} {
		send(t, b, message("ada", event, time.Now()))
	}
	key := check.Must(contracts.InboxKey("CUSTOMER", "ada", "b"))(t)
	check.OK(t, check.Err(js.Publish(t.Context(), "$KV.inbox."+key, []byte("{"))))
	page, err := b.Page(t.Context(), "", "ada", inapp.ListOptions{})
	check.That(t, err == nil && len(page.Items) == 2 && page.Counts.Unread == 2 && reported == "$KV.inbox."+key,
		"%+v, %v; reported %q", page, err, reported)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wantItems wants the next items of a feed.
func wantItems(t *testing.T, f *inapp.Feed, want ...string) {
	t.Helper()
	for _, id := range want {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		item, err := f.Next(ctx)
		cancel()
		check.Require(t, err == nil && item.EventID == id, "got %q, %v; want %s", item.EventID, err, id)
	}
}

// wantNothing wants that there is nothing to tell.
func wantNothing(t *testing.T, f *inapp.Feed, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	item, err := f.Next(ctx)
	check.Require(t, errors.Is(err, context.DeadlineExceeded), "got %+v, %v; want nothing", item, err)
}

// through is an inbox whose connection goes through a proxy.
func through(t *testing.T, p *natstest.Proxy, srv *natsrun.Server) *inapp.Inbox {
	t.Helper()
	_, js := natstest.Connect(t, srv, p.Through(), nats.ReconnectWait(time.Second))
	return inapp.New(js, recordtest.Client(t, js), nil)
}

// A feed that was cut off delivers the changes of that time once when it is connected again, however often its reader stops
// waiting in the meantime. It also delivers the changes after a restart of the server.
func TestFeedThatWasCutOffMissesNothing(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b, _ := open(t, srv)
		p := natstest.NewProxy(t, srv)
		f := check.Must(through(t, p, srv).Follow(t.Context(), "CUSTOMER", "u", 0))(t)
		defer f.Close()
		send(t, b, message("u", "before", time.Now()))
		wantItems(t, f, "before")
		p.Cut()
		send(t, b, message("u", "between", time.Now()))
		send(t, b, message("other", "not-mine", time.Now()))
		p.Slow(time.Second)
		p.Heal()
		for range 300 { // heartbeats, in the middle of which it is connected again
			wantNothing(t, f, 100*time.Millisecond)
		}
		p.Slow(0)
		wantItems(t, f, "between")
		wantNothing(t, f, time.Minute)
		check.OK(t, srv.Restart(t.Context()))
		natstest.Pass(10 * time.Second)
		send(t, b, message("u", "after", time.Now()))
		wantItems(t, f, "after")
		wantNothing(t, f, time.Minute)
	})
}

// A feed that is not read for long drops the changes that it cannot hold, and reads them again.
func TestFeedThatIsReadSlowlyMissesNothing(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b, _ := open(t, srv)
		f := check.Must(through(t, natstest.NewProxy(t, srv), srv).Follow(t.Context(), "CUSTOMER", "u", 0))(t)
		defer f.Close()
		var want []string
		for i := range 600 { // more than twice its capacity
			want = append(want, fmt.Sprintf("e%03d", i))
			send(t, b, message("u", want[i], time.Now()))
		}
		natstest.Pass(time.Second) // all have come, or were dropped
		wantItems(t, f, want...)
		wantNothing(t, f, time.Minute)
	})
}
