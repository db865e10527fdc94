package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
)

// The states of messages that no consumer has.
const (
	// Stranded is the state of messages of a work queue that no consumer will ever deliver.
	Stranded = "stranded"

	// Aside is the same in a work queue with schedules, where delayed jobs and records of jobs count too.
	Aside = "aside"
)

// ReplicaSilent is the longest silence of a node that keeps up, which the leader asks every second. The server itself counts a node as
// behind after 10 seconds.
const ReplicaSilent = 5 * time.Second

// ID identifies a consumer. A consumer that was recreated has another ID.
type ID struct {
	Name    string
	Created time.Time
}

// Counted is what a consumer said of itself.
type Counted struct {
	// Queued is the number of jobs that no worker was given, and Delivered of those that one was given and that are not done.
	Queued    uint64
	Delivered uint64

	Redelivered  int           // the number of jobs that were given to workers more than once and that are not done
	Acknowledged uint64        // the number of deliveries before the first one that is not acknowledged
	Pulls        int           // the number of pull requests that wait for jobs; a worker that is frozen leaves its own until they expire
	Paused       time.Duration // the time for which the servers deliver nothing, see nats consumer pause

	// Ours reports whether it has the settings of a worker's consumer, which other programs hardly choose.
	Ours bool

	Config jetstream.ConsumerConfig // its configuration

	passed uint64 // a sequence up to which no job is queued
}

// Count is the last answer about a stream of which workers take jobs. The zero value is none.
type Count struct {
	At        time.Time // the time of the question, zero for no answer
	Consumers map[ID]Counted

	// First is the sequence of the oldest queued job, and Stored the time at which it was stored; both are zero when none is queued.
	First  uint64
	Stored time.Time

	// Aside is the number of messages of a work queue that no consumer has, in the last two answers. AsideName is Stranded or Aside.
	Aside     [2]uint64
	AsideAt   time.Time
	AsideName string

	taken uint64    // the number of messages that consumers have
	since time.Time // the time before the first consumer was read
}

// Ask asks for the consumers of a stream after a former answer. One round trip; nil for no answer.
func (c Count) Ask(ctx context.Context, client jsapi.Client, stream string) *Count {
	var page struct {
		Consumers []jetstream.ConsumerInfo `json:"consumers"`
		Missing   []string                 `json:"missing"`
		Total     int                      `json:"total"`
	}
	now := c
	now.At = time.Now()
	if err := client.Ask(ctx, "CONSUMER.LIST."+stream, nil, &page); err != nil {
		return nil
	}
	if len(page.Missing) > 0 || len(page.Consumers) < page.Total {
		return nil // a part would count as the whole
	}
	now.Consumers, now.taken, now.since = map[ID]Counted{}, 0, now.At
	for i, info := range page.Consumers {
		now.taken += info.NumPending + uint64(max(info.NumAckPending, 0))
		if i == 0 || info.TimeStamp.Before(now.since) {
			now.since = info.TimeStamp
		}
		cfg := info.Config
		if cfg.Durable == "" {
			continue // the consumer of a program that reads the stream, with a name that is not used again
		}
		id := ID{info.Name, info.Created}
		now.Consumers[id] = Counted{
			Queued: info.NumPending, Delivered: uint64(max(info.NumAckPending, 0)), Redelivered: info.NumRedelivered, Pulls: info.NumWaiting,
			Config: cfg, Acknowledged: info.AckFloor.Consumer, Paused: info.PauseRemaining,
			Ours:   cfg.DeliverSubject == "" && cfg.AckPolicy == jetstream.AckExplicitPolicy && cfg.MaxAckPending == -1 && cfg.MaxDeliver == -1,
			passed: max(c.Consumers[id].passed, info.Delivered.Stream),
		}
	}
	return &now
}

// Complete adds the state of the stream to the counts of its consumers, and reads the oldest queued job. One round trip if a job is queued.
// The server looks for the next message from there on with any subject: a search for the consumer's filter could cost it a look at every
// subject. Complete reports whether there was an answer.
func (c *Count) Complete(ctx context.Context, client jsapi.Client, info *jetstream.StreamInfo) bool {
	var first uint64
	for id, one := range c.Consumers {
		switch from := one.passed + 1; {
		case one.Queued == 0 && info.State.LastTime.Before(c.since):
			one.passed = info.State.LastSeq
			c.Consumers[id] = one
		case one.Queued > 0 && (first == 0 || from < first):
			first = from
		}
	}
	if first == 0 {
		c.First, c.Stored = 0, time.Time{}
	} else if first != c.First {
		var next struct {
			Message struct {
				Time time.Time `json:"time"`
			} `json:"message"`
		}
		err := client.Ask(ctx, "STREAM.MSG.GET."+info.Config.Name, map[string]any{"next_by_subj": ">", "seq": first}, &next)
		if api, ok := errors.AsType[*jetstream.APIError](err); err != nil && (!ok || api.ErrorCode != jetstream.JSErrCodeMessageNotFound) {
			return false
		}
		if c.First, c.Stored = first, next.Message.Time; err != nil {
			c.First, c.Stored = 0, time.Time{} // it was done in the meantime
		}
	}
	// A message that came between the two answers would count as a message that no consumer has.
	if info.Config.Retention == jetstream.WorkQueuePolicy && info.State.LastTime.Before(c.since) {
		c.AsideAt, c.AsideName = c.At, Stranded
		if info.Config.AllowMsgSchedules {
			c.AsideName = Aside
		}
		c.Aside = [2]uint64{c.Aside[1], max(info.State.Msgs, c.taken) - c.taken}
	}
	return true
}

// Left returns the number of messages that no consumer has in two answers: others were being removed.
func (c *Count) Left() uint64 { return min(c.Aside[0], c.Aside[1]) }

// Age returns the time for which the oldest job has been queued.
func (c *Count) Age() time.Duration {
	if c.Stored.IsZero() {
		return 0
	}
	return max(time.Since(c.Stored), 0)
}

// Behind ends the reason of a node that answers, and does not have all messages.
const Behind = " is behind"

// Without returns the nodes with a replica of a stream that are away, or do not have all of its messages, each with the reason. A node
// that has not answered for longer than silent is away, see ReplicaSilent.
func Without(cluster *jetstream.ClusterInfo, silent time.Duration) (nodes []string) {
	if cluster == nil {
		return nil
	}
	for _, peer := range cluster.Replicas {
		switch {
		case peer.Offline:
			nodes = append(nodes, peer.Name+" is offline")
		case peer.Active > silent:
			nodes = append(nodes, fmt.Sprintf("%s was silent for %s", peer.Name, peer.Active.Truncate(time.Second)))
		case !peer.Current:
			nodes = append(nodes, peer.Name+Behind)
		}
	}
	slices.Sort(nodes)
	return nodes
}
