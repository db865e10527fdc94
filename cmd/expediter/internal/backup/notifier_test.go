package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
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
// delivered, and what was delivered before is not delivered again.
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
