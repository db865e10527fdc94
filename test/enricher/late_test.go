package enricher_test

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// TestCallsReadAfterTheKill: the far side reads none of an instance's calls before the instance is killed. They count as
// look-ups that the instance was in the middle of: each place is looked up once more.
func TestCallsReadAfterTheKill(t *testing.T) {
	t.Parallel()
	const n = 10
	ctx, moved := untilStalled(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	far := newFarSide(t, moved)
	release := far.readLate()
	a := instances.Start(t, instance{Name: "a", NATS: srv.URL(), Provider: far.URL})
	c := &client{
		http: newHTTP(t), instances: []string{a.Line()}, retrying: make(chan struct{}, 1),
		req: contracts.EnrichRequest{RequestID: "r", Results: places(n)},
	}
	check.OK(t, check.Err(c.ask(ctx)))
	for range n {
		select {
		case <-far.held:
		case <-ctx.Done():
			t.Fatal("not all places are being looked up")
		}
	}
	before := far.counts()
	a.Kill()
	close(release)
	c.instances = []string{instances.Start(t, instance{Name: "b", NATS: srv.URL(), Provider: far.URL}).Line()}
	check.OK(t, c.run(ctx))
	if again := checkOnce(t, []*client{c}, lookUps{before: before, all: far.counts(), killed: "a"}); len(before) > 0 || len(again) != n {
		t.Errorf("%d places counted before the kill and %d were looked up again, want none and %d", len(before), len(again), n)
	}
}
