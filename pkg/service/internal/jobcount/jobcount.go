// Package jobcount counts the jobs of a stream without reading them, and finds the time since when the oldest job waits. The cost does not
// depend on the number of jobs.
package jobcount

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/jsapi"
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

// ConsumerID identifies a consumer. A consumer that was made anew has another ConsumerID.
type ConsumerID struct {
	Name    string
	Created time.Time
}

// Count is the last answer about a stream of which workers take jobs. The zero value is none.
type Count struct {
	At      time.Time             // the time of the question, zero for no answer
	Waiting map[ConsumerID]uint64 // that no worker was given
	Given   map[ConsumerID]int    // jobs that a worker was given and that are not done

	// Idle are the consumers from which no worker pulls.
	Idle map[ConsumerID]bool

	// First is the sequence of the oldest waiting job, and Stored the time at which it was stored; both are zero when none waits.
	First  uint64
	Stored time.Time

	// Aside is the number of messages of a work queue that no consumer has, in the last two answers. AsideName is Stranded or Aside.
	Aside     [2]uint64
	AsideAt   time.Time
	AsideName string

	passed map[ConsumerID]uint64 // a sequence up to which no job waits
	taken  uint64                // the number of messages that consumers have
	since  time.Time             // the time before the first consumer was read
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
	now.Waiting, now.Given, now.passed = map[ConsumerID]uint64{}, map[ConsumerID]int{}, map[ConsumerID]uint64{}
	now.Idle, now.taken, now.since = map[ConsumerID]bool{}, 0, now.At
	for i, info := range page.Consumers {
		now.taken += info.NumPending + uint64(max(info.NumAckPending, 0))
		if i == 0 || info.TimeStamp.Before(now.since) {
			now.since = info.TimeStamp
		}
		if info.Config.Durable == "" {
			continue // the consumer of a program that reads the stream, with a name that is not used again
		}
		id := ConsumerID{info.Name, info.Created}
		now.Waiting[id], now.Given[id], now.Idle[id] = info.NumPending, info.NumAckPending, info.NumWaiting == 0
		now.passed[id] = max(c.passed[id], info.Delivered.Stream)
	}
	return &now
}

// Complete adds the state of the stream to the counts of its consumers, and reads the oldest waiting job. One round trip if a job waits.
// The server looks for the next message from there on with any subject: a search for the consumer's filter could cost it a look at every
// subject. Complete reports whether there was an answer.
func (c *Count) Complete(ctx context.Context, client jsapi.Client, info *jetstream.StreamInfo) bool {
	var first uint64
	for id, n := range c.Waiting {
		switch from := c.passed[id] + 1; {
		case n == 0 && info.State.LastTime.Before(c.since):
			c.passed[id] = info.State.LastSeq
		case n > 0 && (first == 0 || from < first):
			first = from
		}
	}
	if first == 0 {
		c.First, c.Stored = 0, time.Time{}
	} else if first != c.First {
		m, ok, err := client.Get(ctx, info.Config.Name, jsapi.Query{NextBySubject: ">", Sequence: first})
		if err != nil {
			return false
		}
		if c.First, c.Stored = first, m.Time; !ok {
			c.First, c.Stored = 0, time.Time{} // it is done meanwhile
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

// Age returns the time for which the oldest job has been waiting.
func (c *Count) Age() time.Duration {
	if c.Stored.IsZero() {
		return 0
	}
	return max(time.Since(c.Stored), 0)
}

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
			nodes = append(nodes, peer.Name+" is behind")
		}
	}
	slices.Sort(nodes)
	return nodes
}
