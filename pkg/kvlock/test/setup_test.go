package kvlock_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

const bucket = "b"

// bed is a server of its own with a bucket.
type bed struct {
	srv *natsrun.Server
	js  jetstream.JetStream // for the test itself to look and to meddle
}

func setup(t testing.TB) *bed {
	t.Helper()
	srv := natstest.Server(t)
	return bedOn(t, srv, kvlock.BucketConfig{Bucket: bucket})
}

// inBubble is setup under fake time: time-outs and TTLs pass at once.
func inBubble(t *testing.T, f func(t *testing.T, b *bed)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		f(t, bedOn(t, srv, kvlock.BucketConfig{Bucket: bucket}))
	})
}

// pass lets fake time pass: only in a bubble.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // costs no real time there

func bedOn(t testing.TB, srv *natsrun.Server, cfg kvlock.BucketConfig) *bed {
	t.Helper()
	_, js := natstest.Connect(t, srv)
	if err := kvlock.CreateBucket(t.Context(), js, cfg); err != nil {
		t.Fatal(err)
	}
	return &bed{srv: srv, js: js}
}

// deleteBucket removes the bucket, and leaves another stream in its place: when the last stream has gone the server removes
// their folder, too, beside whatever it is asked next. That fails if it is to make a stream.
func (b *bed) deleteBucket(t testing.TB) {
	t.Helper()
	_, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "STAYS", Subjects: []string{"stays"}})
	if err == nil {
		err = b.js.DeleteStream(t.Context(), "KV_"+bucket)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// makeBucketAnew is deleteBucket and makes the bucket again, after a while in which there is none.
func (b *bed) makeBucketAnew(t testing.TB, after time.Duration) {
	t.Helper()
	b.deleteBucket(t)
	if after > 0 {
		pass(after)
	}
	if err := kvlock.CreateBucket(t.Context(), b.js, kvlock.BucketConfig{Bucket: bucket}); err != nil {
		t.Fatal(err)
	}
}

// flight is a Flight with a connection of its own, as another process has it.
func (b *bed) flight(t testing.TB, cfg kvlock.Config, opts ...nats.Option) *kvlock.Flight {
	t.Helper()
	_, js := natstest.Connect(t, b.srv, opts...)
	return flightOn(t, js, cfg)
}

func connect(t testing.TB, srv *natsrun.Server, opts ...nats.Option) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	return natstest.Connect(t, srv, opts...)
}

func flightOn(t testing.TB, js jetstream.JetStream, cfg kvlock.Config) *kvlock.Flight {
	t.Helper()
	cfg.Bucket, cfg.Logger = bucket, quiet(cfg.Logger)
	f, err := kvlock.NewFlight(t.Context(), js, cfg)
	return closed(t, f, err)
}

func quiet(l *slog.Logger) *slog.Logger { return cmp.Or(l, slog.New(slog.DiscardHandler)) }

// closed has what was opened closed when the test ends.
func closed[T interface{ Close() }](t testing.TB, opened T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Close)
	return opened
}

// present is last of a key that is there.
func (b *bed) present(t testing.TB, key string) *jetstream.RawStreamMsg {
	t.Helper()
	m := b.last(t, key)
	if m == nil {
		t.Fatalf("%s is not stored", key)
	}
	return m
}

// last is what the bucket has of a key, without reading through a Flight; nil when it has nothing.
func (b *bed) last(t testing.TB, key string) *jetstream.RawStreamMsg {
	t.Helper()
	stream, err := b.js.Stream(t.Context(), "KV_"+bucket)
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetLastMsgForSubject(t.Context(), "$KV."+bucket+"."+key)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func begin(t testing.TB, f *kvlock.Flight, key string, opts kvlock.BeginOptions) *kvlock.Claim {
	t.Helper()
	c, err := f.Begin(t.Context(), key, opts)
	if err != nil {
		t.Fatalf("begin %s: %v", key, err)
	}
	return c
}

func complete(t testing.TB, c *kvlock.Claim, value string) kvlock.Slot {
	t.Helper()
	s, err := c.Complete(t.Context(), []byte(value), 0)
	if err != nil {
		t.Fatalf("complete %s: %v", c.Key(), err)
	}
	return s
}

func get(t testing.TB, f *kvlock.Flight, key string) kvlock.Slot {
	t.Helper()
	s, err := f.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return s
}

// wantSlot checks state and value of a key, read anew.
func wantSlot(t testing.TB, f *kvlock.Flight, key string, state kvlock.State, value string) kvlock.Slot {
	t.Helper()
	s := get(t, f, key)
	if s.State != state || string(s.Value) != value {
		t.Errorf("%s is %s with %q, want %s with %q", key, s.State, s.Value, state, value)
	}
	return s
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// within gives a test's wait an end that is a failure, and not a hang. Nothing else depends on when it is.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func await[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-within(t).Done():
		t.Fatalf("timed out: %s", what)
		panic("unreachable")
	}
}

// logged keeps what a Flight logs.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
