package flight_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/test/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// callerEnv makes the test binary a process that computes or gets a value of 10 MB: the address of its server.
const callerEnv = "KVLOCK_TEST_CALLER"

const largeValue = 10 << 20

// callerMain is the life of such a process. It says "computes" when it does, and then waits for a line; in the end it
// says what it got.
func callerMain() {
	url := os.Getenv(callerEnv)
	if url == "" {
		return
	}
	err := testbed.Live(url, func(ctx context.Context, js jetstream.JetStream) error { return call(ctx, js, os.Stdin, os.Stdout) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "caller:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func call(ctx context.Context, js jetstream.JetStream, in io.Reader, out io.Writer) error {
	f, err := flight.New(ctx, js, flight.Config{Bucket: bucket, LargeValueBucket: attic})
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := f.Do(ctx, "large", func(context.Context) ([]byte, error) {
		if _, err := fmt.Fprintln(out, "computes"); err != nil {
			return nil, err
		}
		_, err := bufio.NewReader(in).ReadString('\n')
		return noise(largeValue), err
	}, flight.DoOptions{})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s %x\n", r.Outcome, sha256.Sum256(r.Value))
	return err
}

func startCaller(t *testing.T, url string) (in io.Writer, lines *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), callerEnv+"="+url)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return in, bufio.NewScanner(out)
}

// Of two processes that ask for 10 MB, one computes and the other gets it.
func TestLargeValueInTwoProcesses(t *testing.T) {
	t.Parallel()
	b := listening(t).withLargeValueBucket(t)
	want := fmt.Sprintf("%x", sha256.Sum256(noise(largeValue)))
	in, computer := startCaller(t, b.Srv.URL())
	if !computer.Scan() || computer.Text() != "computes" {
		t.Fatalf("the first says %q, %v", computer.Text(), computer.Err())
	}
	_, waiter := startCaller(t, b.Srv.URL())
	if _, err := io.WriteString(in, "go on\n"); err != nil {
		t.Fatal(err)
	}
	if !computer.Scan() || computer.Text() != "computed "+want {
		t.Errorf("the first says %q, %v", computer.Text(), computer.Err())
	}
	if !waiter.Scan() || waiter.Text() != "coalesced "+want && waiter.Text() != "cached "+want {
		t.Errorf("the second says %q, %v", waiter.Text(), waiter.Err())
	}
}

// The permissions in README.md are enough for values in the Object Store, to write and to read them.
func TestPermissionsForObjects(t *testing.T) {
	t.Parallel()
	var violations atomic.Int64
	srv := natstest.Server(t, func(c *natsrun.Config) {
		natsrun.ChangeOptions(c, func(o *server.Options) {
			o.Users = []*server.User{
				{Username: "admin", Password: "x"},
				{Username: "service", Password: "x", Permissions: &server.Permissions{
					Publish: &server.SubjectPermission{Allow: []string{
						"$JS.API.STREAM.INFO.KV_b", "$JS.API.DIRECT.GET.KV_b", "$JS.API.STREAM.MSG.GET.KV_b", "$KV.b.>",
						"$JS.API.STREAM.INFO.OBJ_attic", "$JS.API.DIRECT.GET.OBJ_attic", "$JS.API.STREAM.MSG.GET.OBJ_attic", "$O.attic.>", "kvlock.alive.b.>",
					}},
					Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>", "rp.b.>", "kvlock.alive.b.>"}},
				}},
			}
		})
	})
	_, js := connect(t, srv, nats.UserInfo("admin", "x"))
	if err := errors.Join(
		kvlock.CreateBucket(t.Context(), js, kvlock.BucketConfig{Bucket: bucket}),
		flight.CreateLargeValueBucket(t.Context(), js, kvlock.BucketConfig{Bucket: attic}),
	); err != nil {
		t.Fatal(err)
	}
	_, js = connect(t, srv, nats.UserInfo("service", "x"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		t.Log(err)
		violations.Add(1)
	}))
	f, value := flightOn(t, js, largeValues), noise(2<<20)
	completeBytes(t, begin(t, f, "k", flight.BeginOptions{}), value)
	readEveryWay(t, f, "k", value)
	b := &bed{&testbed.Bed{JS: js}}
	b.put(t, "torn", `"value":{"size":10,"object":{"bucket":"attic","name":"c-1-n","size":10,"digest":"SHA-256=x"}}`, nil)
	wantSlot(t, f, "torn", flight.Absent, "")
	if violations.Load() != 0 {
		t.Errorf("%d violations", violations.Load())
	}
}
