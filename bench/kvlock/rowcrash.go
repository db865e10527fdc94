package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// childRole is the role of a client in its own process. It reads its task as JSON.
const childRole = "client"

// task is the input of that client.
type task struct {
	Contestant string
	Settings   settings
	Kind       string // "compute", "lock" or "call"
	Keys       []string
}

func serveTask(ctx context.Context, t task) error {
	at := slices.IndexFunc(field(), func(who contestant) bool { return who.Name == t.Contestant })
	c, err := field()[at].open(ctx, t.Settings)
	if err != nil {
		return err
	}
	switch t.Kind {
	case "compute":
		_, err = c.do(ctx, t.Keys[0], func(context.Context) ([]byte, error) { return nil, held() })
	case "lock":
		if _, err = c.lock(ctx, t.Keys[0]); err == nil {
			err = held()
		}
	default:
		err = waitForAll(ctx, c, t.Keys)
	}
	return err
}

// held prints that this process holds the key, and returns when its input ends.
func held() error {
	fmt.Println("holds")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// waited has the memory of a client: before, and while all wait.
type waited struct {
	Before, While int64 // bytes resident
	Subscriptions int   // how many more
}

// waitForAll calls for all keys at once, which another process computes, prints the memory for that, and returns when its input ends.
func waitForAll(ctx context.Context, c *client, keys []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	debug.FreeOSMemory()
	w := waited{Before: rig.ResidentBytes(os.Getpid())}
	if c.subscriptions != nil {
		w.Subscriptions = -c.subscriptions()
	}
	ended := make(chan error, len(keys))
	for _, key := range keys {
		go func() {
			_, err := c.do(ctx, key, func(context.Context) ([]byte, error) { panic("nobody held " + key) })
			ended <- err
		}()
	}
	// Until memory no longer grows: then all wait.
	for steady := 0; steady < 4; {
		time.Sleep(500 * time.Millisecond)
		debug.FreeOSMemory()
		now := rig.ResidentBytes(os.Getpid())
		if steady++; now > w.While+w.While/50 {
			steady = 0
		}
		w.While = now
	}
	if len(ended) > 0 {
		return fmt.Errorf("%d did not wait, the first because of: %w", len(ended), <-ended)
	}
	if c.subscriptions != nil {
		w.Subscriptions += c.subscriptions()
	}
	line, err := json.Marshal(w)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// takeover measures the time from the kill -9 of a process that computes a key until a waiter computes it.
func takeover(ctx context.Context, b *bench) (rig.Figures, error) {
	b.settings.TTL = lockTTL // longer than the take-over, so that no waiter waits for the TTL
	return b.kill(ctx, "compute", "takeover_kill9_ms", func(ctx context.Context, c *client, key string, got chan<- time.Time) error {
		_, err := c.do(ctx, key, func(context.Context) ([]byte, error) {
			got <- time.Now()
			return value, nil
		})
		return err
	})
}

// lockTakeover is the same for a lock: no client may have it before the TTL of the dead holder is over.
func lockTakeover(ctx context.Context, b *bench) (rig.Figures, error) {
	b.settings.TTL = crashTTL
	return b.kill(ctx, "lock", "lock_takeover_kill9_ms", func(ctx context.Context, c *client, key string, got chan<- time.Time) error {
		unlock, err := c.lock(ctx, key)
		got <- time.Now()
		if err == nil {
			err = unlock(ctx)
		}
		return err
	})
}

// child starts a client in a separate process.
func (b *bench) child(kind string, keys ...string) (*rig.Process, error) {
	return rig.StartTask(childRole, task{Contestant: b.contestant.Name, Settings: b.settings, Kind: kind, Keys: keys})
}

// kill starts a process that holds key, starts a wait for the key, and kills the process.
func (b *bench) kill(
	ctx context.Context, kind, figure string, take func(context.Context, *client, string, chan<- time.Time) error,
) (rig.Figures, error) {
	c, err := b.client(ctx)
	if err != nil {
		return nil, err
	}
	key := b.name("crash")
	p, err := b.child(kind, key)
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	if _, err := p.Line(ctx); err != nil {
		return nil, err
	}
	got, ended := make(chan time.Time, 1), make(chan error, 1)
	go func() { ended <- take(ctx, c, key, got) }()
	time.Sleep(300 * time.Millisecond) // it waits by now
	start := time.Now()
	p.Kill()
	if err := <-ended; err != nil {
		return nil, err
	}
	return rig.Figures{figure: rig.In("ms", (<-got).Sub(start))}, nil
}

// callers measures the costs of 10,000 callers, each for a key that another process computes, in their process and in the server.
func callers(ctx context.Context, b *bench) (rig.Figures, error) {
	holder, err := b.client(ctx)
	if err != nil {
		return nil, err
	}
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = b.name("callers")
	}
	release, err := holdAll(ctx, holder, keys)
	defer release()
	if err != nil {
		return nil, err
	}
	before := b.service.ResidentBytes()
	p, err := b.child("call", keys...)
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	line, err := p.Line(ctx)
	if err != nil {
		return nil, err
	}
	var w waited
	if err := json.Unmarshal([]byte(line), &w); err != nil {
		return nil, fmt.Errorf("read the callers' answer, %q: %w", line, err)
	}
	server := max(0, b.service.ResidentBytes()-before)
	f := rig.Figures{
		"callers_10k_mb":         float64(w.While-w.Before+server) / 1e6,
		"callers_10k_process_mb": float64(w.While) / 1e6,
		"callers_10k_server_mb":  float64(server) / 1e6,
	}
	if holder.subscriptions != nil {
		f["callers_10k_subscriptions"] = float64(w.Subscriptions)
	}
	return f, nil
}

// holdAll holds all keys until release is called.
func holdAll(ctx context.Context, c *client, keys []string) (release func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	held := make(chan error, len(keys))
	tell := func(err error) {
		select {
		case held <- err:
		case <-ctx.Done(): // a lost claim is held, and reported, again
		}
	}
	slots := make(chan struct{}, 64)
	for _, key := range keys {
		slots <- struct{}{}
		all.Go(func() {
			free := sync.OnceFunc(func() { <-slots })
			defer free()
			_, err := c.do(ctx, key, func(ctx context.Context) ([]byte, error) {
				tell(nil)
				free()
				<-ctx.Done()
				return nil, ctx.Err()
			})
			tell(errors.Join(err, errors.New("it ended")))
		})
	}
	for range keys {
		select {
		case one := <-held:
			err = errors.Join(err, one)
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return func() { cancel(); all.Wait() }, err
}
