package kvlock_test

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/test/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection" // in every server process
)

const (
	bucket   = testbed.Bucket
	lateness = testbed.Lateness
	step     = testbed.Step
)

func TestMain(m *testing.M) { crash.Main(m, 2, holder) }

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

// died makes a Locker that is never heard of again once gone is called.
func died(t *testing.T, b *bed, cfg kvlock.LockerConfig) (l *kvlock.Locker, gone func()) {
	t.Helper()
	return testbed.Died(t, b.Bed, cfg)
}

// What the tests of this package use most of the testbed.
var (
	acquire    = testbed.Acquire
	acquiring  = testbed.Acquiring
	begin      = testbed.Begin
	complete   = testbed.Complete
	connect    = natstest.Connect
	flightOn   = testbed.FlightOn
	get        = testbed.Get
	isPush     = testbed.IsPush
	isWrite    = testbed.IsWrite
	inspect    = testbed.Inspect
	lockerOn   = testbed.LockerOn
	losePushes = testbed.LosePushes
	losing     = testbed.Losing
	pass       = testbed.Pass
	patiently  = testbed.Patiently
	places     = testbed.Places
	queue      = testbed.Queue
	release    = testbed.Release
	wantErr    = testbed.WantErr
	within     = testbed.Within
	writes     = testbed.Writes
)

type logged = testbed.Logged
