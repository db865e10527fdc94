package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// childEnv holds the duty of a process that the test starts to kill.
const childEnv = "OUTBOX_TEST_CHILD"

// duty says what a child does, and where it dies.
type duty struct {
	After    int    `json:"after"` // it dies at the how manieth time
	Database string `json:"database"`
	Point    string `json:"point"` // at which point
	Sync     int    `json:"sync"`  // seconds
	URL      string `json:"url"`
}

// child runs a relay until it kills itself. What it returns is that it did not.
func child(text string) int {
	if err := relayAndDie(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Fprintln(os.Stderr, "it did not die")
	return 1
}

func relayAndDie(text string) error {
	var d duty
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pool, err := pgxpool.New(ctx, d.Database)
	if err != nil {
		return err
	}
	defer pool.Close()
	var mu sync.Mutex
	left := d.After
	r, err := New(ctx, Config{
		BatchSize: 8, Concurrency: 1, Logger: slog.New(slog.DiscardHandler), NATSURL: d.URL, Pool: pool,
		SyncInterval: time.Duration(d.Sync) * time.Second,
		passed: func(point string) {
			mu.Lock()
			defer mu.Unlock()
			if point != d.Point {
				return
			}
			left--
			if left == 0 {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		},
	})
	if err != nil {
		return err
	}
	r.Run(ctx)
	return nil
}
