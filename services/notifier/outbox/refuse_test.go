package outbox

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// What cannot be published is set aside with the reason, and the others go on, those with the same key too.
func TestWhatCannotBePublishedIsSetAside(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	insert := `INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id, payload, headers, recipients, restaurant_id, user_id)
		VALUES ($1, $2, 'RESTAURANT', '5', $3, $4, $5, $6, $7)`
	long := `"` + strings.Repeat("x", maxBytes) + `"`
	nearly := `"` + strings.Repeat("x", maxBytes-100) + `"` // too large with what is around it
	for id, row := range map[string][]any{
		"large":      {"X", long, nil, nil, nil, ""},
		"nearly":     {"X", nearly, nil, nil, nil, ""},
		"no type":    {"", "1", nil, nil, nil, ""},
		"header":     {"X", "1", `{"a":"b\r\nNats-Rollup: all"}`, nil, nil, ""},
		"server's":   {"X", "1", `{"Nats-Rollup":"all"}`, nil, nil, ""},
		"no headers": {"X", "1", `[1]`, nil, nil, ""},
		"recipients": {"X", "1", nil, `{"a":1}`, nil, ""},
		"restaurant": {"X", "1", nil, nil, `{}`, ""},
		"user":       {"X", "1", nil, nil, nil, strings.Repeat("x", 1000)},
	} {
		p.exec(insert, append([]any{id}, row...)...)
	}
	other := event("taken", "5")
	p.insert(event("good", "5"), other)
	other.Payload = []byte(`{"guests":5}`)
	publisher, err := contracts.NewPublisher(p.js, contracts.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := publisher.Publish(t.Context(), other.Event); err != nil {
		t.Fatal(err)
	}
	r, _ := p.relay(nil)
	await(t, "all are out of the way", func() bool { s := r.Stats(); return s.Published == 1 && s.SetAside == 10 })
	if diff := cmp.Diff([]string{"taken", "good"}, p.stored()); diff != "" {
		t.Error(diff)
	}
	rows, err := p.pool.Query(t.Context(), "SELECT event_id, coalesce(reason, '') FROM event_outbox WHERE state = 'set_aside'")
	if err != nil {
		t.Fatal(err)
	}
	var id, reason string
	wants := map[string]string{
		"large": "too many", "nearly": "maximum", "no type": "/event_type", "header": "line break", "server's": "Nats-",
		"no headers": "want an object of strings", "recipients": "recipients", "restaurant": "/restaurant_id", "user": "/user_id", "taken": "another event",
	}
	if _, err := pgx.ForEachRow(rows, []any{&id, &reason}, func() error {
		if want, ok := wants[id]; !ok || !strings.Contains(reason, want) {
			t.Errorf("%q is set aside for %q, want %q", id, reason, want)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	p.exec("UPDATE event_outbox SET event_type = 'X' WHERE event_id = 'no type'")
	if n, err := Requeue(t.Context(), p.pool, "no type", "good"); n != 1 || err != nil {
		t.Errorf("requeued %d, %v", n, err)
	}
	await(t, "the repaired one is published", func() bool { return r.Stats().Published == 2 })
	if n, err := Requeue(t.Context(), p.pool); n != 9 || err != nil {
		t.Errorf("requeued %d, %v", n, err)
	}
	await(t, "the others are set aside again", func() bool { return r.Stats().SetAside == 19 })
}

// One that the server does not take holds up those with the same key for a while, nobody else, and not for ever.
func TestRefusedEventHoldsUpItsKeyOnlyAndNotForEver(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	p.stream(func(c *jetstream.StreamConfig) { c.Subjects = []string{"events.RESTAURANT.>"} }) // nobody takes the others
	bad := event("bad", "5")
	bad.AggregateType, bad.OrderingKey = "NOBODY", "k"
	behind := event("behind", "")
	behind.OrderingKey = "k"
	p.insert(bad)
	p.insert(behind)
	p.insert(events("other", 64, 2)...) // in its lane too
	r, _ := p.relay(func(c *Config) { c.Poll = 100 * time.Millisecond })
	await(t, "the others are published", func() bool { return r.Stats().Published == 128 })
	await(t, "it was refused", func() bool { return query[int](p, "SELECT attempts FROM event_outbox WHERE event_id = 'bad'") > 0 })
	if n := p.count("pending"); n != 2 {
		t.Errorf("%d rows wait, want 2", n)
	}
	p.exec("UPDATE event_outbox SET attempts = 9, retry_at = now() WHERE event_id = 'bad'") // as if some minutes had passed
	await(t, "it is set aside, and what was behind it is published", func() bool { s := r.Stats(); return s.Published == 129 && s.SetAside == 1 })
	if reason := query[string](p, "SELECT reason FROM event_outbox WHERE event_id = 'bad'"); reason == "" {
		t.Error("no reason is kept")
	}
}

// A message that is lost on its way, and an acknowledgement that is lost on its way back, hold up what is behind them with the
// same key: nothing overtakes.
func TestNothingOvertakesAMessageThatWasLost(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]natstest.Fault{"message": natstest.WriteLost, "acknowledgement": natstest.ReplyLost} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			proxy := natstest.NewProxy(t, p.srv)
			which := func(f natstest.Frame) bool { return bytes.Contains(f.Payload(), []byte(`"event_id":"e-1-1"`)) }
			proxy.Hit(which, how, 1)
			all := events("e", 3, 5)
			p.insert(all...)
			again := make(chan bool, 1) // whether the stream had it when it was acknowledged
			r, _ := p.relay(func(c *Config) {
				c.Hooks.Published = func(one Published) {
					if one.EventID == "e-1-1" {
						again <- one.Duplicate
					}
				}
				c.NATSOptions = []nats.Option{proxy.Through()}
				c.PublishTimeout = 4 * time.Second // once for the lost one; a slow machine answers all others
			})
			await(t, "all are published", func() bool { return r.Stats().Published == int64(len(all)) })
			checkOrder(t, p.stored(), all)
			if n := r.Stats().Duplicates; (n == 1) != (how == natstest.ReplyLost) {
				t.Errorf("%d were in the stream", n)
			}
			if had := <-again; had != (how == natstest.ReplyLost) {
				t.Errorf("it was in the stream: %t", had)
			}
		})
	}
}

// A row that waits to be tried again is not read, nor is what is behind it with its key. What is beside it is.
func TestRowsBehindOneThatWaitsAreNotRead(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	keyed, alone := func(id string) Event { return event(id, "5") }, func(id string) Event { return event(id, "") }
	for _, e := range []Event{keyed("waits"), keyed("behind"), alone("waits-alone"), alone("alone")} {
		p.insert(e)
	}
	p.exec("UPDATE event_outbox SET lane = 7") // all in one
	p.exec("UPDATE event_outbox SET retry_at = now() + interval '1 hour' WHERE event_id LIKE 'waits%'")
	r, err := New(t.Context(), p.config())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := r.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.abandon(t.Context(), tx)
	claimed, rows, _, err := r.claim(t.Context(), tx, 0)
	if err != nil || len(claimed) != 1 || len(rows) != 1 || rows[0].EventID != "alone" {
		t.Errorf("claimed %v with %d rows, %v: want lane 7 and one", claimed, len(rows), err)
	}
	if wait, err := r.idle(t.Context()); err != nil || wait > 2*time.Second {
		t.Errorf("it would rest for %s though there is work, %v", wait, err)
	}
}
