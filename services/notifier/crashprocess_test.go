package notifier

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/email"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// notifiers are the processes that are killed.
var notifiers = crash.Role[duty]{Name: "notifier", Run: notify}

const (
	// ackWait is how soon the work of a process that died is taken over, and callTimeout for how long no other
	// process repeats a call that it may have made.
	ackWait     = 500 * time.Millisecond
	callTimeout = time.Second

	// inFlight is how many calls of each channel a process makes at a time.
	inFlight = 8

	// tries are more than a notification needs: each death takes one.
	tries = 40
)

// duty is the work of a notifier process, and the point at which it dies.
type duty struct {
	After     int    // it dies at the how manieth time
	Mail      string // where mail is handed in
	Once      bool   // at most
	Pages     int    // how large the pages of plans become, in bytes
	Point     string // where it dies; "" is nowhere
	PushKey   string // the key of VAPID
	Rules     string // a file
	Secret    string // of webhooks
	Templates string // a folder
	URL       string // of NATS
}

// notify is the life of a notifier process.
func notify(ctx context.Context, d duty) error {
	nc, err := nats.Connect(d.URL, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.RetryOnFailedConnect(true), nats.IgnoreDiscoveredServers())
	if err != nil {
		return err
	}
	defer nc.Close()
	cfg, done, err := d.config()
	if err != nil {
		return err
	}
	defer done()
	cfg.passed = testbed.DieAt(d.Point, d.After)
	for {
		n, err := Start(ctx, nc, cfg)
		if err == nil {
			<-ctx.Done()
			return n.Stop()
		}
		fmt.Fprintln(os.Stderr, err)
		select { // the server is away: an operator would start the service again
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (d duty) config() (cfg Config, done func(), err error) {
	local := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	texts, err := template.Load(d.Templates, template.Config{})
	if err != nil {
		return cfg, nil, err
	}
	mail, err := email.New(email.Config{
		Address: d.Mail, From: "Expediter <notify@example.com>", Security: email.Plain, Templates: texts,
	})
	if err != nil {
		return cfg, nil, err
	}
	hooks, err := webhook.New(webhook.Config{AllowHTTP: true, AllowNetworks: local, Secrets: []string{d.Secret}})
	if err != nil {
		return cfg, nil, err
	}
	push, err := webpush.New(webpush.Config{
		AllowHTTP: true, AllowNetworks: local, PrivateKey: d.PushKey, Subject: "mailto:push@example.com", Templates: texts,
	})
	if err != nil {
		return cfg, nil, err
	}
	cfg = Config{
		BaseConfig: service.BaseConfig{
			AckWait: ackWait, Concurrency: inFlight, CreateAssets: true, Listen: "-", MaxBytes: 16 << 30,
			Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		},
		Rules: d.Rules, pageBytes: d.Pages,
	}
	for _, c := range []channel.Channel{mail, hooks, push} {
		cfg.Channels = append(cfg.Channels, Channel{
			Channel: c, AtMostOnce: d.Once, Timeout: callTimeout,
			Retries: slices.Repeat([]time.Duration{200 * time.Millisecond}, tries),
		})
	}
	return cfg, func() {
		mail.Close()
		hooks.Close()
		push.Close()
	}, nil
}
