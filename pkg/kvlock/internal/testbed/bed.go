// Package testbed has the shared parts of the tests of locks and of results: servers with a bucket, locks and claims in one line, and
// lost answers.
package testbed

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
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Bucket is the name of the bucket.
const Bucket = "b"

// Lateness is the time after its TTL at which the server removes a claim, and Step the time between two reads of a Flight then.
const (
	Lateness = 350 * time.Millisecond
	Step     = 60 * time.Millisecond
)

// Bed is a separate server with a bucket.
type Bed struct {
	Srv *natsrun.Server
	JS  jetstream.JetStream // for reads and writes of the test itself
}

// New starts a server, and makes the bucket.
func New(t testing.TB) *Bed {
	t.Helper()
	srv := natstest.Server(t)
	return On(t, srv, kvlock.BucketConfig{Bucket: Bucket})
}

// InBubble is New under fake time: time-outs and TTLs pass at once.
func InBubble(t *testing.T, f func(t *testing.T, b *Bed)) {
	t.Helper()
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		f(t, On(t, srv, kvlock.BucketConfig{Bucket: Bucket}))
	})
}

// RunInBubble runs InBubble as a subtest.
func RunInBubble(t *testing.T, name string, f func(t *testing.T, b *Bed)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { InBubble(t, f) })
}

// On makes the bucket on a server.
func On(t testing.TB, srv *natsrun.Server, cfg kvlock.BucketConfig) *Bed {
	t.Helper()
	_, js := natstest.Connect(t, srv)
	check.OK(t, kvlock.CreateBucket(t.Context(), js, cfg))
	return &Bed{Srv: srv, JS: js}
}

// DeleteBucket removes the bucket, and makes another stream in its place. With the last stream the server also removes the streams'
// folder, at the same time as it serves the next request. That request fails if it creates a stream.
func (b *Bed) DeleteBucket(t testing.TB) {
	t.Helper()
	_, err := b.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "STAYS", Subjects: []string{"stays"}})
	if err == nil {
		err = b.JS.DeleteStream(t.Context(), "KV_"+Bucket)
	}
	check.OK(t, err)
}

// RecreateBucket deletes the bucket, and makes it again after a time. Its revisions begin at 1, as in a bucket that an administrator makes
// from a file.
func (b *Bed) RecreateBucket(t testing.TB, after time.Duration) {
	t.Helper()
	b.DeleteBucket(t)
	if after > 0 {
		natstest.Pass(after)
	}
	_, err := b.JS.CreateStream(t.Context(), kvlock.StreamConfig(kvlock.BucketConfig{Bucket: Bucket}))
	check.OK(t, err)
}

// Flight returns a Flight with a separate connection, as in another process.
func (b *Bed) Flight(t testing.TB, cfg flight.Config, opts ...nats.Option) *flight.Flight {
	t.Helper()
	_, js := natstest.Connect(t, b.Srv, opts...)
	return FlightOn(t, js, cfg)
}

// ProxiedFlight is Flight on a connection through a proxy.
func (b *Bed) ProxiedFlight(t testing.TB, cfg flight.Config) (*flight.Flight, *natstest.Proxy) {
	t.Helper()
	p := natstest.NewProxy(t, b.Srv)
	return b.Flight(t, cfg, p.Through()), p
}

// FlightOn returns a Flight on a connection.
func FlightOn(t testing.TB, js jetstream.JetStream, cfg flight.Config) *flight.Flight {
	t.Helper()
	cfg.Bucket, cfg.Logger, cfg.OpTimeout = Bucket, Quiet(cfg.Logger), opTimeout(cfg.OpTimeout)
	f, err := flight.New(t.Context(), js, cfg)
	return Closed(t, f, err)
}

// begun is the time at which the test program started. The fake time of a Bubble begins before it.
var begun = time.Now()

// opTimeout returns d, or what it defaults to. In real time that is a minute: a busy machine must not fail a test.
func opTimeout(d time.Duration) time.Duration {
	if d == 0 && time.Now().After(begun) {
		return time.Minute
	}
	return d
}

// Quiet returns l, or a logger that writes nothing.
func Quiet(l *slog.Logger) *slog.Logger { return cmp.Or(l, slog.New(slog.DiscardHandler)) }

// Closed returns opened, and closes it when the test ends.
func Closed[T interface{ Close() }](t testing.TB, opened T, err error) T {
	t.Helper()
	check.OK(t, err)
	t.Cleanup(opened.Close)
	return opened
}

// Present is Last for a key that must have an entry.
func (b *Bed) Present(t testing.TB, key string) *jetstream.RawStreamMsg {
	t.Helper()
	m := b.Last(t, key)
	check.Require(t, m != nil, "%s is not stored", key)
	return m
}

// Last returns the bucket's entry of a key, not read through a Flight; nil when there is none.
func (b *Bed) Last(t testing.TB, key string) *jetstream.RawStreamMsg {
	t.Helper()
	stream := check.Must(b.JS.Stream(t.Context(), "KV_"+Bucket))(t)
	m, err := stream.GetLastMsgForSubject(t.Context(), "$KV."+Bucket+"."+key)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	check.OK(t, err)
	return m
}

// Begin claims a key.
func Begin(t testing.TB, f *flight.Flight, key string, opts flight.BeginOptions) *flight.Claim {
	t.Helper()
	c, err := f.Begin(t.Context(), key, opts)
	check.Require(t, err == nil, "begin %s: %v", key, err)
	return c
}

// Complete ends a claim with a value.
func Complete(t testing.TB, c *flight.Claim, value string) flight.Entry {
	t.Helper()
	s, err := c.Complete(t.Context(), []byte(value), 0)
	if err != nil {
		t.Fatalf("complete %s: %v", c.Key(), err)
	}
	return s
}

// Get reads a key.
func Get(t testing.TB, f *flight.Flight, key string) flight.Entry {
	t.Helper()
	s, err := f.Get(t.Context(), key)
	check.Require(t, err == nil, "get %s: %v", key, err)
	return s
}

// Within returns a context that bounds a test's wait, so that the test fails instead of hanging. Nothing else depends on its time.
func Within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Took fails the test unless the time since start is at least least and at most most.
func Took(t testing.TB, what string, start time.Time, least, most time.Duration) {
	t.Helper()
	took := time.Since(start)
	check.That(t, took >= least && took <= most, "%s: took %s, want %s to %s", what, took, least, most)
}

// Await receives from c, or fails the test.
func Await[T any](t testing.TB, c <-chan T, event string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-Within(t).Done():
		t.Fatalf("timed out: %s", event)
		panic("unreachable")
	}
}

// Logged keeps the log of a Flight.
type Logged struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write adds to the log.
func (l *Logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns the log.
func (l *Logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Count returns the number of times that text was logged.
func (l *Logged) Count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// Logger returns a logger that writes to l.
func (l *Logged) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// Writes returns the number of writes since the bucket was made.
func (b *Bed) Writes(t testing.TB) uint64 {
	t.Helper()
	stream := check.Must(b.JS.Stream(t.Context(), "KV_"+Bucket))(t)
	info := stream.CachedInfo()
	return info.State.LastSeq + 1 - max(1, info.Config.FirstSeq)
}

// Serve runs a server with a bucket, for an example.
func Serve(bucket string) (js jetstream.JetStream, stop func()) {
	srv, err := natsrun.Start(natsrun.Config{})
	if err != nil {
		panic(err)
	}
	nc, err := srv.Connect()
	if err != nil {
		panic(err)
	}
	if js, err = jetstream.New(nc); err != nil {
		panic(err)
	}
	if err := kvlock.CreateBucket(context.Background(), js, kvlock.BucketConfig{Bucket: bucket}); err != nil {
		panic(err)
	}
	return js, func() {
		nc.Close()
		srv.Stop()
	}
}

// Listening is New with a server that other processes reach.
func Listening(t *testing.T) *Bed {
	t.Helper()
	return On(t, natstest.Server(t, func(c *natsrun.Config) { c.Listen = true }), kvlock.BucketConfig{Bucket: Bucket})
}

// IsWrite reports whether the frame writes the key.
func IsWrite(f natstest.Frame, key string) bool {
	return f.FromClient && f.Subject == "$KV."+Bucket+"."+key
}

// Writes returns IsWrite for one key.
func Writes(key string) func(natstest.Frame) bool {
	return func(f natstest.Frame) bool { return IsWrite(f, key) }
}

// Lag makes every read of a replica find nothing, until stop is called.
func Lag(p *natstest.Proxy) (stop func()) {
	asked := map[string]bool{}
	p.Change(func(f natstest.Frame) []byte {
		switch {
		case f.FromClient && strings.HasPrefix(f.Subject, "$JS.API.DIRECT.GET."):
			asked[f.Reply] = true
		case !f.FromClient && asked[f.Subject]:
			const none = "NATS/1.0 404 No Results\r\n\r\n"
			return f.With([]byte(none), len(none))
		}
		return nil
	})
	return func() { p.Change(nil) }
}

// IsPush reports whether the frame pushes a change to a client.
func IsPush(f natstest.Frame) bool {
	return !f.FromClient && strings.HasPrefix(f.Subject, "rp."+Bucket+".")
}

// LosePushes is a filter that loses all pushes.
var LosePushes = natstest.Losing(IsPush)
