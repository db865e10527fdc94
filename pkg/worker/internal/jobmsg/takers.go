package jobmsg

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/consumer"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/subject"
)

// young is the time after making a consumer in which a worker may be making others.
const young = 5 * time.Second

// Takers are the consumers of a stream, and the subjects that they take.
type Takers struct {
	All     []*Taker
	Filters []string
	First   uint64 // no earlier message is to be delivered
	From    time.Time
	Held    uint64 // the number of messages that were delivered and are not acknowledged
	Last    uint64 // no consumer has delivered a later message
	Pending uint64 // the number of messages that are to be delivered
	Settled bool   // no consumer is so young that its worker may still be making others

	tree subject.Tree[*Taker]
}

// Taker is a consumer.
type Taker struct {
	Asked     bool   // a request of a worker waits at it
	Delivered uint64 // the last sequence of the stream that it has delivered
	Filters   []string
	Floor     uint64 // all its messages up to here are acknowledged
	Name      string

	acks  bool      // it waits for acknowledgements
	since time.Time // it delivers no messages from before
}

// Of returns the consumer that takes a subject, nil for none.
func (t *Takers) Of(to string) *Taker {
	taker, _ := t.tree.Find(to)
	return taker
}

// AllOf returns the consumers that take a message and acknowledge it, by the subject of its job: one at most in a work queue.
func (t *Takers) AllOf(m jsapi.Message, to string) (all []*Taker) {
	takes := func(filter string) bool { return subject.Matches(filter, to) }
	for _, taker := range t.All {
		if taker.acks && !m.Time.Before(taker.since) && slices.ContainsFunc(taker.Filters, takes) {
			all = append(all, taker)
		}
	}
	return all
}

// cover reports whether one consumer takes all subjects of a filter.
func (t *Takers) cover(filter string) bool {
	return slices.ContainsFunc(t.Filters, func(taken string) bool { return subject.Covers(taken, filter) })
}

// ListTakers lists the consumers of a stream. With an error it returns nil. One round trip for each 256 consumers.
func ListTakers(ctx context.Context, api jsapi.Client, stream string) (*Takers, error) {
	found := &Takers{First: math.MaxUint64, From: time.Now(), Settled: true}
	for listed, total := 0, 1; listed < total; {
		var page struct {
			Consumers []jetstream.ConsumerInfo `json:"consumers"`
			Total     int                      `json:"total"`
		}
		err := api.Ask(ctx, "CONSUMER.LIST."+stream, json.RawMessage(fmt.Sprintf(`{"offset":%d}`, listed)), &page)
		if err == nil && len(page.Consumers) == 0 && page.Total > 0 {
			err = fmt.Errorf("%d of %d answered", listed, page.Total)
		}
		if err != nil {
			return &Takers{From: found.From}, fmt.Errorf("worker: list consumers of stream %s: %w", stream, err)
		}
		for _, one := range page.Consumers {
			found.add(one)
		}
		listed, total = listed+len(page.Consumers), page.Total
	}
	return found, nil
}

func (t *Takers) add(one jetstream.ConsumerInfo) {
	if t.Last = max(t.Last, one.Delivered.Stream); one.NumPending > 0 {
		t.First = min(t.First, one.Delivered.Stream+1)
	}
	t.Held += uint64(max(one.NumAckPending, 0))
	t.Pending += one.NumPending
	t.Settled = t.Settled && one.TimeStamp.Sub(one.Created) > young
	taker := &Taker{
		Asked: one.NumWaiting > 0, Delivered: one.Delivered.Stream, Filters: consumer.Filters(one.Config), Floor: one.AckFloor.Stream,
		Name: one.Name, acks: one.Config.AckPolicy != jetstream.AckNonePolicy,
	}
	if one.Config.DeliverPolicy == jetstream.DeliverNewPolicy {
		taker.since = one.Created
	}
	if len(taker.Filters) == 0 {
		taker.Filters = []string{">"}
	}
	t.All, t.Filters = append(t.All, taker), append(t.Filters, taker.Filters...)
	for _, filter := range taker.Filters {
		t.tree.Add(filter, taker)
	}
}
