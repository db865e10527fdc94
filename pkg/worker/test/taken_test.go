package test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// A job that no consumer takes is refused before it is stored, as soon as the stream has consumers.
func TestJobThatNoConsumerTakes(t *testing.T) {
	natstest.Bubble(t, refuseUntaken)
}

func refuseUntaken(t *testing.T, srv *natsrun.Server) {
	t.Helper()
	b := keyed(t, srv)
	c, open := client(t, b.js), client(t, b.js, func(c *worker.ClientConfig) { c.AllowUntaken = true })
	mail, report := worker.NewJob{Subject: "jobs.mail"}, worker.Periodic{Every: time.Hour, Name: "nightly", Subject: "jobs.report"}
	insert(t, client(t, b.js), mail) // nobody works anything yet

	take := func(name, filter string) {
		check.OK(t, check.Err(b.js.CreateConsumer(t.Context(), stream, jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckExplicitPolicy, Durable: name, FilterSubject: filter,
		})))
	}
	take("mailer", "jobs.mail.>")
	take("reporter", "jobs.report")
	before, begun := b.left(t), time.Now()
	_, inserted := c.Insert(t.Context(), mail)
	_, many := c.InsertMany(t.Context(), []worker.NewJob{{Subject: "jobs.mail.7"}, mail})
	_, scheduled := c.Schedule(t.Context(), report)
	for what, err := range map[string]error{"Insert": inserted, "InsertMany": many, "Schedule": scheduled} {
		if untaken, ok := errors.AsType[*worker.UntakenError](err); !ok || len(untaken.Filters) != 2 {
			t.Errorf("%s: %v", what, err)
		}
	}
	if took := time.Since(begun); took < 5*time.Second || took > 6*time.Second {
		t.Errorf("it took %s, want five seconds, and no time for the second", took)
	}
	check.Same(t, "messages", b.left(t), before)
	insert(t, open, mail)
	insert(t, c, worker.NewJob{Subject: "jobs.mail", Unique: &worker.Unique{Key: "7"}})
	take("nightly", "jobs.report.*")
	check.OK(t, check.Err(c.Schedule(t.Context(), report)))
}

// A job waits for the consumer of a worker that is making one after the other.
func TestJobWaitsForWorkerThatStarts(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := keyed(t, srv)
		take := func(name string) {
			check.OK(t, check.Err(b.js.CreateConsumer(t.Context(), stream, jetstream.ConsumerConfig{
				AckPolicy: jetstream.AckExplicitPolicy, Durable: name, FilterSubject: "jobs." + name + ".>",
			})))
		}
		take("high")
		time.AfterFunc(4*time.Second, func() { take("normal") })
		time.AfterFunc(8*time.Second, func() { take("low") })
		insert(t, client(t, b.js), worker.NewJob{Subject: "jobs.low.7"})
	})
}
