package consoletest

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// DeadLetter is a dead letter of an import.
func DeadLetter(n int, mutate ...func(*worker.DeadLetter)) worker.DeadLetter {
	l := worker.DeadLetter{
		Attempts: 5, Consumer: "importer", DeadAt: time.Now(), Deliveries: 5, EnqueuedAt: time.Unix(int64(1_700_000_000+n), 0),
		Error: fmt.Sprintf("extract: status 503 of https://svc:hunter2@host/p%d?key=hunter2", n), Header: nats.Header{"traceparent": {"00-1"}},
		ID: fmt.Sprint("import-", n), MaxAttempts: 5, Payload: fmt.Appendf(nil, `{"url":"https://svc:hunter2@host/p%d"}`, n),
		Reason: worker.ReasonExhausted, Sequence: uint64(n + 1), Signature: "extract: status #",
		Stream:  contracts.StreamImportJobs,
		Subject: fmt.Sprintf("jobs.import.web.j%d", n), Version: "v0.3.1", Worker: "vm-3",
	}
	for _, m := range mutate {
		m(&l)
	}
	return l
}

// PutDeadLetters stores dead letters, and returns the position of the last one.
func (s *Site) PutDeadLetters(all ...worker.DeadLetter) (sequence uint64) {
	s.Helper()
	for _, l := range all {
		var err error
		sequence, err = worker.PublishDeadLetter(s.Context(), s.JetStream, "dead", l)
		check.OK(s.T, err)
	}
	return sequence
}

// Messages returns the number of messages of a stream.
func (s *Site) Messages(stream string) int {
	s.Helper()
	found, err := s.JetStream.Stream(s.Context(), stream)
	check.OK(s.T, err)
	return int(found.CachedInfo().State.Msgs)
}
