package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/worker/internal/partition"
)

// InsertMany stores jobs in their order, without waiting for one answer before sending the next, and returns a receipt for
// each, in the same order. All jobs are checked before the first is sent: when one is invalid, none is inserted. Otherwise
// the error joins an [*InsertError] for each failed job, with its index, and the receipts of the others are valid. It is no
// transaction.
func (c *Client) InsertMany(ctx context.Context, jobs []NewJob) ([]Receipt, error) {
	plans, err := c.plans(jobs)
	if err != nil {
		return nil, err
	}
	m := &insertion{
		at: make([]*Client, len(plans)), client: c, errs: make([]error, len(plans)), plans: plans, receipts: make([]Receipt, len(plans)),
	}
	if err := m.place(ctx); err != nil {
		return nil, err
	}
	m.publish(ctx)
	m.settle(ctx)
	for i, err := range m.errs {
		if err != nil {
			m.errs[i] = plans[i].failed(i, err)
		}
	}
	return m.receipts, errors.Join(m.errs...)
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

// message returns a message for one publication to the client's stream.
func (c *Client) message(p *plan) *nats.Msg {
	msg := p.message(c.stream.Load())
	if c.entry == "" {
		return msg
	}
	msg.Subject = c.entry + msg.Subject
	if len(msg.Header[jetstream.ExpectedStreamHeader]) > 0 {
		msg.Header.Set(jetstream.ExpectedStreamHeader, c.cfg.Stream)
	}
	if target := msg.Header.Get(headerScheduleTarget); target != "" {
		msg.Header.Set(headerScheduleTarget, c.entry+target)
	}
	return msg
}

// insertion is the work of one InsertMany.
type insertion struct {
	at       []*Client // of the partition of each job; nil for one that is inserted by itself
	client   *Client
	errs     []error
	plans    []*plan
	receipts []Receipt
}

// place finds the partition of each job. One whose key may be held in another is inserted by itself.
func (m *insertion) place(ctx context.Context) error {
	d := partition.Division{Partitions: 1}
	if m.client.parts != nil {
		var err error
		if d, err = m.client.divided(ctx, againAfter); err != nil {
			return err
		}
	}
	for i, p := range m.plans {
		m.at[i] = m.client
		if d.Partitions > 1 {
			n := partition.Of(p.key.Job(), d.Partitions)
			if m.at[i] = m.client.parts[n]; n != 0 && d.State == partition.Open && (p.unique || p.unrecorded) {
				m.at[i], m.errs[i] = nil, errBusy
				continue
			}
		}
		if err := m.at[i].ensureStream(ctx, p); err != nil {
			return p.failed(i, err)
		}
	}
	return nil
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
		if m.at[i] == nil {
			continue
		}
		if m.errs[i] = ctx.Err(); m.errs[i] != nil {
			continue
		}
		futures[i], m.errs[i] = m.client.js.PublishMsgAsync(m.at[i].message(p))
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
			m.receipts[i], m.errs[i] = m.client.insertAgain(ctx, m.at[i], m.plans[i], err)
			<-free
		})
	}
	group.Wait()
}
