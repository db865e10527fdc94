package worker

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker/internal/api"
	"github.com/expediter-io/expediter/pkg/worker/internal/key"
)

// Headers of the record of a job, beside HeaderID and HeaderInsert.
const (
	// HeaderSequence holds the position of the job in the stream.
	HeaderSequence = "Job-Sequence"

	// HeaderState holds the job's State.
	HeaderState = "Job-State"
)

// State is how far a job has come.
type State string

const (
	// StateCancelled means: taken away by Client.Cancel. It holds no key.
	StateCancelled State = "cancelled"

	// StateDead means: given up. There is a dead letter.
	StateDead State = "dead"

	// StateDone means: completed.
	StateDone State = "done"

	// StateFree means: there is no job.
	StateFree State = "free"

	// StateQueued means: waiting for a worker, or for its next attempt.
	StateQueued State = "queued"

	// StateRunning means: a worker has it.
	StateRunning State = "running"

	// StateScheduled means: waiting to become due.
	StateScheduled State = "scheduled"
)

// Status is what there is of a key.
type Status struct {
	// Due is when a scheduled job becomes due.
	Due time.Time

	// ID is the job's.
	ID string

	// Sequence is the position in the stream of what says so: the job's, its schedule's or
	// its record's.
	Sequence uint64

	// Since is when the server stored that.
	Since time.Time

	// State is how far the job has come.
	State State

	// Subject is the job's.
	Subject string
}

// isWaiting reports whether there is a job that no worker has.
func (s Status) isWaiting() bool { return s.State == StateQueued || s.State == StateScheduled }

// statusOf reads a status from the last message of a key. What says that a job runs costs
// a look whether there is one.
func (c *Client) statusOf(ctx context.Context, k key.Key, msg api.Message) (Status, error) {
	s := readStatus(k, msg, c.cfg.Stream)
	if s.State != StateRunning {
		return s, nil
	}

	stale, err := c.isStale(ctx, k, msg)
	if stale {
		s.State = StateFree
	}

	return s, err
}

func readStatus(k key.Key, msg api.Message, stream string) Status {
	s := Status{
		ID: jobID(msg.Header, stream, msg.Sequence), Sequence: msg.Sequence, Since: msg.Time,
		State: StateQueued, Subject: k.Job(),
	}

	switch key.KindOf(msg.Subject) {
	case key.Later:
		s.State = StateScheduled
		s.Due, _ = time.Parse(time.RFC3339, strings.TrimPrefix(msg.Header.Get(headerSchedule), "@at ")) //nolint:errcheck // zero then
	case key.Done:
		s.State = State(cmp.Or(msg.Header.Get(HeaderState), string(StateDone)))
	case key.Job:
	}

	return s
}

// insertOf returns the mark of the insert that a message stems from.
func insertOf(header nats.Header) string {
	return cmp.Or(header.Get(HeaderInsert), header.Get(HeaderID), header.Get(nats.MsgIdHdr))
}

// setExpected makes the server refuse a message unless the last one of the key is the
// given, 0 for none.
func setExpected(header nats.Header, k key.Key, sequence uint64) {
	header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(sequence, 10))
	header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, k.Any())
}
