package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// grower is a process that divides the buckets. It prints the name of a bucket in which nothing of other partitions is left. That
// of results keeps earlier results for longer than a run.
var grower = crash.Role[workerTask]{Name: "grower", Run: func(ctx context.Context, task workerTask) error {
	nc, err := nats.Connect(task.URLs, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	dividing, stop := context.WithCancel(ctx)
	results := make(chan error, 1)
	go func() { results <- growAgain(dividing, js, resultBucket, task.Partitions) }()
	err = growAgain(ctx, js, lockBucket, task.Partitions)
	stop()
	if last := <-results; !errors.Is(last, context.Canceled) {
		err = errors.Join(err, last)
	}
	if err == nil {
		_, err = fmt.Fprintln(os.Stdout, lockBucket)
	}
	return err
}}

// growAgain divides a bucket, and calls Grow again when a killed server makes it fail.
func growAgain(ctx context.Context, js jetstream.JetStream, bucket string, n int) error {
	for {
		err := kvlock.Grow(ctx, js, bucket, n, func(key string) {
			fmt.Fprintln(os.Stderr, bucket, "waits for", key)
		})
		if err == nil || ctx.Err() != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, err)
		sleep(ctx, 100*time.Millisecond)
	}
}

// divide divides the buckets by one process after another. All but the last are killed.
func (s *stage) divide(ctx context.Context, r *rand.Rand) {
	task := s.settings
	task.URLs = s.servers
	for range 3 {
		p := grower.Start(s.t, task)
		sleep(ctx, between(r, 150*time.Millisecond))
		p.Kill()
	}
	p := grower.Start(s.t, task)
	ctx, cancel := context.WithTimeout(ctx, crash.Patience)
	defer cancel()
	line, err := p.Process.Line(ctx)
	if err != nil || line != lockBucket {
		s.t.Errorf("the locks are not divided: %q, %v", line, err)
		return
	}
	s.t.Logf("%s: divided", sinceStart(now(), s.start))
	p.Wait()
}
