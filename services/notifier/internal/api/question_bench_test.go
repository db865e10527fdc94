package api_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/audit"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/internal/cancel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/digest"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// audience is how many users each event of the benchmark has.
const audience = 100

// BenchmarkQuestions measures queries for one user among many rows of others: 1,000,000, or ROWS.
//
//	go test -run=- -bench=Questions -benchtime=20x ./internal/api
func BenchmarkQuestions(b *testing.B) {
	rows := 1_000_000
	if text := os.Getenv("ROWS"); text != "" {
		var err error
		rows, err = strconv.Atoi(text)
		check.OK(b, err)
	}
	srv := natstest.Server(b, func(c *natsrun.Config) {
		natsrun.ChangeOptions(c, func(o *server.Options) { o.JetStreamMaxStore = 16 << 30 })
	})
	nc, _ := natstest.Connect(b, srv)
	js := check.Must(jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4096)))(b)
	assets := contracts.Assets(contracts.AssetOptions{})
	check.OK(b, check.Err(contracts.Apply(b.Context(), js, assets, contracts.ApplyOptions{})))
	begun := time.Now()
	load(b, js, rows)
	b.Logf("%d rows were loaded in %s", rows, time.Since(begun).Round(time.Millisecond))
	d := openAPI(b, js)
	ask := func(name string, least int, f func(i int) (int, error)) {
		b.Run(name, func(b *testing.B) {
			i := 0
			for b.Loop() {
				got, err := f(i)
				check.Require(b, err == nil && got >= least, "%d rows, want %d: %v", got, least, err)
				i++
			}
		})
	}
	list := func(q api.Query) (int, error) {
		page, err := d.Notifications(b.Context(), q)
		return len(page.Notifications), err
	}
	ask("failed", 1, func(int) (int, error) { return list(api.Query{State: deliveries.Failed, Limit: 50}) })
	ask("delivered", 50, func(int) (int, error) { return list(api.Query{State: deliveries.Delivered, Limit: 50}) })
	ask("event", audience, func(i int) (int, error) {
		return list(api.Query{EventID: "event-" + strconv.Itoa(rows/audience/2+i)})
	})
	ask("user", 10, func(i int) (int, error) { return list(api.Query{UserID: userOf(rows, i)}) })
	ask("cancel", audience, func(i int) (int, error) {
		done, err := d.Cancel(b.Context(), api.Cancellation{EventID: "event-" + strconv.Itoa(rows/audience-1-i)})
		return done.Sent + done.Ended, err
	})
}

// userOf is the i-th recipient: each has ten rows.
func userOf(rows, i int) string { return "customer-" + strconv.Itoa(i%max(rows/10, 1)) }

// load stores rows, their records, their plans and their events. One row in a thousand has failed.
func load(b *testing.B, js jetstream.JetStream, rows int) {
	b.Helper()
	at := time.Now().UTC()
	put := func(subject string, err error, body any) {
		data, encodeErr := json.Marshal(body)
		if err == nil && encodeErr == nil {
			_, err = js.PublishMsgAsync(&nats.Msg{Subject: subject, Data: data}, jetstream.WithStallWait(time.Minute))
		}
		check.Require(b, err == nil && encodeErr == nil, "%v %v", err, encodeErr)
	}
	key := func(key string) string { return "$KV." + contracts.BucketDeliveries + "." + key }
	for e := range rows / audience {
		p := plan.Plan{
			Attempt: "a", CreatedAt: at, EventID: "event-" + strconv.Itoa(e), EventType: "RESERVATION_REQUESTED", Fingerprint: "f",
			Payload: []byte(`{"guests":4}`), Recipients: audience, Rows: audience, Rules: "r",
			Routes: map[contracts.RecipientType]rules.Route{contracts.RecipientCustomer: {Channels: []string{"email"}}},
		}
		for u := range audience {
			p.Entries = append(p.Entries, contracts.Recipient{RecipientType: contracts.RecipientCustomer, UserID: userOf(rows, e*audience+u)})
		}
		subject, err := contracts.NotifyPlanSubject(p.EventID)
		put(subject, err, p)
		record, err := contracts.EventRecordKey(p.EventID)
		put(key(record), err, plan.Event{At: at, Fingerprint: "f", Recipients: audience, Rows: audience, State: plan.StateExpanded})
		for u, entry := range p.Entries {
			n := p.Row(entry, "email")
			subject, err := contracts.NotifySendSubject(n.Channel, n.RecipientType, n.UserID, n.EventID)
			put(subject, err, n)
			d := deliveries.Delivery{Attempts: []deliveries.Attempt{{At: at, Outcome: "sent", Worker: "w"}}, State: deliveries.Delivered, UpdatedAt: at}
			if (e*audience+u)%1000 == 999 {
				d.State, d.Reason = deliveries.Failed, deliveries.ReasonExhausted
			}
			record, err := contracts.DeliveryKey(n.EventID, n.Channel, n.RecipientType, n.UserID)
			put(key(record), err, d)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(time.Minute):
		b.Fatal("the rows are not stored")
	}
	stream, err := js.Stream(b.Context(), contracts.StreamNotifications)
	if err != nil || stream.CachedInfo().State.Msgs != uint64(rows+rows/audience) {
		b.Fatal(fmt.Errorf("%d messages: %w", stream.CachedInfo().State.Msgs, err))
	}
}

func openAPI(b testing.TB, js jetstream.JetStream) *api.API {
	b.Helper()
	records := recordtest.Client(b, js)
	cfg := api.Config{
		Audit: audit.New(audit.Config{JetStream: js, Source: "notifier"}), Digests: digest.New(records), Deliveries: deliveries.New(records),
		Reader: plan.NewReader(records),
	}
	var err error
	cfg.Cancelled, err = cancel.Open(b.Context(), js.Conn(), records)
	check.OK(b, err)
	return api.New(records, cfg)
}
