package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// InsertMany stores jobs in their order, without waiting for one answer before sending the
// next, and returns a receipt for each, in the same order. All jobs are checked before the
// first is sent: when one is invalid, none is inserted. Otherwise the jobs that failed are
// named by their index in [*InsertError] values, joined; the receipts of the others hold.
// It is no transaction.
func (c *Client) InsertMany(ctx context.Context, jobs []NewJob) ([]Receipt, error) {
	plans, err := c.plans(jobs)
	if err != nil {
		return nil, err
	}

	for i, p := range plans {
		if err := c.ready(ctx, p); err != nil {
			return nil, p.failed(i, err)
		}
	}

	b := &batch{client: c, errs: make([]error, len(plans)), plans: plans, receipts: make([]Receipt, len(plans))}

	b.publish(ctx)
	b.settle(ctx)

	for i, err := range b.errs {
		if err != nil {
			b.errs[i] = plans[i].failed(i, err)
		}
	}

	return b.receipts, errors.Join(b.errs...)
}

func (c *Client) plans(jobs []NewJob) ([]*plan, error) {
	var errs []error

	plans := make([]*plan, len(jobs))

	for i, job := range jobs {
		p, err := c.plan(job)
		if err != nil {
			errs = append(errs, &InsertError{Cause: err, ID: job.ID, Index: i, Subject: job.Subject})
		}

		plans[i] = p
	}

	return plans, errors.Join(errs...)
}

// batch is the work of one InsertMany.
type batch struct {
	client   *Client
	errs     []error
	plans    []*plan
	receipts []Receipt
}

// publish sends every job once, at most InFlight ahead of the answers.
func (b *batch) publish(ctx context.Context) {
	var (
		futures = make([]jetstream.PubAckFuture, len(b.plans))
		next    int // to be answered
	)

	for i, p := range b.plans {
		if i-next >= b.client.cfg.InFlight {
			b.await(ctx, next, futures[next])
			next++
		}

		if b.errs[i] = ctx.Err(); b.errs[i] != nil {
			continue
		}

		futures[i], b.errs[i] = b.client.js.PublishMsgAsync(p.message())
	}

	for ; next < len(b.plans); next++ {
		b.await(ctx, next, futures[next])
	}
}

// await takes the answer to one job.
func (b *batch) await(ctx context.Context, i int, future jetstream.PubAckFuture) {
	if future == nil {
		return
	}

	timer := time.NewTimer(b.client.cfg.RequestTimeout)
	defer timer.Stop()

	select {
	case ack := <-future.Ok():
		b.receipts[i] = b.plans[i].receipt(ack)
	case b.errs[i] = <-future.Err():
	case <-timer.C:
		b.errs[i] = nats.ErrTimeout
	case <-ctx.Done():
		b.errs[i] = ctx.Err()
	}
}

// settle looks after the jobs that were not confirmed, a few at a time.
func (b *batch) settle(ctx context.Context) {
	var (
		group sync.WaitGroup
		slots = make(chan struct{}, b.client.cfg.InFlight)
	)

	for i, err := range b.errs {
		if err == nil {
			continue
		}

		slots <- struct{}{}

		group.Go(func() {
			defer func() { <-slots }()

			b.receipts[i], b.errs[i] = b.client.settle(ctx, b.plans[i], err)
		})
	}

	group.Wait()
}
