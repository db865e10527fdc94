// Package upgrade_test upgrades a former release to the present one while events arrive.
package upgrade_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

func TestMain(m *testing.M) { natstest.Main(m, 1) }

var former = flag.String("former", "", "the revision that is upgraded (default the latest tag)")

const (
	// backlog is how many events wait at most to be delivered.
	backlog = 500

	// step is how many messages are delivered between two steps of the upgrade.
	step = 1000
)

// far is a service for SMS that counts its calls by the event in the text.
type far struct {
	*httptest.Server

	mu    sync.Mutex
	calls map[string]int
	total int
	when  map[chan struct{}]int // the total at which each is closed
}

func newFar(t *testing.T) *far {
	t.Helper()
	f := &far{calls: map[string]int{}, when: map[chan struct{}]int{}}
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var message struct {
			Text string `json:"text"`
		}
		if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.calls[strings.TrimSpace(message.Text)]++
		f.total++
		for passed, total := range f.when {
			if f.total >= total {
				close(passed)
				delete(f.when, passed)
			}
		}
	}))
	t.Cleanup(f.Close)
	return f
}

// after returns a channel that is closed when n more messages have been delivered.
func (f *far) after(n int) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	passed := make(chan struct{})
	f.when[passed] = f.total + n
	return passed
}

func (f *far) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total
}

// release is a revision whose programs are in a folder.
type release struct{ dir string }

// build builds the programs of the work tree in root.
func build(t *testing.T, root string) release {
	t.Helper()
	r := release{dir: t.TempDir()}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", r.dir, "./cmd/expediter", "./services/notifier/cmd/notifier")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	check.Require(t, err == nil, "build %s: %v\n%s", root, err, out)
	return r
}

// formerTree returns the files of the former release in a folder.
func formerTree(t *testing.T, root string) string {
	t.Helper()
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	revision := *former
	if revision == "" {
		var err error
		if revision, err = git("describe", "--tags", "--abbrev=0"); err != nil {
			t.Skip("there is no tag: name the former release with -args -long -former REVISION")
		}
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "former.tar")
	_, err := git("archive", "-o", archive, revision)
	check.Require(t, err == nil, "revision %s: %v", revision, err)
	out, err := exec.CommandContext(t.Context(), "tar", "-xf", archive, "-C", dir).CombinedOutput()
	check.Require(t, err == nil, "unpack %s: %v\n%s", revision, err, out)
	t.Logf("former release: %s", revision)
	return dir
}

// site is a server on which releases run.
type site struct {
	*testing.T

	env []string
	far *far
	js  jetstream.JetStream
	srv *natsrun.Server

	running [2]*crash.Process
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, far: newFar(t), srv: natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })}
	_, s.js = natstest.Connect(t, s.srv)
	dir := t.TempDir()
	s.env = append(os.Environ(), "NATS_URL="+s.srv.URL(), "NOTIFIER_LISTEN=127.0.0.1:0", "NOTIFIER_SMS_URL="+s.far.URL)
	for variable, file := range map[string]struct{ name, text string }{
		"":                   {"texts/news/default.subject", "news"},
		"NOTIFIER_ROOT_CAS":  {"ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.far.Certificate().Raw}))},
		"NOTIFIER_RULES":     {"rules.yaml", "version: 1\nevents:\n  \"*\":\n    CUSTOMER: {scope: user, channels: [sms], template: news}\n"},
		"NOTIFIER_TEMPLATES": {"texts/news/default.txt", "{{.Payload.n}}"},
	} {
		path := filepath.Join(dir, file.name)
		s.must(os.MkdirAll(filepath.Dir(path), 0o700))
		s.must(os.WriteFile(path, []byte(file.text), 0o600))
		switch variable {
		case "":
			continue
		case "NOTIFIER_TEMPLATES":
			path = filepath.Join(dir, "texts")
		}
		s.env = append(s.env, variable+"="+path)
	}
	return s
}

func (s *site) must(err error) {
	s.Helper()
	check.OK(s, err)
}

// apply declares the streams, buckets and consumers of a release.
func (s *site) apply(r release) {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), filepath.Join(r.dir, "expediter"), "apply", "--max-bytes", "4000000000")
	cmd.Env = s.env
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("apply: %v\n%s", err, out)
	}
}

// start starts a notifier of a release, in the place of the n-th one.
func (s *site) start(r release, n int, env ...string) {
	s.Helper()
	if s.running[n] != nil {
		s.running[n].Interrupt()
	}
	cmd := exec.CommandContext(context.WithoutCancel(s.Context()), filepath.Join(r.dir, "notifier"))
	cmd.Env = slices.Concat(s.env, env)
	s.running[n] = crash.Start(s.T, cmd)
}

// delivered waits until n more messages have been delivered.
func (s *site) delivered(n int) {
	s.Helper()
	select {
	case <-s.far.after(n):
	case <-s.running[0].Gone:
		s.Fatal("the first notifier has ended")
	case <-s.running[1].Gone:
		s.Fatal("the second notifier has ended")
	case <-time.After(crash.Patience):
		s.Fatalf("%d messages after %s", s.far.count(), crash.Patience)
	}
}

// Each event that is accepted while a release is upgraded ends in one notification: first apply, then one notifier
// after the other.
//
//	go -C test test ./upgrade -v -args -long -former REVISION
func TestUpgradeUnderLoad(t *testing.T) {
	t.Parallel()
	if !crash.Long() {
		t.Skip("with -long: it builds two releases")
	}
	root := check.Must(filepath.Abs(filepath.Join("..", "..")))(t)
	before, now := build(t, formerTree(t, root)), build(t, root)
	s := newSite(t)
	s.apply(before)
	for n := range s.running { // which make their consumers: there were releases whose apply did not
		s.start(before, n, "NOTIFIER_CREATE_ASSETS=true", "NOTIFIER_MAX_BYTES=4000000000")
	}

	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		load.Wait()
	})
	accepted := 0
	load.Go(func() {
		publisher, err := contracts.NewPublisher(s.js, contracts.PublisherConfig{})
		for err == nil && ctx.Err() == nil {
			if accepted-s.far.count() > backlog {
				select {
				case <-s.far.after(1):
				case <-ctx.Done():
				}
				continue
			}
			_, err = publisher.Publish(t.Context(), event(accepted))
			accepted++
		}
		check.Is(t, err, nil)
	})

	s.delivered(step)
	s.apply(now)
	s.delivered(step)
	for n := range s.running {
		s.start(now, n)
		s.delivered(step)
	}
	cancel()
	load.Wait()
	s.settled()
	for _, p := range s.running {
		p.Interrupt()
	}
	lost, doubled := 0, 0
	for n := range accepted {
		switch calls := s.far.calls[fmt.Sprint(n)]; {
		case calls == 0:
			lost++
		case calls > 1:
			doubled++
		}
	}
	t.Logf("%d events accepted, %d lost, %d notified more than once", accepted, lost, doubled)
	check.That(t, lost+doubled <= 0 && len(s.far.calls) == accepted, "%d events have %d messages", accepted, len(s.far.calls))
}

// settled waits until every event and row has been acknowledged.
func (s *site) settled() {
	s.Helper()
	for left := 1; left > 0; {
		left = 0
		for _, stream := range []string{contracts.StreamEvents, contracts.StreamNotifications} {
			found, err := s.js.Stream(s.Context(), stream)
			s.must(err)
			list := found.ListConsumers(s.Context())
			for c := range list.Info() {
				left += int(c.NumPending) + c.NumAckPending
			}
			s.must(list.Err())
		}
	}
}

func event(n int) contracts.Event {
	return contracts.Event{
		AggregateType: "ORDER", EventID: fmt.Sprint("evt-", n), EventType: "NEWS", Payload: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)),
		Recipients: []contracts.Recipient{{
			Addresses: map[string]string{"sms": "+972501234567"}, RecipientType: contracts.RecipientCustomer, UserID: fmt.Sprint("u", n),
		}},
		UserID: fmt.Sprint("u", n),
	}
}
