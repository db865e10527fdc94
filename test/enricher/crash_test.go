package enricher_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// nPlaces is how many places everybody asks about.
const nPlaces = 50

// process is one instance of the enricher in a process of its own.
type process struct {
	name string
	url  string
	cmd  *exec.Cmd
}

func startInstance(t *testing.T, name, nats, farSide string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envInstance+"="+name, envNATS+"="+nats, envProvider+"="+farSide)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have been killed
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("instance %s did not start: %v", name, err)
	}
	return &process{name: name, url: strings.TrimSpace(line), cmd: cmd}
}

func places(n int) []contracts.Restaurant {
	list := make([]contracts.Restaurant, n)
	for i := range list {
		list[i] = contracts.Restaurant{
			PlaceID: fmt.Sprintf("place-%02d", i), Name: fmt.Sprintf("Kitchen-%02d", i), Address: fmt.Sprintf("Harbour Road %d", i+1), CityText: "Haifa",
		}
	}
	return list
}

// TestCrash has three instances asked 200 times each, at the same moment, for the same 50 new places. One instance is
// killed in the middle of a look-up, and the server is restarted in the middle of everything. Each place is looked up
// once, but for what the killed instance was in the middle of; everybody is told everything, and nothing twice.
func TestCrash(t *testing.T) {
	t.Parallel()
	const requestsPerInstance, restartAfter = 200, 20
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	far := newFarSide(t)
	var instances []*process
	var urls []string
	for _, name := range []string{"a", "b", "c"} {
		p := startInstance(t, name, srv.URL(), far.URL)
		instances, urls = append(instances, p), append(urls, p.url)
	}
	victim := "Kitchen-25"
	release := far.holdFirst(victim)

	httpClient := newHTTP(t)
	clients := make([]*client, 3*requestsPerInstance)
	var wg sync.WaitGroup
	errs := make(chan error, len(clients))
	for i := range clients {
		clients[i] = &client{http: httpClient, instances: urls, req: contracts.EnrichRequest{RequestID: fmt.Sprintf("r%03d", i), Results: places(nPlaces)}}
		wg.Go(func() { errs <- clients[i].run(ctx) })
	}

	// Wait until the victim's place is being looked up, and kill who does that.
	var q question
	select {
	case q = <-far.held:
	case <-ctx.Done():
		t.Fatal("nobody looked up", victim)
	}
	for _, p := range instances {
		if p.name == q.Instance {
			if err := p.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = p.cmd.Wait()
		}
	}
	lost := unstored(ctx, t, srv, far, q.Instance)
	close(release)
	// Restart the server once some look-ups have come back.
	for n := 0; n < restartAfter; {
		select {
		case n = <-far.served:
		case <-ctx.Done():
			t.Fatal("too few look-ups came back")
		}
	}
	if err := srv.Restart(ctx); err != nil {
		t.Fatal(err)
	}

	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	calls, _ := far.counts("")
	for _, p := range places(nPlaces) {
		allowed := 1
		if lost[p.Name] {
			allowed = 2
		}
		if n := calls[p.Name]; n < 1 || n > allowed {
			t.Errorf("%s was looked up %d times, want at most %d", p.Name, n, allowed)
		}
	}
	resumes := 0
	pending := map[string]int{}
	for _, c := range clients {
		resumes += c.resumes
		for _, p := range places(nPlaces) {
			if c.states[p.PlaceID].Status != contracts.StatusFound {
				pending[p.PlaceID]++
			}
		}
	}
	if len(pending) > 0 {
		t.Errorf("told nothing, by place: %v\n%s", pending, describe(t, srv))
	}
	t.Logf("killed %s in the middle of %d look-ups; clients came back %d times", q.Instance, len(lost), resumes)
}

// unstored returns the places that a dead instance had asked about and not stored: their jobs will be delivered again
// once the server misses the instance's signs of life, in some seconds.
func unstored(ctx context.Context, t *testing.T, srv *natsrun.Server, far *farSide, instance string) map[string]bool {
	t.Helper()
	_, js := natstest.Connect(t, srv)
	kv, err := js.KeyValue(ctx, contracts.BucketEnrich)
	if err != nil {
		t.Fatal(err)
	}
	_, asked := far.counts(instance)
	lost := map[string]bool{}
	for _, p := range places(nPlaces) {
		if !asked[p.Name] {
			continue
		}
		key, err := contracts.EnrichSlotKey("wolt", p.PlaceID)
		if err != nil {
			t.Fatal(err)
		}
		entry, err := kv.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(entry.Value()), `"state":"done"`) {
			lost[p.Name] = true
		}
	}
	return lost
}

// describe tells what the server holds, for a failure.
func describe(t *testing.T, srv *natsrun.Server) string {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	_, js := natstest.Connect(t, srv)
	var b strings.Builder
	stream, err := js.Stream(ctx, contracts.StreamEnrichJobs)
	if err != nil {
		return err.Error()
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(">"))
	if err != nil {
		return err.Error()
	}
	fmt.Fprintf(&b, "jobs: %+v\n", info.State)
	if consumer, err := stream.Consumer(ctx, "enricher"); err == nil {
		fmt.Fprintf(&b, "consumer: %+v\n", *consumer.CachedInfo())
	}
	kv, err := js.KeyValue(ctx, contracts.BucketEnrich)
	if err != nil {
		return err.Error()
	}
	keys, err := kv.Keys(ctx)
	if err != nil {
		return err.Error()
	}
	for _, key := range keys {
		entry, err := kv.Get(ctx, key)
		if err == nil && strings.Contains(string(entry.Value()), `"pending"`) {
			fmt.Fprintf(&b, "%s at %d (%s): %s\n", key, entry.Revision(), time.Since(entry.Created()), entry.Value())
		}
	}
	return b.String()
}
