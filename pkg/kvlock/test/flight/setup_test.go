package flight_test

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/test/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection" // in every server process
)

func TestMain(m *testing.M) { crash.Main(m, 2, holder, caller) }

const (
	bucket   = testbed.Bucket
	lateness = testbed.Lateness
	step     = testbed.Step
)

// bed is a server of its own with a bucket.
type bed struct{ *testbed.Bed }

func setup(t testing.TB) *bed {
	t.Helper()
	return &bed{testbed.New(t)}
}

func bedOn(t testing.TB, srv *natsrun.Server, cfg kvlock.BucketConfig) *bed {
	t.Helper()
	return &bed{testbed.On(t, srv, cfg)}
}

func listening(t *testing.T) *bed {
	t.Helper()
	return &bed{testbed.Listening(t)}
}

func inBubble(t *testing.T, f func(t *testing.T, b *bed)) {
	t.Helper()
	testbed.InBubble(t, func(t *testing.T, b *testbed.Bed) { f(t, &bed{b}) })
}

func runInBubble(t *testing.T, name string, f func(t *testing.T, b *bed)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { inBubble(t, f) })
}

// wantEntry checks state and value of a key, read anew.
func wantEntry(t testing.TB, f *flight.Flight, key string, state flight.State, value string) flight.Entry {
	t.Helper()
	s := get(t, f, key)
	check.That(t, s.State == state && string(s.Value) == value, "%s is %s with %q, want %s with %q", key, s.State, s.Value, state, value)
	return s
}

// Short names for the parts of the testbed that these tests use most.
var (
	begin      = testbed.Begin
	complete   = testbed.Complete
	connect    = natstest.Connect
	flightOn   = testbed.FlightOn
	get        = testbed.Get
	isPush     = testbed.IsPush
	isWrite    = testbed.IsWrite
	losePushes = testbed.LosePushes
	losing     = natstest.Losing
	pass       = testbed.Pass
	wantErr    = check.Is
	within     = testbed.Within
	writes     = testbed.Writes
)

type logged = testbed.Logged
