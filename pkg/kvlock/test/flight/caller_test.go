package flight_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/test/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

const largeValue = 10 << 20

// goOn is the subject of a message that lets a caller end its computation.
const goOn = "go.on"

// caller is a process that computes or gets a large value. It prints "computes" or "waits", and in the end the outcome and
// the digest of the value.
var caller = testbed.Role("caller", call)

func call(ctx context.Context, js jetstream.JetStream, _ testbed.Client) error {
	f, err := flight.New(ctx, js, flight.Config{Bucket: bucket, LargeValueBucket: attic, Observe: func(_ context.Context, e flight.Event) {
		if e.Kind == flight.EventWaiting {
			fmt.Fprintln(os.Stdout, "waits") //nolint:errcheck // the test waits for it
		}
	}})
	if err != nil {
		return err
	}
	defer f.Close()
	told, err := js.Conn().SubscribeSync(goOn)
	if err != nil {
		return err
	}
	r, err := f.Do(ctx, "large", func(ctx context.Context) ([]byte, error) {
		fmt.Fprintln(os.Stdout, "computes") //nolint:errcheck // the test waits for it
		_, err := told.NextMsgWithContext(ctx)
		return noise(largeValue), err
	}, flight.DoOptions{})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(os.Stdout, "%s %x\n", r.Outcome, sha256.Sum256(r.Value))
	return err
}

// Of two processes that ask for 10 MB, one computes and the other gets it.
func TestLargeValueInTwoProcesses(t *testing.T) {
	t.Parallel()
	b := listening(t).withLargeValueBucket(t)
	task := testbed.Client{URL: b.Srv.URL()}
	computer := caller.Start(t, task)
	computer.Await("^computes$")
	waiter := caller.Start(t, task)
	waiter.Await("^waits$")
	check.OK(t, b.JS.Conn().Publish(goOn, nil))
	digest := fmt.Sprintf("%x", sha256.Sum256(noise(largeValue)))
	if got, want := computer.Line(), "computed "+digest; got != want {
		t.Errorf("the first printed %q, want %q", got, want)
	}
	if got, want := waiter.Line(), "coalesced "+digest; got != want {
		t.Errorf("the second printed %q, want %q", got, want)
	}
}

// The permissions in README.md are enough for values in the Object Store, to write and to read them.
func TestPermissionsForObjects(t *testing.T) {
	t.Parallel()
	f, b := documented(t, largeValues, "$JS.API.STREAM.INFO.OBJ_attic", "$JS.API.DIRECT.GET.OBJ_attic", "$JS.API.STREAM.MSG.GET.OBJ_attic", "$O.attic.>")
	value := noise(2 << 20)
	completeBytes(t, begin(t, f, "k", flight.BeginOptions{}), value)
	readEveryWay(t, f, "k", value)
	b.put(t, "torn", `"value":{"size":10,"object":{"bucket":"attic","name":"c-1-n","size":10,"digest":"SHA-256=x"}}`, nil)
	wantSlot(t, f, "torn", flight.Absent, "")
}
