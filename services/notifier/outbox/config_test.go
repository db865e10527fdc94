package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

func TestConfigSaysEverythingThatIsWrongAtOnce(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), "host=/nowhere pool_max_conns=3")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	_, err = New(t.Context(), Config{
		BatchSize: -1, Concurrency: 2, Keep: -1, MaxAttempts: -1, Poll: -1, Pool: pool, PublishTimeout: -1, SyncInterval: time.Millisecond,
	})
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	for _, want := range []string{"BatchSize", "Keep", "MaxAttempts", "Poll", "Pool has", "PublishTimeout", "SyncInterval"} {
		if !strings.Contains(err.Error(), "outbox: "+want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if _, err := New(t.Context(), Config{}); err == nil || !strings.Contains(err.Error(), "Pool is missing") {
		t.Errorf("without a pool: %v", err)
	}
}

func TestInsertRefusesWhatNobodyCouldPublish(t *testing.T) {
	t.Parallel()
	bad := event("bad", "5")
	bad.EventType = ""
	header := event("header", "5")
	header.Headers = map[string]string{"Nats-Msg-Id": "other"}
	line := event("line", "5")
	line.Headers = map[string]string{"a": "b\r\nc"}
	large := event("large", "5")
	large.Payload = json.RawMessage(`"` + strings.Repeat("x", maxBytes) + `"`)
	err := Insert(t.Context(), nil, bad, header, line, large, event("good", "5"))
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	for _, want := range []string{`"bad"`, `"header"`, `"line"`, `"large"`} {
		if !strings.Contains(err.Error(), "outbox: event "+want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if strings.Contains(err.Error(), "good") {
		t.Errorf("%v names what is right", err)
	}
	if err := Insert(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func TestKeyIsTheAggregateUnlessTheEventSaysOtherwise(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	aggregate, none, own, unordered := event("a", "5"), event("b", ""), event("c", "5"), event("d", "5")
	own.OrderingKey, unordered.Unordered = "mine", true
	all := []Event{aggregate, none, own, unordered}
	p.insert(all...)
	p.exec(`INSERT INTO event_outbox (event_id, event_type, aggregate_type, aggregate_id) VALUES ('sql', 'X', 'RESTAURANT', '5')`)
	for _, e := range append(all, event("sql", "5")) {
		if key := query[string](p, "SELECT ordering_key FROM event_outbox WHERE event_id = $1", e.EventID); key != e.key() {
			t.Errorf("the key of %s is %q in the table, and %q here", e.EventID, key, e.key())
		}
	}
	if n := query[int](p, "SELECT count(DISTINCT lane) FROM event_outbox WHERE ordering_key = 'RESTAURANT/5'"); n != 1 {
		t.Errorf("one key is in %d lanes", n)
	}
}

func TestRunsAreReadTogetherWhereOthersAreFew(t *testing.T) {
	t.Parallel()
	var refs []ref
	for _, seq := range []uint64{1, 2, 6, 11, 600, 601, 1112, 1113} {
		refs = append(refs, ref{seq: seq})
	}
	long := make([]ref, readSpan+1)
	for i := range long {
		long[i].seq = uint64(i + 1)
	}
	var got []string
	for _, run := range append(runs(refs), runs(long)...) {
		got = append(got, fmt.Sprint(run[0].seq, "-", run[len(run)-1].seq))
	}
	want := []string{"1-6", "11-11", "600-601", "1112-1113", "1-512", "513-513"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(runs(nil)) != 0 {
		t.Error("there is a run of nothing")
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want verdict
	}{
		{nats.ErrMaxPayload, hopeless},
		{fmt.Errorf("x: %w", &jetstream.APIError{Code: 400, ErrorCode: codeMessageExceedsMaximum}), hopeless},
		{&jetstream.APIError{Code: 400, ErrorCode: codeHeaderExceedsMaximum}, hopeless},
		{&jetstream.APIError{Code: 400, ErrorCode: codeStreamMismatch}, elsewhere},
		{&jetstream.APIError{Code: 503, ErrorCode: 10077}, elsewhere},
		{&jetstream.APIError{Code: 429, ErrorCode: 10167}, elsewhere},
		{&jetstream.APIError{Code: 400, ErrorCode: 10999}, refused},
		{jetstream.ErrNoStreamResponse, unclear},
		{jetstream.ErrAsyncPublishTimeout, unclear},
		{errSession, unclear},
		{errors.New("what is this"), unclear},
	} {
		if got := judge(test.err); got != test.want {
			t.Errorf("%v is %d, want %d", test.err, got, test.want)
		}
	}
}

func TestBackoffGrowsToItsLimit(t *testing.T) {
	t.Parallel()
	var b backoff
	for range 100 {
		if d := b.next(); d < minBackoff*8/10 || d > maxBackoff*12/10 {
			t.Fatalf("waits %s", d)
		}
	}
	if b.last != maxBackoff {
		t.Errorf("the last wait is %s", b.last)
	}
}

// What nats.go would write to the standard error is an event of the log.
func TestErrorsOfTheConnectionAreLogged(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	_, js := natstest.Connect(t, srv)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "E", Subjects: []string{"e.>"}}); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	r := &Relay{cfg: Config{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), NATSOptions: []nats.Option{nats.InProcessServer(srv)}, PublishTimeout: patience, Stream: "E",
	}}
	s, err := r.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.close()
	s.nc.Opts.AsyncErrorCB(s.nc, nil, nats.ErrSlowConsumer)
	if want := "level=WARN msg=" + EventConnectionError; !strings.Contains(log.String(), want) {
		t.Errorf("it logs %q, want %q in it", &log, want)
	}
}
