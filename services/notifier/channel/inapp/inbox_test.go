package inapp_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
)

func open(t *testing.T, srv *natsrun.Server, cfg inapp.Config) (*inapp.Inbox, jetstream.JetStream) {
	t.Helper()
	_, js := natstest.Connect(t, srv)
	assets := contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30})
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, assets, contracts.ApplyOptions{})))
	b, err := inapp.Open(t.Context(), js, recordtest.Client(t, js), cfg)
	check.OK(t, err)
	return b, js
}

func message(user, event string, at time.Time) channel.Message {
	return channel.Message{
		CreatedAt: at, EventID: event, EventType: "X", ID: "ntf_" + event, Payload: []byte(`{"a":1}`), RecipientType: "CUSTOMER", Template: "x", UserID: user,
	}
}

func send(t *testing.T, b *inapp.Inbox, m channel.Message) {
	t.Helper()
	if receipt, err := b.Send(t.Context(), m); err != nil || !receipt.Delivered {
		t.Fatalf("%+v: %v", receipt, err)
	}
}

// Sent again, by many at once, and after the user has read it: the item is there once, as the user left it.
func TestAnItemIsThereOnce(t *testing.T) {
	t.Parallel()
	b, _ := open(t, natstest.Server(t), inapp.Config{})
	m := message("u/1", "e", time.Now())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { send(t, b, m) })
	}
	all.Wait()
	check.OK(t, check.Err(b.Mark(t.Context(), "CUSTOMER", "u/1", "e", inapp.Read)))
	send(t, b, m)
	items, err := b.List(t.Context(), "CUSTOMER", "u/1", inapp.ListOptions{})
	if err != nil || len(items) != 1 || items[0].State != inapp.Read || items[0].ID != "ntf_e" || string(items[0].Payload) != `{"a":1}` {
		t.Errorf("%+v: %v", items, err)
	}
}

func TestStatesAndCounts(t *testing.T) {
	t.Parallel()
	b, _ := open(t, natstest.Server(t), inapp.Config{})
	begin := time.Now()
	for i := range 25 {
		send(t, b, message("u", fmt.Sprintf("e%02d", i), begin.Add(time.Duration(i)*time.Second)))
	}
	send(t, b, message("another", "e00", begin))
	for i, state := range []inapp.State{inapp.Read, inapp.Read, inapp.Archived, inapp.Archived, inapp.Archived, inapp.Unread} {
		if item, err := b.Mark(t.Context(), "CUSTOMER", "u", fmt.Sprintf("e%02d", i), state); err != nil || item.State != state {
			t.Fatalf("%+v: %v", item, err)
		}
	}
	counts, err := b.Counts(t.Context(), "CUSTOMER", "u")
	if err != nil || counts != (inapp.Counts{Archived: 3, Read: 2, Unread: 20}) {
		t.Errorf("%+v: %v", counts, err)
	}
	newest, err := b.List(t.Context(), "CUSTOMER", "u", inapp.ListOptions{Limit: 3})
	if err != nil || len(newest) != 3 || newest[0].EventID != "e24" || newest[2].EventID != "e22" {
		t.Errorf("%+v: %v", newest, err)
	}
	archived, err := b.List(t.Context(), "CUSTOMER", "u", inapp.ListOptions{States: []inapp.State{inapp.Archived}})
	if err != nil || len(archived) != 3 || archived[0].EventID != "e04" {
		t.Errorf("%+v: %v", archived, err)
	}
	if counts, err := b.Counts(t.Context(), "CUSTOMER", "nobody"); err != nil || counts != (inapp.Counts{}) {
		t.Errorf("%+v: %v", counts, err)
	}
}

// Two mark an item at the same time: both are told that they did, and one of the states holds.
func TestMarksDoNotGetLost(t *testing.T) {
	t.Parallel()
	b, _ := open(t, natstest.Server(t), inapp.Config{})
	send(t, b, message("u", "e", time.Now()))
	var all sync.WaitGroup
	for _, state := range []inapp.State{inapp.Read, inapp.Archived, inapp.Read, inapp.Archived} {
		all.Go(func() {
			check.Is(t, check.Err(b.Mark(t.Context(), "CUSTOMER", "u", "e", state)), nil)
		})
	}
	all.Wait()
	if item, err := b.Get(t.Context(), "CUSTOMER", "u", "e"); err != nil || item.State == inapp.Unread {
		t.Errorf("%+v: %v", item, err)
	}
}

func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	b, js := open(t, natstest.Server(t), inapp.Config{})
	if _, err := b.Mark(t.Context(), "CUSTOMER", "u", "e", inapp.Read); !errors.Is(err, inapp.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if _, err := b.Mark(t.Context(), "CUSTOMER", "u", "e", "seen"); !errors.Is(err, inapp.ErrState) {
		t.Errorf("%v", err)
	}
	if _, err := b.List(t.Context(), "CUSTOMER", "u", inapp.ListOptions{Limit: -1}); err == nil {
		t.Error("a negative limit was accepted")
	}
	if _, err := inapp.Open(t.Context(), js, recordtest.Client(t, js), inapp.Config{Keep: 1500 * time.Millisecond}); err == nil {
		t.Error("half a second was accepted")
	}
	for name, payload := range map[string]string{"too large": `"` + strings.Repeat("x", 2<<20) + `"`, "no JSON": "{"} {
		m := message("u", "bad", time.Now())
		m.Payload = []byte(payload)
		if _, err := b.Send(t.Context(), m); channel.Of("", err).Kind != channel.KindRejected {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Send(ctx, message("u", "e", time.Now()))
	if failure := channel.Of("", err); failure.Kind != channel.KindTimeout || !failure.Temporary() || !failure.Unsure() {
		t.Errorf("%v", err)
	}
	if _, err := b.Counts(ctx, "CUSTOMER", "u"); err == nil {
		t.Error("a list that never began was taken for an empty one")
	}
}

// An item is removed when it is old, also when it was read in the meantime.
func TestItemsAreRemovedWhenTheyAreOld(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b, _ := open(t, srv, inapp.Config{Keep: time.Minute})
		send(t, b, message("u", "e", time.Now()))
		elapse(40 * time.Second)
		check.OK(t, check.Err(b.Mark(t.Context(), "CUSTOMER", "u", "e", inapp.Read)))
		elapse(15 * time.Second)
		if _, err := b.Get(t.Context(), "CUSTOMER", "u", "e"); err != nil {
			t.Errorf("before its time: %v", err)
		}
		elapse(10 * time.Second)
		if _, err := b.Get(t.Context(), "CUSTOMER", "u", "e"); !errors.Is(err, inapp.ErrNotFound) {
			t.Errorf("after its time: %v", err)
		}
	})
}

// elapse lets fake time pass.
func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // inside a bubble only
