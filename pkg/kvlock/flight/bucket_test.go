package flight_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestBucketWithWrongSettingsIsRefused(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	check.OK(t, check.Err(js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{
		Bucket: testbed.Bucket, History: 5, LimitMarkerTTL: time.Minute, TTL: time.Hour,
	})))
	check.ErrorContains(t, check.Err(flight.New(t.Context(), js, flight.Config{Bucket: testbed.Bucket})), "limit markers", "history is 5",
		"MaxAge", "kvlock.CreateBucket")
	for maker, err := range map[string]error{
		"kvlock.CreateBucket":         check.Err(flight.New(t.Context(), js, flight.Config{Bucket: "nowhere"})),
		"it with kvlock.CreateBucket": check.Err(kvlock.NewGuard(t.Context(), js, kvlock.GuardConfig{Bucket: "nowhere"})),
		"with kvlock.CreateBucket":    check.Err(kvlock.NewLocker(t.Context(), js, kvlock.LockerConfig{Bucket: "nowhere"})),
		"flight.CreateLargeValueBucket": check.Err(flight.New(t.Context(), testbed.New(t).JS, flight.Config{
			Bucket: testbed.Bucket, LargeValueBucket: "nowhere",
		})),
	} {
		check.ErrorIs(t, err, jetstream.ErrStreamNotFound)
		check.ErrorContains(t, err, maker, `"nowhere"`)
	}
}

func TestCreateBucketLeavesAnExistingOne(t *testing.T) {
	t.Parallel()
	b := testbed.New(t)
	testbed.Complete(t, testbed.Begin(t, b.Flight(t, flight.Config{}), "k", flight.BeginOptions{}), "v")
	for _, cfg := range []kvlock.BucketConfig{{Bucket: testbed.Bucket}, {Bucket: testbed.Bucket, Description: "another"}} {
		check.ErrorIs(t, kvlock.CreateBucket(t.Context(), b.JS, cfg), nil, cfg)
	}
	wantEntry(t, b.Flight(t, flight.Config{}), "k", flight.Done, "v")
}

// The server does not answer a request that it does not permit. The error says so all the same.
func TestPermissionDeniedIsNamed(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		testbed.On(t, srv, kvlock.BucketConfig{Bucket: testbed.Bucket})
		quiet := nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})
		_, js := natstest.Connect(t, srv, natstest.Restricted(), quiet)
		f := testbed.FlightOn(t, js, flight.Config{OpTimeout: 200 * time.Millisecond})
		_, err := f.Begin(t.Context(), "k", flight.BeginOptions{})
		check.ErrorIs(t, err, kvlock.ErrUnavailable)
		check.ErrorIs(t, err, nats.ErrPermissionViolation)
		wantEntry(t, f, "k", flight.Absent, "")
	}, natstest.Restrict(server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$KV.>"}}}))
}

// The permissions in README.md are enough.
func TestDocumentedPermissionsAreEnough(t *testing.T) {
	t.Parallel()
	f, _ := documented(t, flight.Config{})
	ctx := testbed.Within(t)
	c := testbed.Begin(t, f, "k", flight.BeginOptions{})
	waited := make(chan error, 1)
	go func() { waited <- check.Err(f.Wait(ctx, "k")) }()
	c = check.Must(f.Resume(ctx, "k", c.Ref(), flight.ResumeOptions{}))(t)
	check.OK(t, c.Renew(ctx, 0))
	testbed.Complete(t, c, "v")
	check.ErrorIs(t, testbed.Await(t, waited, "the waiter"), nil)
	r, err := f.Do(ctx, "k", nil, flight.DoOptions{})
	check.That(t, err == nil && string(r.Value) == "v", "got %+v, %v", r, err)
	check.ErrorIs(t, f.Invalidate(ctx, "k"), nil)
}

// documented returns a Flight of a client that has the permissions of README.md, and may do no more: a refused
// permission fails the test.
func documented(t *testing.T, cfg flight.Config, publish ...string) (*flight.Flight, *testbed.Bed) {
	t.Helper()
	publish = append(publish, "$JS.API.STREAM.INFO.KV_b", "$JS.API.DIRECT.GET.KV_b", "$JS.API.STREAM.MSG.GET.KV_b", "$KV.b.>", "kvlock.alive.b.>")
	b := withLargeValueBucket(t, testbed.On(t, natstest.Server(t, natstest.Restrict(server.Permissions{
		Publish:   &server.SubjectPermission{Allow: publish},
		Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>", "rp.b.>", "kvlock.alive.b.>"}},
	})), kvlock.BucketConfig{Bucket: testbed.Bucket}))
	var violations atomic.Int64
	nc, js := natstest.Connect(t, b.Srv, natstest.Restricted(), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		t.Log(err)
		violations.Add(1)
	}))
	t.Cleanup(func() {
		check.OK(t, nc.Flush()) // all that the server refused has come
		check.Equal(t, violations.Load(), 0, "violations.Load()")
	})
	return testbed.FlightOn(t, js, cfg), b
}

// JetStream is reached under the prefix of a domain, as from a leaf node.
func TestJetStreamDomain(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) {
		natsrun.ChangeOptions(c, func(o *server.Options) { o.JetStreamDomain = "hub" })
	})
	testbed.On(t, srv, kvlock.BucketConfig{Bucket: testbed.Bucket})
	nc, _ := natstest.Connect(t, srv)
	js := check.Must(jetstream.NewWithDomain(nc, "hub"))(t)
	f := testbed.FlightOn(t, js, flight.Config{})
	c := testbed.Begin(t, f, "k", flight.BeginOptions{})
	check.ErrorIs(t, check.Err(f.Begin(t.Context(), "k", flight.BeginOptions{})), flight.ErrTaken)
	testbed.Complete(t, c, "v")
	s, err := f.Wait(testbed.Within(t), "k")
	check.That(t, err == nil && string(s.Value) == "v", "got %+v, %v", s, err)
}

// A killed server finds again, in its file, the value that a marker hid. That value must not be believed, whatever
// became of the key after it was invalidated.
func TestInvalidatedValueDoesNotComeBack(t *testing.T) {
	dir, crashed := "", t.TempDir()
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		b := testbed.On(t, srv, kvlock.BucketConfig{Bucket: testbed.Bucket})
		f := b.Flight(t, flight.Config{})
		ctx := t.Context()
		short := func(key string) *flight.Claim { return testbed.Begin(t, f, key, flight.BeginOptions{TTL: time.Second}) }
		after := map[string]func(key string) error{
			"invalidated": func(string) error { return nil },
			"expired":     func(key string) error { short(key); return nil },
			"failed":      func(key string) error { return short(key).Fail(ctx, "r", time.Second) },
			"done":        func(key string) error { return check.Err(short(key).Complete(ctx, []byte("new"), time.Second)) },
			"released":    func(key string) error { return short(key).Release(ctx) },
		}
		for key, then := range after {
			check.OK(t, check.Err(testbed.Begin(t, f, key, flight.BeginOptions{}).Complete(ctx, []byte("old"), time.Hour)))
			check.OK(t, f.Invalidate(ctx, key))
			check.OK(t, then(key))
		}
		testbed.Complete(t, testbed.Begin(t, f, "other", flight.BeginOptions{}), "v") // keeps the file
		natstest.Pass(10 * time.Minute)
		check.OK(t, os.CopyFS(crashed, os.DirFS(dir))) // the files as a SIGKILL leaves them, with the index not yet written
		check.OK(t, os.Remove(filepath.Join(crashed, "jetstream/$G/streams/KV_"+testbed.Bucket+"/msgs/index.db")))
		revived := &testbed.Bed{Srv: natstest.Server(t, func(c *natsrun.Config) { c.Dir = crashed })}
		g := revived.Flight(t, flight.Config{})
		for key := range after {
			s := testbed.Get(t, g, key)
			check.That(t, string(s.Value) != "old", "%s came back: %+v", key, s)
		}
	}, func(c *natsrun.Config) { natsrun.ChangeOptions(c, func(o *server.Options) { dir = o.StoreDir }) })
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// transients calls a function when the cluster is first found not ready to make a stream.
type transients struct {
	jetstream.JetStream

	found func()
}

func (s *transients) CreateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := s.JetStream.CreateStream(ctx, cfg)
	if jsapi.IsTransient(err) {
		s.found()
	}
	return stream, err
}

func TestBucketsAreMadeOnceTheClusterIsReady(t *testing.T) {
	t.Parallel()
	c := natstest.Cluster(t, 3)
	_, js := natstest.ConnectURL(t, c.URLs())
	down := natstest.Forget(t, c)
	var once sync.Once
	started := make(chan error, 1)
	watched := &transients{js, func() { once.Do(func() { go func() { started <- down.Start(t.Context()) }() }) }}
	cfg := kvlock.BucketConfig{Bucket: testbed.Bucket, Replicas: 3}
	check.ErrorIs(t, errors.Join(kvlock.CreateBucket(t.Context(), watched, cfg), flight.CreateLargeValueBucket(t.Context(), js, cfg)), nil)
	once.Do(func() {
		t.Error("the server has refused nothing")
		started <- nil
	})
	check.ErrorIs(t, errors.Join(<-started, c.WaitReady(t.Context())),
		nil) // a node that is stopped while it makes a replica leaves a goroutine
}
