package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/backoff"
	"github.com/expediter-io/expediter/pkg/internal/consumer"
	"github.com/expediter-io/expediter/pkg/internal/subject"
)

const (
	// takersKept is how long a stream counts as one without consumers, or whose consumers cannot be listed.
	takersKept = 10 * time.Second

	// takersAgain is the wait between two looks at the consumers of workers that may be about to start.
	takersAgain = 100 * time.Millisecond

	// takersWithin bounds the listing of consumers: an account that may not list them gets no answer.
	takersWithin = 250 * time.Millisecond

	maxFilters = 20 // that are named
)

// UntakenError is returned when a stream has consumers, and none takes the subject of a job: nothing would ever work it.
type UntakenError struct {
	// Filters are the subjects that the consumers take, 20 at most.
	Filters []string

	// Stream is the stream.
	Stream string

	// Subject is the subject of the job, with its key.
	Subject string
}

// Error implements error.
func (e *UntakenError) Error() string {
	return fmt.Sprintf("worker: no consumer of stream %s takes %q, only %s: register a handler for it and start its worker, or set "+
		"ClientConfig.AllowUntaken", e.Stream, e.Subject, strings.Join(e.Filters, ", "))
}

// takers are the subjects that the consumers of a stream take.
type takers struct {
	filters []string
	from    time.Time
	settled bool // no consumer is so young that its worker may be making others
	tree    subject.Tree[*taker]
}

// taker is a consumer.
type taker struct {
	delivered uint64 // the last sequence of the stream that it has delivered
	floor     uint64 // up to here everything of it is acknowledged
	name      string
}

// checkTaken returns an [*UntakenError] when no consumer takes a subject. It costs nothing for subjects of a consumer that was seen
// before, otherwise a round trip for each 256 consumers. When they cannot be listed, or there is none, nothing is known. A worker
// makes its consumers one after the other: while the youngest is new, checkTaken waits for the next.
func (c *Client) checkTaken(ctx context.Context, to string) error {
	if c.cfg.AllowUntaken {
		return nil
	}
	if seen := c.takers.Load(); seen != nil {
		_, taken := seen.tree.Find(to)
		if taken || len(seen.filters) == 0 && time.Since(seen.from) < takersKept {
			return nil
		}
	}
	for {
		within, cancel := context.WithTimeout(ctx, takersWithin)
		now, _ := c.listTakers(within) //nolint:errcheck // nothing is known then
		cancel()
		c.takers.Store(now)
		if _, taken := now.tree.Find(to); taken || len(now.filters) == 0 {
			return nil
		}
		if now.settled || !backoff.Sleep(ctx, takersAgain) {
			return &UntakenError{Filters: now.filters[:min(len(now.filters), maxFilters)], Stream: c.cfg.Stream, Subject: to}
		}
	}
}

// listTakers lists the stream's consumers. It returns none beside an error.
func (c *Client) listTakers(ctx context.Context) (*takers, error) {
	found := &takers{from: time.Now(), settled: true}
	for listed, total := 0, 1; listed < total; {
		var page struct {
			Consumers []jetstream.ConsumerInfo `json:"consumers"`
			Total     int                      `json:"total"`
		}
		err := c.api.Ask(ctx, "CONSUMER.LIST."+c.cfg.Stream, json.RawMessage(fmt.Sprintf(`{"offset":%d}`, listed)), &page)
		if err == nil && len(page.Consumers) == 0 && page.Total > 0 {
			err = fmt.Errorf("%d of %d answered", listed, page.Total)
		}
		if err != nil {
			return &takers{from: found.from}, fmt.Errorf("worker: list consumers of stream %s: %w", c.cfg.Stream, err)
		}
		for _, one := range page.Consumers {
			found.settled = found.settled && one.TimeStamp.Sub(one.Created) > prepareTimeout
			t := &taker{delivered: one.Delivered.Stream, floor: one.AckFloor.Stream, name: one.Name}
			filters := consumer.Filters(one.Config)
			if len(filters) == 0 {
				filters = []string{">"}
			}
			for _, filter := range filters {
				found.filters = append(found.filters, filter)
				found.tree.Add(filter, t)
			}
		}
		listed, total = listed+len(page.Consumers), page.Total
	}
	return found, nil
}
