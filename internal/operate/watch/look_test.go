package watch_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/operate/watch"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// A worker that answered is frozen while its connection lives, and has ended without. Jobs without a consumer are stranded, and delayed
// jobs and records are not.
func TestLook(t *testing.T) {
	t.Parallel()
	nc, js := natstest.Connect(t, natstest.Server(t))
	check.OK(t, check.Err(js.CreateStream(t.Context(), worker.StreamConfig("ORDERS", "orders.>"))))
	for _, subject := range []string{"orders.1", "orders-done.2"} {
		check.OK(t, check.Err(js.Publish(t.Context(), subject, nil)))
	}
	workers := []inspect.Info{{Instance: "one", Stream: "ORDERS", Handlers: []inspect.Handler{{Consumer: "pay"}}}, {Instance: "two", Stream: "OTHERS"}}
	from := watch.Source{JetStream: js, Client: jsapi.New(js, 10*time.Second), Asked: true, Workers: func() []inspect.Info { return workers }}
	look := func(before watch.State) watch.State {
		t.Helper()
		return check.Must(watch.Look(t.Context(), from, "ORDERS", before, true))(t)
	}
	first := look(watch.State{})
	check.That(t, first.Known && first.Stranded == 1 && first.Example == "orders.1", "stranded: %d, %s", first.Stranded, first.Example)
	check.That(t, len(first.Workers) == 1 && len(first.Frozen) == 0, "%d workers", len(first.Workers))
	workers = nil
	frozen := check.Must(nc.Subscribe(inspect.SubjectInfo+".one", func(*nats.Msg) {}))(t)
	second := look(first)
	third := look(second)
	check.That(t, len(second.Frozen) == 1 && len(third.Frozen) == 1 && third.Answered["pay"].Instance == "one", "%+v", third)
	check.OK(t, frozen.Unsubscribe())
	check.That(t, len(look(third).Frozen) == 0, "a worker that has ended is frozen")
}

// A worker that froze before anybody looked is found by its connection, and one of another account is not taken for one of this.
func TestConnected(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	nc, _ := natstest.Connect(t, srv)
	check.OK(t, check.Err(nc.Subscribe(inspect.SubjectInfo+".one", func(*nats.Msg) {})))
	check.OK(t, check.Err(nc.Subscribe(inspect.SubjectInfo, func(*nats.Msg) {})))
	check.OK(t, nc.Flush())
	_, js := natstest.Connect(t, srv)
	here := check.Must(watch.Connected(t.Context(), js.Conn()))(t)
	workers := []inspect.Info{{Instance: "one"}, {Instance: "forged"}}
	check.That(t, len(here) == 1 && len(watch.Own(workers, here)) == 1, "connected: %+v", here)
	check.That(t, len(watch.Silent(here, workers)) == 0, "a worker that answers is frozen")
	silent := watch.Silent(here, nil)
	check.Require(t, len(silent) == 1, "silent: %+v", silent)
	_, memory, _ := watch.Memory(nil).Certain(time.Now(), silent)
	check.OK(t, nc.Publish("alive", nil))
	check.OK(t, nc.Flush())
	later := time.Now().Add(time.Minute)
	certain, _, _ := memory.Certain(later, watch.Silent(here, nil))
	check.That(t, len(certain) == 1 && certain[0].ID == "worker.frozen", "%+v", certain)
	certain, _, _ = memory.Certain(later, watch.Silent(check.Must(watch.Connected(t.Context(), js.Conn()))(t), nil))
	check.That(t, len(certain) == 0, "one that sends is frozen: %+v", certain)
}

// Details name a limit of a process that has ended, a job whose workers end, and a schedule. They stay until the next round with details.
func TestLookCloser(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	check.OK(t, check.Err(js.CreateStream(t.Context(), worker.StreamConfig("ORDERS", "orders.>"))))
	bucket := jetstream.StreamConfig{Name: "KV_jobs", Subjects: []string{"$KV.jobs.>"}, MaxMsgsPerSubject: 1, AllowDirect: true}
	check.OK(t, check.Err(js.CreateStream(t.Context(), bucket)))
	consumer := check.Must(js.CreateConsumer(t.Context(), "ORDERS", jetstream.ConsumerConfig{
		Durable: "pay", FilterSubject: "orders.>", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 50 * time.Millisecond, MaxAckPending: -1,
	}))(t)
	check.OK(t, check.Err(js.Publish(t.Context(), "orders.1", nil)))
	for range 2 {
		check.OK(t, check.Err(consumer.Next()))
	}
	stored := check.Must(check.Must(js.Stream(t.Context(), "ORDERS"))(t).GetMsg(t.Context(), 1))(t).Time
	for key, record := range map[string]string{
		"limits.mail.x":               `{"v":1,"holders":[{"id":"gone","n":1,"ttl":1000}],"queue":["one"]}`,
		"limits.other.x":              `{"v":9}`,
		"excused.ORDERS.pay.failed.1": fmt.Sprintf(`{"attempt":2,"lost":2,"sequence":1,"stored":%d}`, stored.UnixNano()),
	} {
		check.OK(t, check.Err(js.Publish(t.Context(), "$KV.jobs."+key, []byte(record))))
	}
	client := check.Must(worker.NewClient(js, worker.ClientConfig{Stream: "ORDERS"}))(t)
	check.OK(t, check.Err(client.Schedule(t.Context(), worker.Periodic{Name: "daily", Subject: "orders.report", Every: time.Hour})))
	w := inspect.Info{Instance: "one", Stream: "ORDERS", Handlers: []inspect.Handler{{Consumer: "pay", Limits: []string{"mail"}}}}
	from := watch.Source{JetStream: js, Client: jsapi.New(js, 10*time.Second), Asked: true, Workers: func() []inspect.Info { return []inspect.Info{w} }}
	look := func(before watch.State) watch.State {
		return check.Must(watch.Look(t.Context(), from, "ORDERS", before, false))(t)
	}
	came := look(watch.State{})
	check.That(t, len(came.Limits) == 1, "while jobs come and none completes: %+v", came.Limits)
	w.Handlers[0].Limits = nil
	rests := look(look(came))
	w.Handlers[0].Limits = []string{"mail"}
	check.That(t, len(look(rests).Limits) == 0, "a stream at rest is looked at closer")
	before := watch.State{}
	for _, details := range []bool{true, false} {
		before = check.Must(watch.Look(t.Context(), from, "ORDERS", before, details))(t)
		check.That(t, len(before.Limits) == 1 && before.Limits[0].Ended == 1, "limits: %+v", before.Limits)
		check.That(t, len(before.Lost) == 1 && before.Lost[0].Lost == 2, "lost: %+v", before.Lost)
		check.That(t, len(before.Schedules) == 1, "schedules: %+v", before.Schedules)
	}
	bucket.AllowDirect = false // so that nothing answers
	check.OK(t, check.Err(js.UpdateStream(t.Context(), bucket)))
	before = check.Must(watch.Look(t.Context(), from, "ORDERS", before, true))(t)
	check.That(t, len(before.Limits) == 1 && len(before.Lost) == 1, "without an answer: %+v", before)
}
