package notifier

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/email"
	"github.com/expediter-io/expediter/services/notifier/channel/webhook"
	"github.com/expediter-io/expediter/services/notifier/channel/webpush"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// trace is one step of a notifier process with a job: the begin of an attempt, or its end.
type trace struct {
	At       time.Time      `json:"at"`
	Attempt  int            `json:"attempt"`
	Consumer string         `json:"consumer"`
	Delay    time.Duration  `json:"delay"`
	Delivery int            `json:"delivery"`
	Error    string         `json:"error"`
	Outcome  worker.Outcome `json:"outcome"` // "" is a beginning
	Ran      time.Duration  `json:"ran"`
	Sequence uint64         `json:"sequence"`
	Subject  string         `json:"subject"`
	Worker   string         `json:"worker"`
}

func (t trace) String() string {
	text := fmt.Sprintf("%s %s: %s #%d %s, delivery %d, attempt %d", t.At.Format("15:04:05.000"), t.Worker, t.Consumer, t.Sequence, t.Subject,
		t.Delivery, t.Attempt)
	if t.Outcome == "" {
		return text + " began"
	}
	return fmt.Sprintf("%s is %s after %s, put off for %s: %s", text, t.Outcome, t.Ran.Round(time.Millisecond), t.Delay, t.Error)
}

// traced returns hooks that write each step of this process into a file in dir, line by line: a process that is killed leaves
// it.
func traced(dir, name string) (worker.Hooks, error) {
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return worker.Hooks{}, err
	}
	var mu sync.Mutex
	write := func(i worker.Info, t trace) {
		t.At, t.Worker = time.Now(), name
		t.Attempt, t.Consumer, t.Delivery, t.Sequence, t.Subject = i.Attempt, i.Consumer, i.Deliveries, i.Sequence, i.Subject
		data, err := json.Marshal(t)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			_, err = file.Write(append(data, '\n'))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "trace:", err)
		}
	}
	return worker.Hooks{
		Settled: func(s worker.Settlement) {
			t := trace{Delay: s.Delay, Outcome: s.Outcome, Ran: s.Ran}
			if s.Err != nil {
				t.Error = s.Err.Error()
			}
			write(s.Info, t)
		},
		Started: func(i worker.Info) { write(i, trace{}) },
	}, nil
}

// traces are those of all processes at the first call, in the order of time: reading them takes seconds, in which processes write
// more. The last line of one that was killed may be torn.
func (c *cell) traces() []trace {
	c.Helper()
	if !c.writtenAt.IsZero() {
		return c.written
	}
	c.writtenAt = time.Now()
	files := check.Must(filepath.Glob(filepath.Join(c.duty.Traces, "*")))(c)
	for _, name := range files {
		file := check.Must(os.Open(name))(c)
		for lines := bufio.NewScanner(file); lines.Scan(); {
			var t trace
			if json.Unmarshal(lines.Bytes(), &t) == nil && t.At.Before(c.writtenAt) {
				c.written = append(c.written, t)
			}
		}
		check.Is(c, file.Close(), nil)
	}
	slices.SortStableFunc(c.written, func(a, b trace) int { return a.At.Compare(b.At) })
	return c.written
}

// judgePutOffs checks how long jobs were put off: none but those that wait for the end of quiet hours, for longer than the whole
// delivery may take. The time that passed is not checked: other programs run on this machine.
func (c *cell) judgePutOffs() {
	c.Helper()
	var longest trace
	for _, t := range c.traces() {
		if key, _, row := contracts.RowKey(t.Subject); row && c.wants[key].ending() == deferred {
			continue
		}
		check.That(c, t.Delay <= soon, "it was put off for longer than %s: %s", soon, t)
		if t.Delay > longest.Delay {
			longest = t
		}
	}
	c.Logf("the longest put-off: %s", longest)
}

// notifiers are the processes that are killed.
var notifiers = crash.Role[duty]{Name: "notifier", Run: notify}

const (
	// ackWait is how soon the work of a process that died is taken over, and callTimeout for how long no other
	// process repeats a call that it may have made.
	ackWait     = 500 * time.Millisecond
	callTimeout = time.Second

	// inFlight is how many calls of each channel a process makes at a time.
	inFlight = 8

	// tries are more than a row needs: each death takes one.
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
	Traces    string // a folder, in which each process writes down its steps; "" is none
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
	cfg.passed = child.DieAt(d.Point, d.After)
	if cfg.hooks, err = traced(d.Traces, selfName(os.Getpid())); err != nil {
		return err
	}
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
		Address: d.Mail, Connections: inFlight, From: "Expediter <notify@example.com>", Security: email.Plain, Templates: texts,
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
