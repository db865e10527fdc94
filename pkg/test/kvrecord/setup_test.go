package kvrecord_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// records is the stream of the tests, and where it keeps its records.
const records = "R"

// create makes the stream.
func create(t testing.TB, js jetstream.JetStream, mutate ...func(*jetstream.StreamConfig)) {
	t.Helper()
	cfg := jetstream.StreamConfig{
		Name: records, Subjects: []string{"r.>"}, MaxMsgsPerSubject: 1, AllowDirect: true, AllowMsgTTL: true,
	}
	for _, m := range mutate {
		m(&cfg)
	}
	check.OK(t, check.Err(js.CreateStream(t.Context(), cfg)))
}

// open returns the stream, over a connection of its own.
func open(t testing.TB, srv *natsrun.Server, opts ...nats.Option) *kvrecord.Stream {
	t.Helper()
	_, js := natstest.Connect(t, srv, opts...)
	return client(t, kvrecord.Config{JetStream: js}).Stream(records)
}

func client(t testing.TB, cfg kvrecord.Config) *kvrecord.Client {
	t.Helper()
	c, err := kvrecord.New(cfg)
	check.OK(t, err)
	t.Cleanup(c.Close)
	return c
}

// setup makes the stream and returns it.
func setup(t testing.TB, srv *natsrun.Server) (*kvrecord.Stream, jetstream.JetStream) {
	t.Helper()
	_, js := natstest.Connect(t, srv)
	create(t, js)
	return open(t, srv), js
}

// put writes a record and fails the test when it cannot.
func put(t testing.TB, s *kvrecord.Stream, data string, over kvrecord.Record) kvrecord.Record {
	t.Helper()
	r, err := s.Put(t.Context(), kvrecord.Write{Subject: "r.a", Data: []byte(data), Over: over})
	check.OK(t, err)
	return r
}

// isWrite reports whether a message writes a record.
func isWrite(f natstest.Frame) bool { return f.FromClient && strings.HasPrefix(f.Subject, "r.") }

// wait lets fake time pass: only in a bubble.
func wait(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // costs no real time there

func conflict(err error) kvrecord.ConflictError {
	if c, ok := errors.AsType[*kvrecord.ConflictError](err); ok {
		return *c
	}
	return kvrecord.ConflictError{}
}

// Deleted tells the marks of a bucket from records.
func TestDeletedKeysOfABucket(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	_, js := natstest.Connect(t, srv)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"})
	check.OK(t, err)
	s := client(t, kvrecord.Config{JetStream: js}).Bucket("b")
	remove := map[string]func(context.Context, string, ...jetstream.KVDeleteOpt) error{"deleted": kv.Delete, "purged": kv.Purge, "kept": nil}
	for _, key := range slices.Collect(maps.Keys(remove)) {
		check.OK(t, check.Err(kv.Put(t.Context(), key, []byte("v"))))
		if remove[key] != nil {
			check.OK(t, remove[key](t.Context(), key))
		}
		r, err := s.Get(t.Context(), "$KV.b."+key)
		check.That(t, err == nil && r.Deleted() == (remove[key] != nil) && (len(r.Data) == 0) == r.Deleted(), "%s: got %+v, %v", key, r, err)
		check.Is(t, check.Err(s.Put(t.Context(), kvrecord.Write{Subject: "$KV.b." + key, Data: []byte("w"), Over: r})), nil, key)
	}
}
