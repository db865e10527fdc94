package record_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/services/notifier/internal/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, js jetstream.JetStream) *record.Store {
	t.Helper()
	config := jetstream.StreamConfig{
		Name: "R", Subjects: []string{"r.>"}, MaxMsgsPerSubject: 1, AllowDirect: true, Storage: jetstream.MemoryStorage,
	}
	if _, err := js.CreateOrUpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	s, err := record.Open(t.Context(), js, "R")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestARecordIsWrittenOverWhatWasSeen(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	s := open(t, js)
	if _, _, err := s.Get(t.Context(), "r.a"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("%v", err)
	}
	first, err := s.Put(t.Context(), "r.a", nats.Header{"X": {"y"}}, []byte("one"), 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Put(t.Context(), "r.a", nil, []byte("two"), 0)
	taken, ok := errors.AsType[*record.TakenError](err)
	if !ok || !errors.Is(err, record.ErrTaken) || string(taken.Data) != "one" || taken.Revision != first {
		t.Errorf("%v", err)
	}
	second, err := s.Put(t.Context(), "r.a", nil, []byte("two"), first)
	if err != nil || second <= first {
		t.Errorf("%d: %v", second, err)
	}
	data, revision, err := s.Get(t.Context(), "r.a")
	if err != nil || string(data) != "two" || revision != second {
		t.Errorf("%s at %d: %v", data, revision, err)
	}
}

// Of many who write the same record at the same time one does, and the others are told what is there.
func TestOneOfManyWrites(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	s := open(t, js)
	var all sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 16 {
		all.Go(func() {
			_, err := s.Put(t.Context(), "r.a", nil, fmt.Appendf(nil, "by %d", i), 0)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !errors.Is(err, record.ErrTaken) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if won != 1 {
		t.Errorf("%d wrote it", won)
	}
}

// lossy loses the answers of the first writes, or lets them be refused although they were done.
type lossy struct {
	jetstream.JetStream

	err  error
	left int
}

func (l *lossy) PublishMsg(ctx context.Context, m *nats.Msg, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	ack, err := l.JetStream.PublishMsg(ctx, m, opts...)
	if l.left > 0 {
		l.left--
		return nil, l.err
	}
	return ack, err
}

// A write that was done is known to be, although its answer is lost, or says that it was not.
func TestAWriteThatWasDoneIsKnownToBe(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"no answer":       context.DeadlineExceeded,
		"refused":         &jetstream.APIError{Code: 400, ErrorCode: 10071, Description: "wrong last sequence: 0"},
		"in flight":       &jetstream.APIError{Code: 400, ErrorCode: 10164, Description: "wrong last sequence"},
		"no leader":       &jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "JetStream system temporarily unavailable"},
		"full, it says":   &jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum messages per subject exceeded"},
		"nobody listens":  jetstream.ErrNoStreamResponse,
		"connection lost": nats.ErrDisconnected,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, js := natstest.Connect(t, natstest.Server(t))
			open(t, js)
			s, openErr := record.Open(t.Context(), &lossy{JetStream: js, err: err, left: 1}, "R")
			if openErr != nil {
				t.Fatal(openErr)
			}
			revision, err := s.Put(t.Context(), "r.a", nil, []byte("one"), 0)
			if err != nil || revision != 1 {
				t.Errorf("revision %d: %v", revision, err)
			}
			if info, err := js.Stream(t.Context(), "R"); err != nil || info.CachedInfo().State.LastSeq != 1 {
				t.Errorf("written more than once: %v", err)
			}
		})
	}
}

// What can never be written is not tried for ever.
func TestWhatCannotBeWritten(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	s := open(t, js)
	if _, err := s.Put(t.Context(), "r.a", nil, make([]byte, 2<<20), 0); !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("%v", err)
	}
	full := &jetstream.APIError{Code: 503, ErrorCode: 10077, Description: "maximum bytes exceeded"}
	lost, err := record.Open(t.Context(), &lossy{JetStream: js, err: full, left: 1}, "R")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lost.Put(t.Context(), "r.b", nil, []byte("x"), 0); !errors.Is(err, full) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Put(ctx, "r.c", nil, []byte("x"), 0); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestExists(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"wrong last sequence: 7": true, "wrong last sequence: 0": false, "wrong last sequence": false} {
		if got := record.Exists(&jetstream.APIError{ErrorCode: 10071, Description: text}); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
	if record.Exists(&jetstream.APIError{ErrorCode: 10164, Description: "wrong last sequence: 7"}) || record.Exists(context.Canceled) {
		t.Error("a refusal that names nothing was taken for one that does")
	}
}

// Read goes on asking while the stream is away, as it is when its server restarts.
func TestReadWaitsForTheStore(t *testing.T) {
	t.Parallel()
	nc, js := natstest.Connect(t, natstest.Server(t))
	s := open(t, js)
	if err := js.DeleteStream(t.Context(), "R"); err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{}, 1)
	sub, err := nc.Subscribe("$JS.API.DIRECT.GET.R.r.a", func(m *nats.Msg) {
		select {
		case asked <- struct{}{}:
		default:
		}
		m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"503"}}}) //nolint:errcheck // asked again
	})
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		data, _, err := s.Read(t.Context(), "r.a")
		if err == nil && string(data) != "late" {
			err = fmt.Errorf("got %q", data)
		}
		read <- err
	}()
	<-asked
	// It is back, and answers only when it has the record.
	config := jetstream.StreamConfig{Name: "R", Subjects: []string{"r.>"}, MaxMsgsPerSubject: 1, Storage: jetstream.MemoryStorage}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "r.a", []byte("late")); err != nil {
		t.Fatal(err)
	}
	open(t, js)
	if err := sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	if err := <-read; err != nil {
		t.Error(err)
	}
}
