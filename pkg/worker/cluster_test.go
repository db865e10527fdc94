package worker_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestLeadersDeathLosesNoJobAndRunsNoneTwice kills the node that leads the jobs of a
// cluster of three, then the one that leads their consumer, while a worker is busy, and
// starts each again. Elections take longer than AckWait, so the server delivers running
// jobs again, to the only worker there is: which drops the copies.
func TestLeadersDeathLosesNoJobAndRunsNoneTwice(t *testing.T) {
	t.Parallel()

	const n = 300

	cluster := natstest.Cluster(t, 3)
	b := onCluster(t, cluster)

	var (
		mu      sync.Mutex
		effects = make(map[int]int)
	)

	milestones := make(chan int, 10*n)
	cfg := b.config(t, func(c *worker.Config) {
		c.AckWait, c.Concurrency, c.SettleTimeout = 2*time.Second, 20, patience()
	})
	run(t, b.js, cfg, worker.Policy{MaxAttempts: 100}, func(ctx context.Context, job *worker.Job[order]) error {
		if !pause.For(ctx, 100*time.Millisecond) { // so that there are some at any time
			return ctx.Err()
		}

		mu.Lock()
		defer mu.Unlock()

		effects[job.Args.N]++
		milestones <- len(effects)
		return nil
	})

	for i := range n {
		msg := []byte(`{"n":` + strconv.Itoa(i) + `}`)

		err := natstest.UntilAnswered(t, func(ctx context.Context) error {
			return check.Err(b.js.Publish(ctx, "jobs."+strconv.Itoa(i), msg, jetstream.WithMsgID(strconv.Itoa(i))))
		})
		check.OK(t, err)
	}

	for k, leader := range []func() (*natsrun.Node, error){
		func() (*natsrun.Node, error) { return cluster.StreamLeader(t.Context(), stream) },
		func() (*natsrun.Node, error) { return consumerLeader(t, b, cluster) },
	} {
		worked := 0
		for worked < (k+1)*n/4 {
			worked = receive(t, milestones, "jobs to be worked")
		}

		node := check.Must(leader())(t)

		check.OK(t, node.Kill())

		check.OK(t, node.Start(t.Context()))

		check.OK(t, cluster.WaitReady(t.Context()))
	}

	for done := 0; done < n; {
		if s := receive(t, b.settled, "a settlement"); s.Outcome == worker.OutcomeCompleted {
			done++
		} else {
			t.Errorf("%s: %s: %v", s.ID, s.Outcome, s.Err)
		}
	}

	mu.Lock()
	defer mu.Unlock()

	for i := range n {
		check.Same(t, fmt.Sprintf("job %d had effects", i), effects[i], 1)
	}
}

// onCluster is setup on a cluster, with three replicas of everything.
func onCluster(t *testing.T, cluster *natsrun.Cluster) *bundle {
	t.Helper()

	b := &bundle{settled: make(chan worker.Settlement, 10_000)}
	b.nc, b.js = natstest.ConnectURL(t, cluster.URLs())

	for _, cfg := range []jetstream.StreamConfig{
		{Name: stream, Subjects: []string{pattern}, Retention: jetstream.WorkQueuePolicy},
		{Name: "DEAD", AllowDirect: true, Subjects: []string{"dead.>"}, Duplicates: time.Hour},
		{Name: "KV_jobs", Subjects: []string{"$KV.jobs.>"}, MaxMsgsPerSubject: 1, AllowMsgTTL: true, AllowRollup: true},
	} {
		cfg.Replicas = 3

		check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) error { return check.Err(b.js.CreateOrUpdateStream(ctx, cfg)) }))
	}
	return b
}

func consumerLeader(t *testing.T, b *bundle, cluster *natsrun.Cluster) (*natsrun.Node, error) {
	t.Helper()

	var name string

	err := natstest.UntilAnswered(t, func(ctx context.Context) error {
		consumer, err := b.js.Consumer(ctx, stream, durable)
		if err != nil {
			return err
		}

		// A server that has just become the leader may not say so yet.
		if cluster := consumer.CachedInfo().Cluster; cluster != nil {
			name = cluster.Leader
		}
		return nil
	})
	if err != nil {
		return nil, err
	}

	for _, node := range cluster.Nodes {
		if node.Name == name {
			return node, nil
		}
	}
	return cluster.StreamLeader(t.Context(), stream)
}
