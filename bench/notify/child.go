package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// childRole is the role of a notifier. It reads its task as JSON.
const childRole = "notifier"

// task is the input of that process.
type task struct {
	Address string
	Storage jetstream.StorageType
}

// order is a command to the notifier: one of these.
type order struct {
	Mark   bool // the counts start over
	Settle bool // say what was spent
	Rows   int  // answer when this number of further rows is stored and sent
}

// answer is the notifier's answer to an order. An order for rows has two answers, an empty one first.
type answer struct {
	Stored, Sent time.Time     // rows
	CPU          time.Duration // settle
}

func serve(ctx context.Context, t task) (err error) {
	dir, err := os.MkdirTemp("", "bench-notify-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	rules := filepath.Join(dir, "rules.yaml")
	text := fmt.Sprintf("{version: 1, events: {%s: {CUSTOMER: {channels: [%s], category: reservations, template: reservation.requested}}}}",
		eventType, inbox)
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the rules: %w", err)
	}
	nc, _, err := rig.Connect(t.Address)
	if err != nil {
		return err
	}
	defer nc.Close()
	options := assetOptions(t.Storage, t.Address)
	debug.SetGCPercent(400) // GOGC as docs/operate.md recommends
	cfg := notifier.Config{
		BaseConfig: service.BaseConfig{
			CreateAssets: true, Listen: "-", Logger: slog.New(slog.DiscardHandler), MaxBytes: options.MaxBytes,
			Replicas: options.Replicas, Storage: options.Storage,
		},
		Resolver: multitude{}, Rules: rules,
	}
	n, err := notifier.Start(ctx, nc, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	return obey(n)
}

// obey follows orders until there are no more.
func obey(n *notifier.Notifier) error {
	out, in := json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin)
	if err := out.Encode(answer{}); err != nil {
		return err
	}
	var spent time.Duration
	for {
		var o order
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read an order: %w", err)
		}
		var a answer
		switch {
		case o.Mark:
			runtime.GC()
			debug.FreeOSMemory()
			spent = rig.SelfTime()
		case o.Settle:
			a.CPU = rig.SelfTime() - spent
		default:
			before := n.Stats()
			if err := out.Encode(answer{}); err != nil {
				return err
			}
			a = watch(n, before, o.Rows)
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

// watch waits until a number of further rows are stored and sent since before.
func watch(n *notifier.Notifier, before notifier.Stats, rows int) (a answer) {
	sent := func(s notifier.Stats) int64 { return s.States["delivered"] + s.States["sent"] }
	tick := time.NewTicker(500 * time.Microsecond)
	defer tick.Stop()
	for {
		now := n.Stats()
		if a.Stored.IsZero() && now.Notifications+now.Repeated-before.Notifications-before.Repeated >= int64(rows) {
			a.Stored = time.Now()
		}
		if a.Sent.IsZero() && sent(now)-sent(before) >= int64(rows) {
			a.Sent = time.Now()
		}
		if !a.Stored.IsZero() && !a.Sent.IsZero() {
			return a
		}
		<-tick.C
	}
}

// multitude is a source of recipients. Their number is in the aggregate of the event.
type multitude struct{}

func (multitude) Resolve(_ context.Context, q recipient.Query) iter.Seq2[contracts.Recipient, error] {
	return func(yield func(contracts.Recipient, error) bool) {
		n, err := strconv.Atoi(q.Event.AggregateID)
		if err != nil {
			yield(contracts.Recipient{}, fmt.Errorf("aggregate: %w", err))
			return
		}
		for i := range n {
			if !yield(contracts.Recipient{RecipientType: q.Type, UserID: userID(i)}, nil) {
				return
			}
		}
	}
}
