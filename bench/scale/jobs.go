package main

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

// jobs are messages that a consumer of each stream takes, and whose acknowledgement the server confirms.
func jobs(ctx context.Context, b *bench) (rig.Figures, error) {
	n := max(callers, int(20_000*b.scale))
	var done atomic.Int64
	var stops []jetstream.ConsumeContext
	defer func() {
		for _, s := range stops {
			s.Stop()
			<-s.Closed()
		}
	}()
	ended := make(chan error, callers)
	f, err := b.spreadOver(ctx, "jobs", n, func(ctx context.Context, made []string) error {
		done.Store(0)
		for _, stream := range made[len(stops):] {
			s, err := b.consume(ctx, stream, func(err error) {
				if done.Add(1) == int64(n) || err != nil {
					ended <- err
				}
			})
			if err != nil {
				return err
			}
			stops = append(stops, s)
		}
		return nil
	}, b.publish, func() error { return <-ended })
	return f, err
}

func (b *bench) consume(ctx context.Context, stream string, ended func(error)) (jetstream.ConsumeContext, error) {
	c, err := b.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: jetstream.DeliverNewPolicy, Durable: "jobs", MaxAckPending: 10 * callers,
	})
	if err != nil {
		return nil, fmt.Errorf("create a consumer: %w", err)
	}
	slots := make(chan struct{}, callers)
	return c.Consume(func(m jetstream.Msg) { //nolint:wrapcheck // told with its row
		slots <- struct{}{}
		go func() {
			err := m.DoubleAck(ctx)
			<-slots
			ended(err)
		}()
	}, jetstream.PullMaxMessages(callers))
}

// rates are those for which the page says what they take.
var rates = []int{1_000, 10_000, 100_000, 1_000_000}

// derive adds what rates take: the processors of all servers, and how many streams so that each has half of what one had here.
func derive(got rig.Results, entered []contestant) {
	for _, who := range entered {
		cpu, rate := got[who.Name]["jobs_1_server_cpu_us"], got[who.Name]["jobs_1_per_s"]
		if len(cpu) == 0 || len(rate) == 0 {
			continue
		}
		f := rig.Figures{}
		for _, r := range rates {
			f[fmt.Sprintf("cores_%d", r)] = float64(r) * rig.NewSpread(cpu).Median / 1e6
			f[fmt.Sprintf("streams_%d", r)] = math.Ceil(float64(r) / (rig.NewSpread(rate).Median / 2))
		}
		got.Add(who.Name, f)
	}
}

// sizes are the columns of what derive adds.
func sizes() (all []rig.Column) {
	for _, r := range rates {
		all = append(all,
			rig.Column{Figure: fmt.Sprintf("cores_%d", r), Title: fmt.Sprintf("%d/s: cores", r), Format: "%.2f"},
			rig.Column{Figure: fmt.Sprintf("streams_%d", r), Title: "streams", Format: "%.0f"},
		)
	}
	return all
}
