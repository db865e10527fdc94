package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestConfigReportsAllErrorsAtOnce(t *testing.T) {
	t.Parallel()
	pool := check.Must(pgxpool.New(t.Context(), "host=/nowhere pool_max_conns=2"))(t)
	defer pool.Close()
	for _, d := range []time.Duration{-1, math.MaxInt64} {
		_, err := New(t.Context(), Config{BatchSize: -1, Concurrency: 2, Poll: d, Pool: pool, PublishTimeout: d})
		check.ErrorContains(t, err, "outbox: BatchSize", "outbox: Poll", "outbox: Pool has", "outbox: PublishTimeout")
	}
	check.ErrorContains(t, check.Err(New(t.Context(), Config{})), "Pool is missing")
}

func TestInsertRefusesEventsThatCanNeverBePublished(t *testing.T) {
	t.Parallel()
	event := func(id string, change func(*Event)) Event {
		e := Event{Event: contracts.Event{EventID: id, EventType: "RESERVATION_REQUESTED", AggregateType: "RESTAURANT", AggregateID: "5"}}
		change(&e)
		return e
	}
	header := func(name, value string) func(*Event) {
		return func(e *Event) { e.Headers = map[string]string{name: value} }
	}
	payload := func(text string) func(*Event) { return func(e *Event) { e.Event.Payload = json.RawMessage(text) } }
	of := func(bytes int) func(*Event) { return payload(`"` + strings.Repeat("x", bytes-2) + `"`) }
	extra := func(name, text string) func(*Event) {
		return func(e *Event) { e.Event.Extra = map[string]json.RawMessage{name: json.RawMessage(text)} }
	}
	all := []Event{
		event("good", func(*Event) {}),
		event("bad", func(e *Event) { e.Event.EventType = "" }),
		event("header", header("Nats-Msg-Id", "other")), event("line", header("a", "b\r\nc")), event("name", header("trace/id", "1")),
		event("large", of(maxBytes)), event("nearly", of(1_048_400)), event("text", of(maxBytes-ownBytes-200)),
		event("spaces", payload("1"+strings.Repeat(" ", maxBytes))), event("headers", header("a", strings.Repeat("x", 65_000))),
		event("own", header("Ce-Specversion", "2.0")),
		event("late", func(e *Event) { e.Event.NotBefore = time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -2*3600)) }),
		event("nul", func(e *Event) { e.Event.UserID = "a\x00" }), event("key", func(e *Event) { e.OrderingKey = "\xff" }),
		event("field", extra("user_id", `"u"`)), event("twice", extra("a", `{"b":1,"b":2}`)), event("broken", extra("a", "{")),
		event("deep", extra("a", strings.Repeat("[", 64)+strings.Repeat("]", 64))),
		event("much", extra("a", `"`+strings.Repeat("x", maxBytes)+`"`)), event("extra name", extra("\xff", "1")),
	}
	err := Insert(t.Context(), nil, all...)
	check.ErrorContains(t, err, "max_payload is 1 MiB")
	for _, e := range all {
		named := strings.Contains(fmt.Sprint(err), fmt.Sprintf("outbox: event %q", e.Event.EventID))
		check.That(t, named == (e.Event.EventID != "good"), "%q is named: %t: %v", e.Event.EventID, named, err)
	}
	check.OK(t, Insert(t.Context(), nil))
}

func TestErrorsOfAPublishAreClassified(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want class
	}{
		{nats.ErrMaxPayload, hopeless},
		{fmt.Errorf("x: %w", &jetstream.APIError{Code: 400, ErrorCode: 10054}), hopeless},
		{&jetstream.APIError{Code: 400, ErrorCode: 10097}, hopeless},
		{&jetstream.APIError{Code: 400, ErrorCode: 10060}, elsewhere},
		{&jetstream.APIError{Code: 400, ErrorCode: 10109}, elsewhere},
		{&jetstream.APIError{Code: 503, ErrorCode: 10077}, elsewhere},
		{&jetstream.APIError{Code: 429, ErrorCode: 10167}, elsewhere},
		{&jetstream.APIError{Code: 400, ErrorCode: 10999}, refused},
		{jetstream.ErrNoStreamResponse, unclear},
		{jetstream.ErrAsyncPublishTimeout, unclear},
		{errSession, unclear},
		{errors.New("what is this"), unclear},
	} {
		check.Equal(t, classify(test.err), test.want, test.err.Error())
	}
}

// The points that a relay passes.
const (
	PointClaimed, PointAcknowledged = pointClaimed, pointAcknowledged
	PointMarked, PointCommitted     = pointMarked, pointCommitted
)

// Passing returns a configuration whose relay calls passed at each point.
func (cfg Config) Passing(passed func(point string)) Config {
	cfg.passed = passed
	return cfg
}

// Answering returns a configuration with another bound of the answers of the database.
func (cfg Config) Answering(within time.Duration) Config {
	cfg.answer = within
	return cfg
}
