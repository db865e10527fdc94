package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
)

func TestConfigReportsAllErrorsAtOnce(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "host=/nowhere pool_max_conns=2")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	_, err = New(t.Context(), Config{
		BatchSize: -1, Concurrency: 2, Poll: -1, Pool: pool, PublishTimeout: -1,
	})
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	for _, want := range []string{"BatchSize", "Poll", "Pool has", "PublishTimeout"} {
		if !strings.Contains(err.Error(), "outbox: "+want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if _, err := New(t.Context(), Config{}); err == nil || !strings.Contains(err.Error(), "Pool is missing") {
		t.Errorf("without a pool: %v", err)
	}
}

func TestInsertRefusesEventsThatCanNeverBePublished(t *testing.T) {
	t.Parallel()
	event := func(id string) Event {
		return Event{Event: contracts.Event{EventID: id, EventType: "RESERVATION_REQUESTED", AggregateType: "RESTAURANT", AggregateID: "5"}}
	}
	bad := event("bad")
	bad.EventType = ""
	header := event("header")
	header.Headers = map[string]string{"Nats-Msg-Id": "other"}
	line := event("line")
	line.Headers = map[string]string{"a": "b\r\nc"}
	large := event("large")
	large.Payload = json.RawMessage(`"` + strings.Repeat("x", maxBytes) + `"`)
	err := Insert(t.Context(), nil, bad, header, line, large, event("good"))
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	for _, want := range []string{`"bad"`, `"header"`, `"line"`, `"large"`} {
		if !strings.Contains(err.Error(), "outbox: event "+want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "good") {
		t.Errorf("%v names a valid setting", err)
	}
	if err := Insert(t.Context(), nil); err != nil {
		t.Error(err)
	}
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
		{&jetstream.APIError{Code: 503, ErrorCode: 10077}, elsewhere},
		{&jetstream.APIError{Code: 429, ErrorCode: 10167}, elsewhere},
		{&jetstream.APIError{Code: 400, ErrorCode: 10999}, refused},
		{jetstream.ErrNoStreamResponse, unclear},
		{jetstream.ErrAsyncPublishTimeout, unclear},
		{errSession, unclear},
		{errors.New("what is this"), unclear},
	} {
		if got := classify(test.err); got != test.want {
			t.Errorf("%v is %d, want %d", test.err, got, test.want)
		}
	}
}

func TestBackoffGrowsToItsLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &Relay{cfg: Config{Logger: slog.New(slog.DiscardHandler)}}
		var wait time.Duration
		for range 100 {
			begun := time.Now()
			r.failed(t.Context(), "test", errSession, &wait)
			if d := time.Since(begun); d < minBackoff/2 || d > maxBackoff*3/2 {
				t.Fatalf("waits %s", d)
			}
		}
		if wait != maxBackoff {
			t.Errorf("the last wait is %s", wait)
		}
	})
}
