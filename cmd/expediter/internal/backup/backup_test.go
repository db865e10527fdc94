package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	_ "github.com/expediter-io/expediter/pkg/natsrun/natstest/fastelection" // elections take a second
)

func TestMain(m *testing.M) { crash.Main(m, 4, command) }

// task is the work of a process that a test kills.
type task struct {
	Dir, URL string
	Restore  bool
	Hold     int // stops at this chunk, counted over all streams
}

var command = crash.Role[task]{Name: "backup", Run: func(ctx context.Context, t task) error {
	nc, err := nats.Connect(t.URL)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	run := Write
	if t.Restore {
		run = Restore
	}
	n := 0
	return run(ctx, Config{Dir: t.Dir, JS: js, Services: contracts.Services(), reached: func(string) {
		if n++; n == t.Hold {
			fmt.Fprintln(os.Stdout, "held") //nolint:errcheck // the test waits for it
			<-ctx.Done()
		}
	}}, nothing)
}}

// listening is a server that other processes reach.
func listening(t *testing.T) (*natsrun.Server, jetstream.JetStream) {
	t.Helper()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, js := natstest.Connect(t, srv)
	return srv, js
}

// applied is a server with all streams, buckets and consumers.
func applied(t *testing.T) (*natsrun.Server, jetstream.JetStream) {
	t.Helper()
	srv, js := listening(t)
	options := contracts.AssetOptions{MaxBytes: 1 << 30}
	_, err := contracts.Apply(t.Context(), js, contracts.Assets(options), contracts.ApplyOptions{})
	must(t, err)
	_, err = contracts.ApplyConsumers(t.Context(), js, contracts.Consumers(options), contracts.ApplyOptions{})
	must(t, err)
	return srv, js
}

func config(js jetstream.JetStream, dir string) Config {
	return Config{Dir: dir, JS: js, Services: contracts.Services()}
}

func nothing(Stream) {}

func must(t *testing.T, err error) {
	t.Helper()
	check.OK(t, err)
}

func publish(t *testing.T, js jetstream.JetStream, subject, body string) {
	t.Helper()
	_, err := js.Publish(t.Context(), subject, []byte(body))
	must(t, err)
}

// contents returns all messages of a stream, and the state of its consumers.
func contents(t *testing.T, js jetstream.JetStream, name string) string {
	t.Helper()
	stream, err := js.Stream(t.Context(), name)
	must(t, err)
	var b strings.Builder
	list := stream.ListConsumers(t.Context())
	for c := range list.Info() {
		fmt.Fprintln(&b, c.Name, c.Config.FilterSubjects, c.AckFloor.Stream, c.Delivered.Stream, c.NumAckPending, c.NumPending)
	}
	must(t, list.Err())
	return messages(t, js, name) + b.String()
}

// messages returns all messages of a stream.
func messages(t *testing.T, js jetstream.JetStream, name string) string {
	t.Helper()
	stream, err := js.Stream(t.Context(), name)
	must(t, err)
	state := stream.CachedInfo().State
	var b strings.Builder
	fmt.Fprintln(&b, max(state.FirstSeq, 1), state.LastSeq, state.Msgs)
	for seq := max(state.FirstSeq, 1); seq <= state.LastSeq; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		must(t, err)
		fmt.Fprintln(&b, seq, m.Subject, m.Time, m.Header, string(m.Data))
	}
	return b.String()
}

// fill puts messages into the streams: some are acknowledged, some are delivered, some are deleted, keys are replaced.
func fill(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	for i := range 10 {
		m := nats.NewMsg(fmt.Sprintf("events.order.%d", i))
		m.Data, m.Header = []byte("event"), nats.Header{"Nats-Msg-Id": {fmt.Sprint(i)}, "X": {"a", "b"}}
		_, err := js.PublishMsg(t.Context(), m)
		must(t, err)
		publish(t, js, fmt.Sprintf("jobs.enrich.wolt.%d", i), "job")
		publish(t, js, fmt.Sprintf("$KV.enrich.%d", i%4), "entry "+fmt.Sprint(i))
	}
	publish(t, js, "dead.EVENTS.x", "letter")
	publish(t, js, "dead.ENRICH_JOBS.x", "letter")
	publish(t, js, "$KV.jobs.excused.ENRICH_JOBS.1", "1")
	publish(t, js, "$KV.jobs.excused.EVENTS.1", "1")
	publish(t, js, "$KV.jobs.limits.wolt", "1")
	for stream, name := range map[string]string{"EVENTS": "notifier", "ENRICH_JOBS": "enricher"} {
		consumer, err := js.Consumer(t.Context(), stream, name)
		must(t, err)
		batch, err := consumer.Fetch(4)
		must(t, err)
		odd := false
		for m := range batch.Messages() {
			if odd = !odd; odd {
				must(t, m.DoubleAck(t.Context()))
			}
		}
	}
}

func TestRestoredStreamsAreThoseOfTheBackup(t *testing.T) {
	t.Parallel()
	_, from := applied(t)
	fill(t, from)
	dir := filepath.Join(t.TempDir(), "new")
	var listed []string
	must(t, Write(t.Context(), config(from, dir), func(s Stream) { listed = append(listed, s.Name) }))
	_, to := listening(t)
	must(t, Restore(t.Context(), config(to, dir), nothing))
	for _, name := range listed {
		was, is := contents(t, from, name), contents(t, to, name)
		check.That(t, was == is, "%s was\n%sand is\n%s", name, was, is)
	}
	if want := len(contracts.Assets(contracts.AssetOptions{})); len(listed) != want || listed[want-1] != contracts.StreamNotifications {
		t.Errorf("backed up were %v, want %d, and work finished last", listed, want)
	}
	changes, err := contracts.Apply(t.Context(), to, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), contracts.ApplyOptions{DryRun: true})
	must(t, err)
	for _, c := range changes {
		check.That(t, c.Action == contracts.ActionNone, "apply would %s %s: %v", c.Action, c.Stream, c.Differences)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, manifestName): 0o600, filepath.Join(dir, "EVENTS.snapshot"): 0o600} {
		info, err := os.Stat(path)
		must(t, err)
		check.Same(t, path+" has the mode", info.Mode().Perm(), want)
	}
	// A stream that is there is never overwritten, and nothing else is done then.
	must(t, to.DeleteStream(t.Context(), "EVENTS"))
	stream, err := to.Stream(t.Context(), "KV_enrich")
	must(t, err)
	changed := stream.CachedInfo().Config
	delete(changed.Metadata, restored)
	_, err = to.UpdateStream(t.Context(), changed)
	must(t, err)
	if err := Restore(t.Context(), config(to, dir), nothing); !errors.Is(err, ErrExists) || !strings.Contains(err.Error(), "KV_enrich") {
		t.Errorf("got %v, want %v that names the stream", err, ErrExists)
	}
	check.Is(t, check.Err(to.Stream(t.Context(), "EVENTS")), jetstream.ErrStreamNotFound)
}

// While a stream is backed up, others write to it: keys are replaced, and messages are published. Each message that was
// there before is in the backup, or the one that has replaced it.
func TestNothingIsMissingThatChangesMeanwhile(t *testing.T) {
	t.Parallel()
	_, from := applied(t)
	const keys = 5000
	body := strings.Repeat("x", 2000)
	put := func(key, round int) {
		_, err := from.PublishAsync(fmt.Sprintf("$KV.enrich.%d", key), fmt.Appendf(nil, "%d %s", round, body))
		if err != nil {
			t.Log(err)
		}
	}
	for key := range keys {
		put(key, 1)
	}
	<-from.PublishAsyncComplete()
	var stop sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		stop.Wait()
	})
	stop.Go(func() {
		for round := 2; ctx.Err() == nil; round++ {
			for key := range keys {
				put(keys-1-key, round)
				if key%100 == 0 {
					<-from.PublishAsyncComplete()
				}
			}
		}
	})
	c := config(from, t.TempDir())
	c.Services = []string{contracts.ServiceEnricher}
	c.reached = func(stream string) { // the messages behind the snapshot come to an end
		if stream == "KV_enrich" {
			cancel()
			stop.Wait()
			<-from.PublishAsyncComplete()
		}
	}
	must(t, Write(t.Context(), c, nothing))
	_, to := listening(t)
	c.JS, c.reached = to, nil
	must(t, Restore(t.Context(), c, nothing))
	stream, err := to.Stream(t.Context(), "KV_enrich")
	must(t, err)
	check.Same(t, "keys are restored", stream.CachedInfo().State.Msgs, keys)
	was, is := contents(t, from, "KV_enrich"), contents(t, to, "KV_enrich")
	check.That(t, was == is, "the values are not the last ones")
}

// A stream that was never written to takes the messages that arrive behind its snapshot.
func TestMessagesBehindAnEmptySnapshot(t *testing.T) {
	t.Parallel()
	_, from := applied(t)
	c := config(from, t.TempDir())
	c.reached = func(stream string) {
		if stream == "KV_inbox" {
			publish(t, from, "$KV.inbox.a", "1")
			publish(t, from, "$KV.inbox.a", "2")
		}
	}
	must(t, Write(t.Context(), c, nothing))
	_, to := listening(t)
	c.JS, c.reached = to, nil
	must(t, Restore(t.Context(), c, nothing))
	was, is := contents(t, from, "KV_inbox"), contents(t, to, "KV_inbox")
	check.That(t, was == is, "it was\n%sand is\n%s", was, is)
}

func TestTokensGrowAfterARestore(t *testing.T) {
	t.Parallel()
	_, from := applied(t)
	take := func(js jetstream.JetStream) kvlock.Token {
		l, err := kvlock.NewLocker(t.Context(), js, kvlock.LockerConfig{Bucket: contracts.BucketLocks})
		must(t, err)
		defer l.Close()
		lease, err := l.Acquire(t.Context(), "a", kvlock.AcquireOptions{})
		must(t, err)
		must(t, lease.Release(t.Context()))
		return lease.Token()
	}
	take(from)
	// The bucket was restored once before, by a machine whose clock was ahead.
	stream, err := from.Stream(t.Context(), "KV_locks")
	must(t, err)
	ahead := stream.CachedInfo().Config
	ahead.Metadata["kvlock-epoch"] = "5000000000000000000"
	_, err = from.UpdateStream(t.Context(), ahead)
	must(t, err)
	c := config(from, t.TempDir())
	must(t, Write(t.Context(), c, nothing))
	var last kvlock.Token
	for range 5 {
		last = take(from)
	}
	_, c.JS = listening(t)
	must(t, Restore(t.Context(), c, nothing))
	token := take(c.JS)
	check.That(t, token.Compare(last) > 0, "token %s after %s", token, last)
}

// Dead letters and records of jobs belong to a service, also where one account was for all.
func TestWhatBelongsToOtherServicesIsLeftOut(t *testing.T) {
	t.Parallel()
	_, from := applied(t)
	fill(t, from)
	c := config(from, t.TempDir())
	must(t, Write(t.Context(), c, nothing))
	_, c.JS = listening(t)
	c.Services = []string{contracts.ServiceEnricher}
	must(t, Restore(t.Context(), c, nothing))
	all := contents(t, c.JS, "DEAD") + contents(t, c.JS, "KV_jobs")
	for subject, want := range map[string]bool{
		"dead.EVENTS.x": false, "dead.ENRICH_JOBS.x": true, "excused.EVENTS.1": false, "excused.ENRICH_JOBS.1": true, "limits.wolt": true,
	} {
		check.That(t, strings.Contains(all, subject) == want, "%s restored: %t, want %t", subject, !want, want)
	}
	check.Is(t, check.Err(c.JS.Stream(t.Context(), "EVENTS")), jetstream.ErrStreamNotFound)
}

// A backup of one server is restored onto three, also after a restore that was cut off, and one of three onto one.
func TestOneServerToThreeAndBack(t *testing.T) {
	t.Parallel()
	_, one := applied(t)
	fill(t, one)
	c := config(one, t.TempDir())
	must(t, Write(t.Context(), c, nothing))
	cluster := natstest.Cluster(t, 3)
	_, three := natstest.ConnectURL(t, cluster.URLs())
	c.JS, c.Replicas = three, 3
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := 8 // parts
	c.reached = func(string) {
		left--
		if left == 0 {
			cancel()
		}
	}
	err := Restore(ctx, c, nothing)
	check.Require(t, err != nil, "a restore that was cut off ended well")
	c.reached = nil
	must(t, Restore(t.Context(), c, nothing))
	for _, name := range present(c.Services) {
		stream, err := three.Stream(t.Context(), name)
		must(t, err)
		info := stream.CachedInfo()
		check.That(t, info.Cluster != nil && len(info.Cluster.Replicas) == 2, "%s is not on three servers: %+v", name, info.Cluster)
		was, is := contents(t, one, name), ""
		for until := time.Now().Add(crash.Patience); is != was && time.Now().Before(until); {
			is = contents(t, three, name) // which lacks a consumer that has no leader yet
		}
		check.Same(t, name, was, is)
	}
	c.Dir = t.TempDir()
	must(t, Write(t.Context(), c, nothing))
	_, c.JS = listening(t)
	c.Replicas = 1
	must(t, Restore(t.Context(), c, nothing))
	for _, name := range present(c.Services) { // consumers begin again at the first message that was not acknowledged
		was, is := messages(t, one, name), messages(t, c.JS, name)
		check.That(t, was == is, "%s was\n%sand is\n%s", name, was, is)
	}
}

// present returns the names of the streams of services whose streams are not divided.
func present(services []string) []string {
	work, outcomes := names(services, nil)
	return append(work, outcomes...)
}
