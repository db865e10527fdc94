package notifier

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

const freezing = "was frozen"

// trouble makes everything else happen, each thing when the providers have been called some more times.
func (c *cell) trouble(all *sync.WaitGroup) {
	calls := 0
	for n := range c.events {
		for _, w := range c.rowsOf(c.event(n)) {
			if w.ending() == told && w.Channel != "inapp" {
				calls++
			}
		}
	}
	misfortunes := []func(){c.killOne, c.forgetConsumers, c.killOne, c.freezeOne}
	if c.on.Disturb != nil {
		misfortunes = []func(){c.killOne, c.killServer, c.freezeOne, c.killServer, c.forgetConsumers}
	}
	misfortunes = slices.Repeat(misfortunes, c.chaos)
	passes := make([]chan struct{}, len(misfortunes))
	for i := range passes {
		passes[i] = make(chan struct{})
		c.far.at((i+1)*calls/(len(misfortunes)+1), passes[i])
	}
	all.Go(func() {
		for i, pass := range passes {
			select {
			case <-pass:
				misfortunes[i]()
			case <-c.Context().Done():
				return
			}
		}
	})
}

// killOne kills one of the crew, wherever it is: providers are being called.
func (c *cell) killOne() {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := int(c.far.seed % uint64(len(c.hands)))
	p := c.hands[i]
	p.Kill()
	c.accidents.workers[nameOf(p)] = "was killed"
	c.accidents.kills++
	c.hands[i] = c.spawn("", 0)
}

// freezeOne stops the clock of one of the crew until others have taken over what it does, and lets it go on.
func (c *cell) freezeOne() {
	c.mu.Lock()
	p := c.hands[len(c.hands)-1]
	c.mu.Unlock()
	c.note(p, freezing)
	p.Pause()
	helper := c.spawn("", 0)
	<-time.After(2*ackWait + callTimeout)
	p.Continue()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hands = append(c.hands, helper)
}

// killServer kills a server, and starts it again.
func (c *cell) killServer() {
	from := time.Now()
	check.Is(c, c.on.Disturb(c.Context(), contracts.StreamNotifications), nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accidents.servers = append(c.accidents.servers, span{from, time.Now()})
}

// forgetConsumers has every event, every plan and every row delivered again, also those that are done.
func (c *cell) forgetConsumers() {
	for stream, names := range consumers {
		for _, name := range names {
			err := natstest.UntilAnswered(c.T, func(ctx context.Context) error { return c.js.DeleteConsumer(ctx, stream, name) })
			if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) { // the answer to a first try was lost
				c.Errorf("consumer %s: %v", name, err)
			}
		}
	}
}
