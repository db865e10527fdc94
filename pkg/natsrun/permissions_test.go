package natsrun_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// accountsServer is a server with the deployed users and the enricher's assets,
// made by admin as in production.
func accountsServer(t *testing.T) (*natsrun.Server, *natstest.Users) {
	t.Helper()

	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen, c.Users = true, users.Public })
	_, js := natstest.Connect(t, srv, users.As("admin"))

	for _, cfg := range []jetstream.StreamConfig{
		{
			Name: "KV_enrich", Subjects: []string{"$KV.enrich.>"}, MaxMsgsPerSubject: 1, AllowDirect: true, AllowMsgTTL: true,
			AllowRollup: true, DenyDelete: true, Discard: jetstream.DiscardNew,
			RePublish: &jetstream.RePublish{Source: "$KV.enrich.>", Destination: "rp.enrich.>"},
		},
		{Name: "KV_directory", Subjects: []string{"$KV.directory.>"}, AllowDirect: true, MaxMsgsPerSubject: 1},
		{Name: "KV_jobs", Subjects: []string{"$KV.jobs.>"}, AllowDirect: true, MaxMsgsPerSubject: 1},
		{Name: "KV_requests", Subjects: []string{"$KV.requests.>"}, AllowDirect: true, MaxMsgsPerSubject: 1},
		{Name: "ENRICH_JOBS", Subjects: []string{"jobs.enrich.>"}, Retention: jetstream.WorkQueuePolicy},
		{Name: "EVENTS", Subjects: []string{"events.>"}},
		{Name: "DEAD", Subjects: []string{"dead.>"}},
	} {
		if _, err := js.CreateStream(t.Context(), cfg); err != nil {
			t.Fatalf("admin creates %s: %v", cfg.Name, err)
		}
	}

	for stream, durable := range map[string]string{"ENRICH_JOBS": "enricher", "EVENTS": "notifier"} {
		if _, err := js.CreateConsumer(t.Context(), stream, jetstream.ConsumerConfig{
			Durable: durable, AckPolicy: jetstream.AckExplicitPolicy,
		}); err != nil {
			t.Fatalf("admin creates consumer %s: %v", durable, err)
		}
	}
	return srv, users
}

func TestEnricherMayDoItsWork(t *testing.T) {
	t.Parallel()

	srv, users := accountsServer(t)
	nc, js := natstest.Connect(t, srv, users.As("enricher"))

	changes, err := nc.SubscribeSync("rp.enrich.>")
	if err != nil {
		t.Fatal(err)
	}

	if _, err := nc.SubscribeSync("kvlock.alive.enrich.x.>"); err != nil {
		t.Fatal(err)
	}

	mustPass(t, "ask whether a holder is there", nc.Publish("kvlock.alive.enrich.x.probe", nil))

	service, err := nc.Subscribe("enricher.v1.enrich", func(m *nats.Msg) { mustPass(t, "respond", m.Respond([]byte("answer"))) })
	if err != nil {
		t.Fatal(err)
	}

	for _, verb := range []string{"$SRV.PING", "$SRV.INFO.enricher", "$SRV.STATS.enricher.ID"} {
		if _, err := nc.SubscribeSync(verb); err != nil {
			t.Fatal(err)
		}
	}

	mustPass(t, "claim, read and complete a slot", useBucket(t, js))
	mustPass(t, "read many slots in one round trip", readMany(nc))
	mustPass(t, "enqueue, take and settle a job", useJobs(t, js))
	mustPass(t, "dead letter", publish(t, js, "dead.ENRICH_JOBS.wolt"))
	mustPass(t, "excuse an attempt", publish(t, js, "$KV.jobs.excused.ENRICH_JOBS.enricher.1"))
	mustPass(t, "remember a request", publish(t, js, "$KV.requests.x"))

	if _, err := changes.NextMsgWithContext(t.Context()); err != nil {
		t.Errorf("changes of the bucket: %v", err)
	}

	asker, _ := natstest.Connect(t, srv, users.As("publisher"))

	answer, err := asker.Request(service.Subject, nil, time.Minute)
	if err != nil || string(answer.Data) != "answer" {
		t.Errorf("answer to whoever asks: got %v, %v", answer, err)
	}

	for who, conn := range map[string]*nats.Conn{"enricher": nc, "publisher": asker} {
		if err := violation(t, conn); err != nil {
			t.Errorf("%s was denied what it needs: %v", who, err)
		}
	}
}

func TestServicesAreDeniedTheRest(t *testing.T) {
	t.Parallel()

	srv, users := accountsServer(t)

	publish := map[string][]string{
		"enricher": {
			"$JS.API.CONSUMER.CREATE.ENRICH_JOBS.x", "$JS.API.CONSUMER.CREATE.KV_enrich.x.$KV.enrich.>",
			"$JS.API.CONSUMER.DELETE.ENRICH_JOBS.enricher", "$JS.API.CONSUMER.DURABLE.CREATE.ENRICH_JOBS.x",
			"$JS.API.CONSUMER.MSG.NEXT.EVENTS.notifier", "$JS.ACK.EVENTS.notifier.1.1.1.1.0",
			"$JS.API.DIRECT.GET.KV_directory.$KV.directory.x", "$JS.API.INFO", "$JS.API.STREAM.CREATE.X",
			"$JS.API.STREAM.DELETE.KV_enrich", "$JS.API.STREAM.INFO.KV_directory", "$JS.API.STREAM.MSG.DELETE.KV_enrich",
			"$JS.API.STREAM.LIST", "$JS.API.STREAM.PURGE.KV_enrich", "$JS.API.STREAM.UPDATE.KV_enrich",
			"$KV.directory.x", "$KV.jobs.excused.IMPORT_JOBS.x", "$KV.locks.x", "_INBOX_publisher.x", "dead.EVENTS.x", "events.order.created",
			"jobs.import.x", "rp.enrich.x", "$SRV.PING", "enricher.v1.enrich", "kvlock.alive.locks.x.probe",
		},
		"notifier": {"$KV.directory.x", "jobs.import.x", "jobs.enrich.x", "$KV.enrich.x", "$JS.API.STREAM.DELETE.EVENTS"},
		"importer": {"jobs.enrich.x", "events.order.created", "$KV.enrich.x", "notify.plan.x"},
		"publisher": {
			"jobs.enrich.x", "$KV.enrich.x", "$JS.API.STREAM.INFO.KV_deliveries", "$JS.API.STREAM.MSG.GET.KV_deliveries",
			"$JS.API.STREAM.MSG.DELETE.EVENTS", "$JS.API.CONSUMER.CREATE.EVENTS.x", "notify.plan.x", "dead.x",
		},
	}

	subscribe := map[string][]string{
		"enricher":  {">", "$JS.ACK.>", "$KV.enrich.>", "$SYS.>", "_INBOX.>", "_INBOX_notifier.>", "events.>", "rp.inbox.>", "kvlock.alive.>"},
		"notifier":  {">", "events.>", "rp.enrich.>", "enricher.v1.enrich"},
		"importer":  {">", "jobs.import.>", "rp.enrich.>"},
		"publisher": {">", "events.>", "enricher.v1.>", "rp.enrich.>"},
	}

	for user, subjects := range publish {
		for _, subject := range subjects {
			t.Run(fmt.Sprintf("%s publishes %s", user, subject), func(t *testing.T) {
				t.Parallel()

				nc, _ := natstest.Connect(t, srv, users.As(user), quietly())
				if err := nc.Publish(subject, nil); err != nil {
					t.Fatal(err)
				}

				if err := violation(t, nc); !errors.Is(err, nats.ErrPermissionViolation) {
					t.Errorf("got %v, want a permissions violation", err)
				}
			})
		}
	}

	for user, subjects := range subscribe {
		for _, subject := range subjects {
			t.Run(fmt.Sprintf("%s subscribes %s", user, subject), func(t *testing.T) {
				t.Parallel()

				nc, _ := natstest.Connect(t, srv, users.As(user), quietly())
				if _, err := nc.SubscribeSync(subject); err != nil {
					t.Fatal(err)
				}

				if err := violation(t, nc); !errors.Is(err, nats.ErrPermissionViolation) {
					t.Errorf("got %v, want a permissions violation", err)
				}
			})
		}
	}
}

func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()

	srv, users := accountsServer(t)

	for name, opts := range map[string][]nats.Option{
		"no user":   nil,
		"wrong key": {natstest.NewUsers(t).As("admin")},
		"password":  {nats.UserInfo("admin", users.Public["admin"])},
	} {
		nc, err := nats.Connect(srv.URL(), opts...)
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: got %v, want ErrAuthorization", name, err)
		}

		nc.Close()
	}
}

// quietly keeps expected refusals from standard error.
func quietly() nats.Option { return nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}) }

func useBucket(t *testing.T, js jetstream.JetStream) error {
	t.Helper()

	kv, err := js.KeyValue(t.Context(), "enrich")
	if err != nil {
		return err
	}

	rev, err := kv.Create(t.Context(), "wolt.1", []byte("claim"), jetstream.KeyTTL(time.Minute))
	if err != nil {
		return err
	}

	if _, err := kv.Get(t.Context(), "wolt.1"); err != nil {
		return err
	}

	if rev, err = kv.Update(t.Context(), "wolt.1", []byte("result"), rev); err != nil {
		return err
	}

	stream, err := js.Stream(t.Context(), "KV_enrich")
	if err != nil {
		return err
	}

	if _, err := stream.GetMsg(t.Context(), rev); err != nil {
		return err
	}
	return kv.Delete(t.Context(), "wolt.1", jetstream.LastRevision(rev))
}

func readMany(nc *nats.Conn) error {
	_, err := nc.Request("$JS.API.DIRECT.GET.KV_enrich", []byte(`{"multi_last":["$KV.enrich.wolt.*"]}`), time.Minute)
	return err
}

func useJobs(t *testing.T, js jetstream.JetStream) error {
	t.Helper()

	if err := publish(t, js, "jobs.enrich.wolt.1"); err != nil {
		return err
	}

	consumer, err := js.Consumer(t.Context(), "ENRICH_JOBS", "enricher")
	if err != nil {
		return err
	}

	msg, err := consumer.Next()
	if err != nil {
		return err
	}
	return errors.Join(msg.InProgress(), msg.DoubleAck(t.Context()))
}

func publish(t *testing.T, js jetstream.JetStream, subject string) error {
	t.Helper()

	_, err := js.Publish(t.Context(), subject, nil)
	return err
}

func mustPass(t *testing.T, what string, err error) {
	t.Helper()

	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// violation returns what the server has held against the client so far: a denied
// publish has no answer, but its refusal comes before the answer to a later ping.
func violation(t *testing.T, nc *nats.Conn) error {
	t.Helper()

	if err := nc.FlushTimeout(2 * time.Minute); err != nil {
		t.Fatal(err)
	}
	return nc.LastError()
}
