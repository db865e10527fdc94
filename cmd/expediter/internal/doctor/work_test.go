package doctor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/inspect"
)

func stop(s *site) { s.stop() }

// publish stores a message.
func publish(subject string, size int) func(*site) {
	return func(s *site) {
		_, err := s.js.Publish(s.Context(), subject, make([]byte, size))
		check.OK(s.T, err)
	}
}

func purge(stream string) func(*site) {
	return func(s *site) {
		found, err := s.js.Stream(s.Context(), stream)
		check.OK(s.T, err)
		check.OK(s.T, found.Purge(s.Context()))
	}
}

// answers makes a worker that says something of itself.
func answers(info inspect.Info) func(*site) {
	return func(s *site) {
		sub, err := s.js.Conn().Subscribe(inspect.SubjectInfo, func(m *nats.Msg) {
			data, _ := json.Marshal(info) //nolint:errcheck // is one
			m.Respond(data)               //nolint:errcheck // the client says so
		})
		check.OK(s.T, err)
		s.stop = sync.OnceFunc(func() { check.OK(s.T, errors.Join(sub.Unsubscribe(), s.js.Conn().Flush())) })
		s.Cleanup(s.stop)
		check.OK(s.T, s.js.Conn().Flush())
	}
}

var workMistakes = []mistake{
	{name: "jobs wait, and no worker runs", id: "worker.gone", make: publish("jobs.enrich.wolt.a", 1), undo: purge("ENRICH_JOBS")},
	{name: "a worker has died with a job", id: "worker.gone", make: after(publish("jobs.enrich.wolt.a", 1), func(s *site) {
		consumer, err := s.js.Consumer(s.Context(), "ENRICH_JOBS", "enricher")
		check.OK(s.T, err)
		check.OK(s.T, check.Err(consumer.Next()))
	}), undo: purge("ENRICH_JOBS")},
	{name: "a worker of other jobs runs", id: "worker.gone", make: after(publish("jobs.import.low.a", 1), answers(inspect.Info{
		ID: "w", Ready: true, Stream: "IMPORT_JOBS", Handlers: []inspect.Handler{{Consumer: "importer"}},
	})), undo: purge("IMPORT_JOBS")},
	{name: "a job that no consumer takes", id: "queue.stranded", make: publish("jobs.import.urgent.a", 1), undo: purge("IMPORT_JOBS")},
	{
		name: "a handler is paused", id: "handler.paused", warns: true,
		make: func(s *site) { s.run(0, "jobs", "pause", "--stream", "IMPORT_JOBS", "jobs.import.low.>") },
	},
	{name: "dead letters", id: "dead.letters", warns: true, make: func(s *site) {
		_, err := worker.PublishDeadLetter(s.Context(), s.js, "dead", worker.DeadLetter{
			Attempts: 5, Consumer: "enricher", DeadAt: time.Now(), Error: "status 503", ID: "a", MaxAttempts: 5, Payload: []byte("{}"),
			Reason: worker.ReasonExhausted, Sequence: 1, Signature: "status #", Stream: contracts.StreamEnrichJobs, Subject: "jobs.enrich.wolt.a",
		})
		check.OK(s.T, err)
	}, undo: func(s *site) { s.run(0, "dead", "discard", "--yes", "--reason", "exhausted") }},
	{name: "a replica is behind", id: "replica.behind", warns: true, undo: stop, make: tells("STREAM.INFO.KV_locks", func(answer map[string]any) {
		answer["cluster"] = map[string]any{"leader": "n1", "replicas": []any{map[string]any{"name": "n2", "current": false, "lag": 7}}}
	})},
	{name: "a stream has no leader", id: "stream.leader", undo: stop, make: tells("STREAM.INFO.KV_locks", func(answer map[string]any) {
		answer["cluster"] = map[string]any{"leader": ""}
	})},
	{name: "a bucket refuses a write", id: "store.refuses", undo: stop, make: tells("$KV.locks.ready.", func(answer map[string]any) {
		answer["error"] = map[string]any{"code": 503, "err_code": 10047, "description": "insufficient storage resources available"}
	})},
	{name: "an account has no room", id: "account.store", undo: stop, make: tells("INFO", func(answer map[string]any) {
		answer["storage"], answer["limits"] = 99, map[string]any{"max_storage": 100, "max_streams": -1}
	})},
	{name: "a full bucket", id: "stream.full", make: after(after(purge("KV_locks"), publish("$KV.locks.a", 1_040_000)), publish("$KV.locks.b", 30_000)), undo: purge("KV_locks")},
	{name: "a bucket that is rather full", id: "stream.full", warns: true, make: after(purge("KV_locks"), publish("$KV.locks.a", 950_000)), undo: purge("KV_locks")},
	{name: "a worker pulls from a consumer that is missing", id: "consumer.missing", make: after(answers(inspect.Info{
		ID: "w", Ready: true, Stream: "NOTIFICATIONS", Handlers: []inspect.Handler{{Consumer: "notifier-send-webpush"}},
	}), func(s *site) {
		check.OK(s.T, s.js.DeleteConsumer(s.Context(), "NOTIFICATIONS", "notifier-send-webpush"))
	})},
	{name: "a worker that takes no jobs", id: "worker.idle", make: answers(inspect.Info{ID: "w", Instance: "w", Problem: "it has no bucket"}), undo: stop},
}

// tells makes an account FAKE, in which the answers to questions that begin so are another.
func tells(question string, change func(answer map[string]any)) func(*site) {
	return func(s *site) {
		nc := s.js.Conn()
		sub, err := nc.Subscribe("$JS.FAKE.API.>", func(m *nats.Msg) {
			asked := strings.TrimPrefix(m.Subject, "$JS.FAKE.API.")
			var answer map[string]any
			if !strings.HasPrefix(asked, "$KV.") {
				asked = "$JS.API." + asked
			}
			got, err := nc.RequestMsg(&nats.Msg{Subject: asked, Header: m.Header, Data: m.Data}, time.Minute)
			if err == nil && strings.HasPrefix(strings.TrimPrefix(asked, "$JS.API."), question) && json.Unmarshal(got.Data, &answer) == nil {
				change(answer)
				got.Data, _ = json.Marshal(answer) //nolint:errcheck // was one
			}
			m.Respond(got.Data) //nolint:errcheck // the client says so
		})
		check.OK(s.T, errors.Join(err, nc.Flush()))
		s.stop = func() { s.args = s.args[:2]; check.OK(s.T, errors.Join(sub.Unsubscribe(), nc.Flush())) }
		s.args = append(s.args, "--account", "FAKE")
	}
}

// stalled makes a server that acknowledges no write to a bucket.
func stalled(s *site) {
	p := natstest.NewProxy(s.T, s.server)
	p.Filter(func(f natstest.Frame) natstest.Verdict {
		if strings.HasPrefix(f.Subject, "$KV.locks.ready.") {
			return natstest.Lose
		}
		return natstest.Relay
	})
	s.connect = func(more ...nats.Option) (*nats.Conn, error) { return nats.Connect("", append(more, p.Through())...) }
}

// The streams are small, so that one message fills one.
//
//nolint:tparallel // one site
func TestMistakesInWork(t *testing.T) {
	t.Parallel()
	s := newSite(t, "--max-bytes", fmt.Sprint(18<<20))
	for _, m := range workMistakes {
		m.check(t, s)
	}
	answers(inspect.Info{ID: "w", Instance: "w", Stopping: true})(s)
	s.healthy() // a worker that stops is no mistake
}
