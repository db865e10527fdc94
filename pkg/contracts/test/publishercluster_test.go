package test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// The leader of three nodes is killed while events are published. Every publish succeeds, by trying again where it has to, and
// the stream has every event once.
func TestPublishThroughTheDeathOfALeader(t *testing.T) {
	t.Parallel()
	const publishers, before, after = 8, 10, 20
	c := natstest.Cluster(t, 3, natstest.Processes)
	_, js := natstest.ConnectURL(t, c.URLs())
	assets := slices.DeleteFunc(contracts.Assets(contracts.AssetOptions{Replicas: 3, MaxBytes: 1 << 30}), func(c jetstream.StreamConfig) bool {
		return c.Name != contracts.StreamEvents
	})
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, assets, contracts.ApplyOptions{})))
	var all, begun sync.WaitGroup
	var published atomic.Int64
	killed := make(chan struct{})
	begun.Add(publishers)
	for n := range publishers {
		p := publisher(t, js, contracts.PublisherConfig{})
		all.Go(func() {
			left := after
			for i := 0; left > 0; i++ {
				if i == before {
					begun.Done()
				}
				if _, err := p.Publish(t.Context(), reserved(fmt.Sprintf("evt-%d-%d", n, i))); err != nil {
					t.Errorf("%d of publisher %d: %v", i, n, err)
				}
				published.Add(1)
				select {
				case <-killed:
					left--
				default:
				}
			}
		})
	}
	begun.Wait()
	leader, err := c.StreamLeader(t.Context(), contracts.StreamEvents)
	if err != nil {
		close(killed)
		t.Fatal(err)
	}
	err = leader.Kill()
	close(killed)
	all.Wait()
	check.OK(t, err)
	stored := map[string]int{}
	var stream jetstream.Stream
	check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) (err error) {
		stream, err = js.Stream(ctx, contracts.StreamEvents)
		return err
	}))
	for n := range stream.CachedInfo().State.LastSeq {
		check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) error {
			msg, err := stream.GetMsg(ctx, n+1)
			switch {
			case err == nil:
				stored[msg.Header.Get(nats.MsgIdHdr)]++
			case errors.Is(err, jetstream.ErrMsgNotFound): // a replica that is behind
				return nats.ErrTimeout
			}
			return err
		}))
	}
	for id, times := range stored {
		if times != 1 {
			t.Errorf("%s is there %d times", id, times)
		}
	}
	if want := int(published.Load()); len(stored) != want {
		t.Errorf("%d events, want %d", len(stored), want)
	}
}
