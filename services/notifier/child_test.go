package notifier

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/services/notifier/channel"
)

// childEnv holds the duty of a process that the test starts to kill.
const childEnv = "NOTIFIER_TEST_CHILD"

// duty says what a child does, and where it dies.
type duty struct {
	After int    `json:"after"` // it dies at the how manieth time
	Once  bool   `json:"once"`
	Point string `json:"point"` // at which point
	Rules string `json:"rules"`
	URL   string `json:"url"`
}

// child runs a notifier until it kills itself. What it returns is that it did not.
func child(text string) int {
	if strings.HasPrefix(text, largeDuty) {
		if err := large(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	var d duty
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	nc, err := nats.Connect(d.URL)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var mu sync.Mutex
	left := d.After
	cfg, err := crashConfig(nc, d.Rules, d.Once)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cfg.passed = func(point string) {
		if point != d.Point {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		left--
		if left == 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := Start(ctx, nc, cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	<-ctx.Done()
	fmt.Fprintln(os.Stderr, "it did not die", n.Stop())
	return 1
}

// crashConfig is how both the child and the one that follows it run: one call of each channel at a time, so that a kill
// can interrupt one.
func crashConfig(nc *nats.Conn, rules string, once bool) (Config, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return Config{}, err
	}
	return Config{
		AckWait: 500 * time.Millisecond, Concurrency: 1, CreateAssets: true, Listen: "-", Logger: slog.New(slog.DiscardHandler), MaxBytes: 1 << 30,
		Rules: rules,
		Channels: []Channel{{
			Channel: &pigeon{send: farSide(js)}, AtMostOnce: once, Timeout: time.Second, Retries: []time.Duration{time.Second, time.Second},
		}},
	}, nil
}

// farSide takes every message that it is given into a stream, also one that it has.
func farSide(js jetstream.JetStream) func(context.Context, channel.Message) (channel.Receipt, error) {
	return func(ctx context.Context, m channel.Message) (channel.Receipt, error) {
		if _, err := js.Publish(ctx, "far."+m.ID, nil); err != nil {
			return channel.Receipt{}, &channel.Error{Channel: "pigeon", Kind: channel.KindTimeout, Cause: err}
		}
		return channel.Receipt{ID: m.ID}, nil
	}
}
