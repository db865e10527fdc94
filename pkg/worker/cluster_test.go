package worker_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
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

	var effects tally

	milestones := make(chan int, 10*n)
	cfg := b.config(t, func(c *worker.Config) {
		c.AckWait, c.Concurrency, c.SettleTimeout = 2*time.Second, 20, patience()
	})
	run(t, b.js, cfg, worker.Policy{MaxAttempts: 100}, func(ctx context.Context, job *worker.Job[order]) error {
		if !retry.Sleep(ctx, 100*time.Millisecond) { // so that there are some at any time
			return ctx.Err()
		}

		milestones <- effects.add(job.ID)
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

	effects.once(t, n)
}

// onCluster is setup on a cluster, with three replicas of everything.
func onCluster(t *testing.T, cluster *natsrun.Cluster) *bundle {
	t.Helper()

	b := &bundle{settled: make(chan worker.Settlement, 10_000)}
	b.nc, b.js = natstest.ConnectURL(t, cluster.URLs())

	for _, cfg := range []jetstream.StreamConfig{
		{Name: stream, Subjects: []string{pattern}, Retention: jetstream.WorkQueuePolicy},
		{Name: "DEAD", AllowDirect: true, Subjects: []string{"dead.>"}, Duplicates: time.Hour},
		{
			Name: "KV_jobs", Subjects: []string{"$KV.jobs.>"}, MaxMsgsPerSubject: 1, AllowDirect: true, AllowMsgTTL: true,
			AllowRollup: true, Discard: jetstream.DiscardNew,
		},
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

// TestClientAsksAgain loses the first questions of calls about single jobs, schedules and pauses, or the answers.
func TestClientAsksAgain(t *testing.T) {
	calls := map[string]func(context.Context, *worker.Client, worker.JobRef) error{
		"cancel": func(ctx context.Context, c *worker.Client, ref worker.JobRef) error {
			return check.Err(c.Cancel(ctx, ref))
		},
		"job": func(ctx context.Context, c *worker.Client, ref worker.JobRef) error {
			return check.Err(c.Job(ctx, ref))
		},
		"pauses": func(ctx context.Context, c *worker.Client, _ worker.JobRef) error {
			return check.Err(c.Pauses(ctx))
		},
		"run": func(ctx context.Context, c *worker.Client, ref worker.JobRef) error {
			return check.Err(c.RunNow(ctx, ref))
		},
		"unschedule": func(ctx context.Context, c *worker.Client, _ worker.JobRef) error {
			return c.Unschedule(ctx, "jobs.report.nightly")
		},
	}
	for name, call := range calls {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			b := keyed(t, srv)
			c := client(t, b.js)
			first := run(t, b.js, b.config(t), worker.Policy{}, complete) // makes the bucket
			natstest.Pass(2 * time.Second)
			check.OK(t, first.wait())
			p, js := natstest.Proxied(t, srv)
			for _, fault := range []natstest.Fault{natstest.WriteLost, natstest.ReplyLost} {
				for _, method := range []string{".STREAM.INFO.", ".MSG.GET.", ".MSG.DELETE."} {
					p.Filter(nil)
					r := insert(t, c, worker.NewJob{Delay: time.Hour, Subject: "jobs.mail"})
					check.Must(c.Schedule(t.Context(), worker.Periodic{Subject: "jobs.report", Name: "nightly", Every: 24 * time.Hour}))(t)
					p.Hit(func(f natstest.Frame) bool { return strings.Contains(f.Subject, method) }, fault, 2)
					err := call(t.Context(), client(t, js), worker.JobRef{Sequence: r.Sequence})
					check.That(t, err == nil, "%s, %s: %v", method, fault, err)
				}
			}
		})
	}
}
