package worker

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/expediter-io/expediter/pkg/worker/internal/api"
	"github.com/expediter-io/expediter/pkg/worker/internal/pull"
)

// Priority says which jobs of one worker start first when there are not slots for all. The
// jobs of a priority have a consumer of their own, see [Policy.Priority].
type Priority int

// The priorities. While jobs of several wait, each gets four times the starts of the one
// below it, so that none is ever starved: with jobs of PriorityHigh, PriorityNormal and
// PriorityLow waiting, 16, 4 and 1 of 21. A priority without waiting jobs leaves its slots
// to the others. While those take every slot, its next job waits for 5 ms at most, and for
// the next slot to be free.
const (
	PriorityLowest Priority = iota - 2
	PriorityLow
	PriorityNormal // of a policy that says nothing
	PriorityHigh
	PriorityHighest
)

// priorityShare is how many starts a priority has for one of the priority below it.
const priorityShare = 4

// heldFor is how long a job that came when all slots were taken waits for one here, with
// heartbeats, before it is handed back for another worker to take. It comes so only when
// its priority had a request waiting at the server, which cannot be taken back.
const heldFor = 250 * time.Millisecond

var prioritySuffixes = map[Priority]string{
	PriorityLowest: "-lowest", PriorityLow: "-low", PriorityNormal: "", PriorityHigh: "-high", PriorityHighest: "-highest",
}

func (p Priority) validate() error {
	if _, known := prioritySuffixes[p]; !known {
		return fmt.Errorf("worker: Policy.Priority is %d: use PriorityLowest to PriorityHighest, %d to %d", p, PriorityLowest, PriorityHighest)
	}

	return nil
}

func (p Priority) weight() int {
	weight := 1
	for ; p > PriorityLowest; p-- {
		weight *= priorityShare
	}

	return weight
}

// ConsumerOf is the name of the consumer of the jobs with a priority, of the worker whose
// Config.Consumer is given: that itself for PriorityNormal, otherwise with "-highest",
// "-high", "-low" or "-lowest" at its end.
func ConsumerOf(consumer string, p Priority) string { return consumer + prioritySuffixes[p] }

// class is the handlers of one priority and the consumer that they share.
type class struct {
	consumer string
	created  atomic.Int64 // when the consumer was made, in Unix nanoseconds
	patterns []string
	priority Priority
}

// classFor returns the class of a priority, made when it is new. The highest come first.
func (w *Worker) classFor(p Priority) *class {
	at := len(w.classes)

	for i, c := range w.classes {
		if c.priority == p {
			return c
		}

		if c.priority < p {
			at = i

			break
		}
	}

	added := &class{consumer: ConsumerOf(w.cfg.Consumer, p), priority: p}
	w.classes = append(w.classes[:at], append([]*class{added}, w.classes[at:]...)...)

	return added
}

// classOf returns the class of the consumer that delivered a job.
func (w *Worker) classOf(consumer string) *class {
	for _, c := range w.classes {
		if c.consumer == consumer {
			return c
		}
	}

	return w.classes[0]
}

// sources are the consumers to pull from.
func (w *Worker) sources() []pull.Source {
	all := make([]pull.Source, 0, len(w.classes))
	for _, c := range w.classes {
		all = append(all, pull.Source{
			Subject: api.Prefix(w.js) + "CONSUMER.MSG.NEXT." + w.cfg.Stream + "." + c.consumer, Weight: c.priority.weight(),
		})
	}

	return all
}
