package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// pigeon is a channel that counts its messages by their events.
type pigeon struct {
	mu   sync.Mutex
	sent map[string]int
}

func (p *pigeon) Name() string { return "pigeon" }

func (p *pigeon) Send(_ context.Context, m channel.Message) (channel.Receipt, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent[m.EventID]++
	return channel.Receipt{ID: m.ID}, nil
}

// times returns how often the channel got the message of an event.
func (p *pigeon) times(event string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent[event]
}

// post is a server with the deployed accounts, on which a notifier runs.
type post struct {
	*testing.T

	js       jetstream.JetStream // of the notifier's account, as the administrator
	notifier *notifier.Notifier
	srv      *natsrun.Server
	users    *natstest.Users
}

func newPost(t *testing.T) *post {
	t.Helper()
	p := &post{T: t, users: natstest.NewUsers(t)}
	p.srv = natstest.Server(t, func(c *natsrun.Config) { c.Users = p.users.Public })
	nc, _ := natstest.Connect(t, p.srv, p.users.As("admin"))
	p.js = natstest.InAccount(t, nc, "NOTIFIER")
	return p
}

// start starts a notifier with the permissions of deploy/nats.
func (p *post) start(pigeons *pigeon) {
	p.Helper()
	rules := filepath.Join(p.TempDir(), "rules.yaml")
	must(p.T, os.WriteFile(rules, []byte("version: 1\nevents:\n  \"*\":\n    CUSTOMER: {scope: user, channels: [inapp, pigeon]}\n"), 0o600))
	nc, _ := natstest.Connect(p.T, p.srv, p.users.As("notifier"))
	n, err := notifier.Start(p.Context(), nc, notifier.Config{
		BaseConfig: service.BaseConfig{Listen: "-", Logger: slog.New(slog.DiscardHandler)}, Rules: rules,
		Channels: []notifier.Channel{{Channel: pigeons}},
	})
	must(p.T, err)
	p.notifier = n
}

// stop stops the notifier, and the server.
func (p *post) stop() {
	p.Helper()
	must(p.T, p.notifier.Stop())
	p.srv.Stop()
}

// settled waits until each event and row has been acknowledged.
func (p *post) settled() {
	p.Helper()
	for left := 1; left > 0; {
		left = 0
		for _, stream := range []string{contracts.StreamEvents, contracts.StreamNotifications} {
			s, err := p.js.Stream(p.Context(), stream)
			must(p.T, err)
			list := s.ListConsumers(p.Context())
			for c := range list.Info() {
				left += int(c.NumPending) + c.NumAckPending
			}
			must(p.T, list.Err())
		}
	}
}

// A notifier that works while its streams are backed up goes on from the backup: each event that was accepted before is
// delivered, and rows that were delivered before are not delivered again.
func TestANotifierGoesOnFromABackup(t *testing.T) {
	t.Parallel()
	pigeons := &pigeon{sent: map[string]int{}}
	first := newPost(t)
	assets := contracts.AssetOptions{Channels: []string{"pigeon"}, MaxBytes: 1 << 30, Services: []string{contracts.ServiceNotifier}}
	_, err := contracts.Apply(t.Context(), first.js, contracts.Assets(assets), contracts.ApplyOptions{})
	must(t, err)
	_, err = contracts.ApplyConsumers(t.Context(), first.js, contracts.Consumers(assets), contracts.ApplyOptions{})
	must(t, err)
	first.start(pigeons)
	nc, _ := natstest.Connect(t, first.srv, first.users.As("publisher"), nats.MaxReconnects(0))
	js, err := jetstream.New(nc)
	must(t, err)
	publisher, err := contracts.NewPublisher(js, contracts.PublisherConfig{})
	must(t, err)
	accept := func(kind string, n int) error {
		e := contracts.Event{
			AggregateType: "ORDER", EventID: fmt.Sprint(kind, n), EventType: "NEWS", Payload: json.RawMessage(`{}`),
			Recipients: []contracts.Recipient{{RecipientType: contracts.RecipientCustomer, UserID: "ada"}}, UserID: "ada",
		}
		_, err := publisher.Publish(t.Context(), e)
		return err
	}
	const early, under = 200, 1000
	for n := range early {
		must(t, accept("early", n))
	}
	first.settled()
	for n := range under {
		must(t, accept("under", n))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		load.Wait()
	})
	load.Go(func() {
		for n := 0; n < 3000 && ctx.Err() == nil; n++ {
			if err := accept("late", n); err != nil {
				t.Log(err)
			}
		}
	})
	c := Config{Account: "NOTIFIER", Dir: t.TempDir(), JS: first.js, Services: assets.Services}
	must(t, Write(t.Context(), c, nothing))
	cancel()
	load.Wait()
	first.stop()
	open := 0
	for n := range under {
		if pigeons.times(fmt.Sprint("under", n)) == 0 {
			open++
		}
	}

	second := newPost(t)
	c.JS = second.js
	must(t, Restore(t.Context(), c, nothing))
	second.start(pigeons)
	second.settled()
	again := 0
	for n := range early {
		times := pigeons.times(fmt.Sprint("early", n))
		check.That(t, times == 1, "event %d, which was delivered before the backup, was delivered %d times", n, times)
	}
	for n := range under {
		times := pigeons.times(fmt.Sprint("under", n))
		check.That(t, times != 0, "event %d, which was accepted before the backup, is lost", n)
		again += max(0, times-1)
	}
	counts, err := second.notifier.Inbox.Counts(t.Context(), contracts.RecipientCustomer, "ada")
	check.That(t, err == nil && counts.Unread >= early+under, "the inbox has %d items, want at least %d: %v", counts.Unread, early+under, err)
	t.Logf("of %d events under way, %d were delivered after the restore alone, %d again", under, open, again)
	second.stop()
}

// A backup that was changed makes no stream, and the error names the file.
func TestABackupThatIsNotAsItWasIsRefused(t *testing.T) {
	t.Parallel()
	_, from := applied(t)
	fill(t, from)
	whole := t.TempDir()
	must(t, Write(t.Context(), config(from, whole), nothing))
	_, to := listening(t)
	change := func(name, from, to string) func(dir string) error {
		return func(dir string) error {
			data, err := os.ReadFile(filepath.Join(dir, name))
			return errors.Join(err, os.WriteFile(filepath.Join(dir, name), bytes.Replace(data, []byte(from), []byte(to), 1), 0o600))
		}
	}
	outside := filepath.Join(t.TempDir(), "outside")
	must(t, os.WriteFile(outside, nil, 0o600))
	for name, test := range map[string]struct {
		file   string
		want   error
		damage func(dir string) error
	}{
		"no manifest":    {manifestName, ErrIncomplete, func(dir string) error { return os.Remove(filepath.Join(dir, manifestName)) }},
		"a bad manifest": {manifestName, ErrCorrupt, change(manifestName, "{", "")},
		"newer format":   {manifestName, ErrFormat, change(manifestName, `"format": 1`, `"format": 2`)},
		"unknown field":  {manifestName, ErrCorrupt, change(manifestName, `"format": 1`, `"format": 1, "more": 1`)},
		"path":           {manifestName, ErrCorrupt, change(manifestName, `"name": "EVENTS"`, `"name": "../EVENTS"`)},
		"listed twice":   {manifestName, ErrCorrupt, change(manifestName, `"name": "EVENTS"`, `"name": "KV_enrich"`)},
		"bytes": {"EVENTS.snapshot", ErrCorrupt, func(dir string) error {
			data, err := os.ReadFile(filepath.Join(dir, "EVENTS.snapshot"))
			data[len(data)/2] ^= 1
			return errors.Join(err, os.WriteFile(filepath.Join(dir, "EVENTS.snapshot"), data, 0o600))
		}},
		"truncated": {"EVENTS.snapshot", ErrCorrupt, func(dir string) error { return os.Truncate(filepath.Join(dir, "EVENTS.snapshot"), 100) }},
		"longer":    {"EVENTS.snapshot", ErrCorrupt, func(dir string) error { return os.Truncate(filepath.Join(dir, "EVENTS.snapshot"), 1<<20) }},
		"missing":   {"KV_jobs.snapshot", ErrCorrupt, func(dir string) error { return os.Remove(filepath.Join(dir, "KV_jobs.snapshot")) }},
		"foreign":   {"notes.txt", ErrForeign, func(dir string) error { return os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600) }},
		"link": {"KV_jobs.snapshot", nil, func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "KV_jobs.snapshot")), os.Symlink(outside, filepath.Join(dir, "KV_jobs.snapshot")))
		}},
	} {
		dir := filepath.Join(t.TempDir(), "copy")
		must(t, os.CopyFS(dir, os.DirFS(whole)))
		must(t, test.damage(dir))
		err := Restore(t.Context(), config(to, dir), nothing)
		file, ok := errors.AsType[*FileError](err)
		check.That(t, ok && file.File == test.file && (test.want == nil || errors.Is(err, test.want)),
			"%s: got %v, want %v of %s", name, err, test.want, test.file)
	}
	info, err := to.AccountInfo(t.Context())
	check.That(t, err == nil && info.Streams == 0, "streams were made: %+v, %v", info, err)
	check.Is(t, Write(t.Context(), config(from, whole), nothing), ErrNotEmpty)
}

// A backup that is killed leaves no manifest. A restore that is killed, wherever that is, is repeated and ends well.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	srv, from := applied(t)
	fill(t, from)
	random := crash.Random(t)(0)
	for i := range 40 { // so that one stream is sent in many parts
		publish(t, from, fmt.Sprintf("$KV.recipes.%d", i), incompressible(random, 200_000))
	}
	cut := t.TempDir()
	p := command.Start(t, task{Dir: cut, Hold: 5, URL: srv.URL()})
	p.Await("held")
	p.Kill()
	check.Is(t, Restore(t.Context(), config(from, cut), nothing), ErrIncomplete)
	dir := t.TempDir()
	must(t, Write(t.Context(), config(from, dir), nothing))
	target, to := listening(t)
	for range 3 {
		p := command.Start(t, task{Dir: dir, Hold: 1 + random.IntN(60), Restore: true, URL: target.URL()})
		p.Await("held")
		p.Kill()
	}
	must(t, Restore(t.Context(), config(to, dir), nothing))
	for _, name := range present(contracts.Services()) {
		was, is := contents(t, from, name), contents(t, to, name)
		check.That(t, was == is, "%s was\n%.2000sand is\n%.2000s", name, was, is)
	}
}

// incompressible returns a text of n letters that does not become smaller.
func incompressible(random *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('!' + random.IntN(90))
	}
	return string(b)
}

// A subject that the server, or a stranger in its place, names is used only where it belongs to the stream's snapshot.
func TestForeignSubjectsAreNotPublishedTo(t *testing.T) {
	t.Parallel()
	for named, want := range map[string]string{
		"$JS.SNAPSHOT.ACK.EVENTS.x.1":        "$JS.NOTIFIER.SNAPSHOT.ACK.EVENTS.x.1",
		"$JS.SNAPSHOT.ACK.DEAD.x.1":          "",
		"$JS.SNAPSHOT.RESTORE.EVENTS.x":      "",
		"$JS.API.STREAM.DELETE.EVENTS":       "",
		"$JS.ENRICHER.SNAPSHOT.ACK.EVENTS.x": "",
		"x.$JS.SNAPSHOT.ACK.EVENTS.x":        "",
	} {
		got, err := Config{Account: "NOTIFIER"}.subject("ACK", "EVENTS", named)
		check.That(t, got == want && (err == nil) == (want != ""), "%s: got %q, %v, want %q", named, got, err, want)
	}
}

// A snapshot that ends before its last entry is no snapshot, also when all its bytes are sound.
func TestASnapshotWithoutAnEndIsRefused(t *testing.T) {
	t.Parallel()
	var sound bytes.Buffer
	compressed := s2.NewWriter(&sound)
	must(t, archive.NewWriter(compressed).WriteHeader(&archive.Header{Name: "events.a", Sequence: 1}))
	must(t, compressed.Close())
	s := Stream{}
	err := s.copy(archive.NewWriter(io.Discard), archive.NewReader(s2.NewReader(&sound)))
	check.Is(t, err, io.ErrUnexpectedEOF)
}
