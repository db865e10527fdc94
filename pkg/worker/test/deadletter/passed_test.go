package deadletter_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
)

// TestStrandedFindsWhatAConsumerHasPassed gives a consumer a subject of which it has passed
// messages.
func TestStrandedFindsWhatAConsumerHasPassed(t *testing.T) {
	t.Parallel()

	b := setup(t, nil)
	publish := func(subjects ...string) {
		for _, to := range subjects {
			check.OK(t, check.Err(b.js.Publish(t.Context(), to, nil)))
		}
	}
	stranded := func(want ...deadletter.SubjectCount) {
		t.Helper()

		got, err := b.store.Stranded(t.Context(), "JOBS")
		if diff := cmp.Diff(want, got.Subjects); diff != "" || err != nil || !got.Complete {
			t.Errorf("%v, complete %t (-want +got):\n%s", err, got.Complete, diff)
		}
	}

	cfg := jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, Durable: "baker", FilterSubject: "jobs.a"}

	consumer, err := b.js.CreateConsumer(t.Context(), "JOBS", cfg)
	check.OK(t, err)

	publish("jobs.b.1", "jobs.b.2", "jobs.b.1", "jobs.a", "jobs.a", "jobs.a")

	for i := range 2 {
		msg, err := consumer.Next()
		check.OK(t, err)

		if i > 0 {
			continue // it is worked
		}

		check.OK(t, msg.DoubleAck(t.Context()))
	}

	stranded(deadletter.SubjectCount{Messages: 2, Subject: "jobs.b.1"}, deadletter.SubjectCount{Messages: 1, Subject: "jobs.b.2"})

	cfg.FilterSubject, cfg.FilterSubjects = "", []string{"jobs.a", "jobs.b.*"}

	check.OK(t, check.Err(b.js.UpdateConsumer(t.Context(), "JOBS", cfg)))

	publish("jobs.b.3")
	stranded(
		deadletter.SubjectCount{Messages: 2, PassedBy: "baker", Subject: "jobs.b.1"},
		deadletter.SubjectCount{Messages: 1, PassedBy: "baker", Subject: "jobs.b.2"},
	)
}
