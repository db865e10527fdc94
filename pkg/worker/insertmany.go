package worker

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// insertion is the work of one InsertMany.
type insertion struct {
	client   *Client
	errs     []error
	plans    []*plan
	receipts []Receipt
}

// publish publishes every job once, at most InFlight ahead of the answers.
func (m *insertion) publish(ctx context.Context) {
	futures, next := make([]jetstream.PubAckFuture, len(m.plans)), 0 // next is to be answered
	timer := time.NewTimer(m.client.cfg.RequestTimeout)
	defer timer.Stop()
	for i, p := range m.plans {
		if i-next >= m.client.cfg.InFlight {
			m.await(ctx, timer, next, futures[next])
			next++
		}
		if m.errs[i] = ctx.Err(); m.errs[i] != nil {
			continue
		}
		futures[i], m.errs[i] = m.client.js.PublishMsgAsync(p.message(m.client.stream.Load()))
	}
	for ; next < len(m.plans); next++ {
		m.await(ctx, timer, next, futures[next])
	}
}

// await waits for the answer to one job.
func (m *insertion) await(ctx context.Context, timer *time.Timer, i int, future jetstream.PubAckFuture) {
	if future == nil {
		return
	}
	timer.Reset(m.client.cfg.RequestTimeout)
	select {
	case ack := <-future.Ok():
		m.receipts[i] = m.plans[i].receipt(ack)
	case m.errs[i] = <-future.Err():
	case <-timer.C:
		m.errs[i] = nats.ErrTimeout
	case <-ctx.Done():
		m.errs[i] = ctx.Err()
	}
}

// settle finds out the outcomes of the jobs that were not confirmed, InFlight at a time.
func (m *insertion) settle(ctx context.Context) {
	var group sync.WaitGroup
	free := make(chan struct{}, m.client.cfg.InFlight)
	for i, err := range m.errs {
		if err == nil {
			continue
		}
		free <- struct{}{}
		group.Go(func() {
			m.receipts[i], m.errs[i] = m.client.settle(ctx, m.plans[i], err)
			<-free
		})
	}
	group.Wait()
}
