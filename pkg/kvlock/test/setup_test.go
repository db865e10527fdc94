package kvlock_test

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/kvlock/test/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection" // in every server process
)

const (
	bucket   = testbed.Bucket
	lateness = testbed.Lateness
	step     = testbed.Step
)

func TestMain(m *testing.M) { crash.Main(m, 2, holder) }

// What the tests of this package use most of the testbed.
var (
	acquire     = testbed.Acquire
	acquiring   = testbed.Acquiring
	begin       = testbed.Begin
	complete    = testbed.Complete
	connect     = natstest.Connect
	died        = testbed.Died
	flightOn    = testbed.FlightOn
	get         = testbed.Get
	isPush      = testbed.IsPush
	isWrite     = testbed.IsWrite
	inBubble    = testbed.InBubble
	inspect     = testbed.Inspect
	listening   = testbed.Listening
	lockerOn    = testbed.LockerOn
	losePushes  = testbed.LosePushes
	losing      = natstest.Losing
	pass        = testbed.Pass
	patiently   = testbed.Patiently
	places      = testbed.Places
	queue       = testbed.Queue
	release     = testbed.Release
	runInBubble = testbed.RunInBubble
	setup       = testbed.New
	wantErr     = check.Is
	within      = testbed.Within
	writes      = testbed.Writes
)

type (
	bed    = testbed.Bed
	logged = testbed.Logged
)
