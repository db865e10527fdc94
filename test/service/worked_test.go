package service_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// inWorkedStore runs f with a service that works jobs, and has asked how many there are.
func inWorkedStore(t *testing.T, f func(*store)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		sh := newStore(t, srv, true)
		pass()
		f(sh)
	})
}

// send stores messages.
func (sh *store) send(subject string, n int) {
	sh.Helper()
	for range n {
		check.OK(sh, check.Err(sh.js.Publish(sh.Context(), subject, []byte("{}"))))
	}
}

// shows checks values of metrics: each is a name with labels, and the value, "" for none.
func (sh *store) shows(want string, name string, labels ...string) {
	sh.Helper()
	check.Same(sh, fmt.Sprintf("%s %v", name, labels), sh.metric(name, labels...), want)
}

// The gauges count the jobs that wait, since when, and those that a worker has.
func TestJobsThatWaitAreCounted(t *testing.T) {
	inWorkedStore(t, func(sh *store) {
		sh.shows("0", "stream_jobs", jobs, "importer", "waiting")
		sh.shows("0", "stream_jobs_age_seconds", jobs)
		sh.send("jobs.import.worked.a", 1)
		time.Sleep(10 * time.Second) //nolint:forbidigo // fake time
		sh.send("jobs.import.worked.b", 2)
		sh.send("dead.X.y", 3)
		pass()
		sh.shows("2", "stream_jobs", jobs, "importer", "waiting")
		sh.shows("1", "stream_jobs", jobs, "importer", "delivered")
		sh.shows("0", "stream_jobs", jobs, "stranded")
		sh.shows("16", "stream_jobs_age_seconds", jobs)
		sh.shows("3", "stream_messages", contracts.StreamDead)
		sh.hold <- struct{}{}
		pass()
		sh.shows("1", "stream_jobs", jobs, "importer", "waiting")
		sh.shows("32", "stream_jobs_age_seconds", jobs)
		sh.hold <- struct{}{}
		sh.hold <- struct{}{}
		pass()
		sh.shows("0", "stream_jobs", jobs, "importer", "waiting")
		sh.shows("0", "stream_jobs", jobs, "importer", "delivered")
		sh.shows("0", "stream_jobs_age_seconds", jobs)
	})
}

// A message that no consumer takes, and one that its consumer has given up, are stranded; one that waits or runs is not.
func TestStrandedMessagesAreCounted(t *testing.T) {
	inWorkedStore(t, func(sh *store) {
		foreign, err := sh.js.CreateConsumer(sh.Context(), jobs, jetstream.ConsumerConfig{
			Durable: "foreign", FilterSubject: "jobs.import.foreign", MaxDeliver: 1, AckWait: time.Second,
		})
		check.OK(t, err)
		sh.send("jobs.import.nobody", 2)
		sh.send("jobs.import.foreign", 1)
		sh.send("jobs.import.worked.a", 2)
		pass()
		elapse(2 * time.Second) // the second look
		sh.shows("2", "stream_jobs", jobs, "stranded")
		for range 2 { // the second request finds that the first is not acknowledged
			if _, err := foreign.Next(jetstream.FetchMaxWait(2 * time.Second)); err == nil {
				time.Sleep(2 * time.Second) //nolint:forbidigo // fake time
			}
		}
		pass()
		pass()
		sh.shows("3", "stream_jobs", jobs, "stranded")
		sh.shows("0", "stream_jobs", jobs, "foreign", "waiting")
	})
}

// What came before a job, for others, does not make the job older.
func TestTheAgeIsThatOfAJob(t *testing.T) {
	inWorkedStore(t, func(sh *store) {
		sh.hold <- struct{}{}
		check.OK(t, check.Err(sh.js.CreateConsumer(sh.Context(), jobs, jetstream.ConsumerConfig{Durable: "idle", FilterSubject: "jobs.import.idle"})))
		sh.send("jobs.import.nobody", 1)
		pass()
		time.Sleep(time.Hour) //nolint:forbidigo // fake time
		sh.send("jobs.import.idle", 1)
		pass()
		sh.shows("1", "stream_jobs", jobs, "idle", "waiting")
		sh.shows("16", "stream_jobs_age_seconds", jobs)
	})
}

// A gauge whose answers are lost is gone after 45 seconds, and not those of which there are answers.
func TestAnOldCountIsNotShown(t *testing.T) {
	inWorkedStore(t, func(sh *store) {
		for _, lost := range []string{"$JS.API.CONSUMER.LIST." + jobs, "$JS.API.INFO"} {
			sh.proxy.Filter(natstest.Losing(func(f natstest.Frame) bool { return f.FromClient && f.Subject == lost }))
			pass()
			sh.shows("0", "stream_jobs", jobs, "importer", "waiting") // one lost answer changes nothing
			time.Sleep(time.Minute)                                   //nolint:forbidigo // fake time
			gone := lost != "$JS.API.INFO"
			if (sh.metric("stream_jobs", jobs, "waiting") == "") != gone || (sh.metric("stream_jobs_age_seconds", jobs) == "") != gone ||
				(sh.metric("jetstream_storage_used_bytes") == "") == gone || sh.metric("stream_messages", jobs) == "" {
				t.Errorf("without %s: %q, %q, %q, %q", lost, sh.metric("stream_jobs", jobs, "waiting"), sh.metric("stream_jobs_age_seconds", jobs),
					sh.metric("jetstream_storage_used_bytes"), sh.metric("stream_messages", jobs))
			}
			sh.proxy.Filter(nil)
			pass()
		}
	})
}
