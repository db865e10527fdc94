package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/pkg/jsretry"
)

const (
	callers = 64 // the number of callers that publish or read at the same time
	many    = 200
	size    = 300 // bytes of a message
)

// streams are the numbers of streams over which the same messages are spread.
var streams = []int{1, 4}

// names numbers the streams, so that each is new.
var names int

// bench is one row of one contestant in one round.
type bench struct {
	contestant

	conn  *nats.Conn
	js    jetstream.JetStream
	made  []string
	on    *rig.Service
	scale float64
}

func newBench(who contestant, on *rig.Service, scale float64) (b *bench, err error) {
	b = &bench{contestant: who, on: on, scale: scale * who.weight}
	b.conn, b.js, err = rig.Connect(on.Address)
	return b, err
}

// close removes the streams.
func (b *bench) close(ctx context.Context) {
	for _, name := range b.made {
		_ = b.js.DeleteStream(ctx, name) //nolint:errcheck // the servers end soon
	}
	b.conn.Close()
}

// stream makes a stream. A cluster that has just started takes a while.
func (b *bench) stream(ctx context.Context) (string, error) {
	names++
	name := fmt.Sprintf("s%d", names)
	err := jsretry.Do(ctx, timeout, func(ctx context.Context) error {
		_, err := b.js.CreateStream(ctx, jetstream.StreamConfig{
			AllowDirect: true, MaxBytes: 32 << 20, MaxConsumers: 2 * many, Name: name, Replicas: b.replicas, Subjects: []string{name + ".>"},
		})
		return err
	})
	b.made = append(b.made, name)
	return name, err
}

// at returns the subject of a message of one of the streams.
func at(all []string, i int) string { return fmt.Sprintf("%s.%d", all[i%len(all)], i/len(all)%1000) }

// spreadOver runs op n times with subjects of one stream, and of several, and then last. Before, it calls ready with the streams.
func (b *bench) spreadOver(
	ctx context.Context, what string, n int, ready func(ctx context.Context, streams []string) error,
	op func(ctx context.Context, subject string) error, last func() error,
) (rig.Figures, error) {
	f := rig.Figures{}
	var made []string
	for _, width := range streams {
		for len(made) < width {
			name, err := b.stream(ctx)
			if err != nil {
				return nil, err
			}
			made = append(made, name)
			err = rig.Publish(ctx, b.js, 1000, func(i int) (*nats.Msg, error) {
				return &nats.Msg{Subject: fmt.Sprintf("%s.%d", name, i), Data: make([]byte, size)}, nil
			})
			if err != nil {
				return nil, err
			}
		}
		if err := ready(ctx, made); err != nil {
			return nil, err
		}
		if err := b.measure(ctx, f, fmt.Sprintf("%s_%d", what, width), made, n, op, last); err != nil {
			return nil, err
		}
	}
	f[what+"_cpu_ratio"] = f[fmt.Sprintf("%s_%d_server_cpu_us", what, streams[1])] / max(1, f[fmt.Sprintf("%s_%d_server_cpu_us", what, streams[0])])
	return f, nil
}

func (b *bench) measure(
	ctx context.Context, f rig.Figures, name string, made []string, n int, op func(ctx context.Context, subject string) error,
	last func() error,
) error {
	before, shares, start := rig.WorkOf(b.on), b.on.ProcessorTimes(), time.Now()
	err := rig.Each(callers, n, func(i int) error { return op(ctx, at(made, i)) })
	if err := errors.Join(err, last()); err != nil {
		return err
	}
	f[name+"_per_s"] = float64(n) / time.Since(start).Seconds()
	f.Since(name, b.on, before, n)
	after := b.on.ProcessorTimes()
	for i := range after {
		after[i] -= shares[i]
	}
	f[name+"_busiest_cpu_us"] = rig.In("us", slices.Max(after)) / float64(n)
	return nil
}

func (b *bench) publish(ctx context.Context, subject string) error {
	_, err := b.js.Publish(ctx, subject, make([]byte, size))
	return err //nolint:wrapcheck // told with its row
}

func nothing() error { return nil }

func noStreams(context.Context, []string) error { return nil }

func publish(ctx context.Context, b *bench) (rig.Figures, error) {
	return b.spreadOver(ctx, "publish", max(callers, int(40_000*b.scale)), noStreams, b.publish, nothing)
}

func read(ctx context.Context, b *bench) (rig.Figures, error) {
	return b.spreadOver(ctx, "read", max(callers, int(40_000*b.scale/b.weight)), noStreams, func(_ context.Context, subject string) error {
		stream, _, _ := strings.Cut(subject, ".")
		m, err := b.conn.Request("$JS.API.DIRECT.GET."+stream+"."+subject, nil, timeout)
		if err == nil && len(m.Data) != size {
			err = fmt.Errorf("read %s: %s", subject, m.Header.Get("Description"))
		}
		return err //nolint:wrapcheck // told with its row
	}, nothing)
}

// spread returns the columns of spreadOver.
func spread(what string, widths []int) (all []rig.Column) {
	for _, n := range widths {
		figure := func(name string) string { return fmt.Sprintf("%s_%d_%s", what, n, name) }
		all = append(all,
			rig.Column{Figure: figure("per_s"), Title: fmt.Sprintf("%d: /s", n), Format: "%.0f"},
			rig.Column{Figure: figure("client_cpu_us"), Title: "client CPU µs", Format: "%.0f"},
			rig.Column{Figure: figure("server_cpu_us"), Title: "servers' CPU µs", Format: "%.0f"},
			rig.Column{Figure: figure("busiest_cpu_us"), Title: "of it the busiest", Format: "%.0f"},
		)
	}
	return append(all, rig.Column{Figure: what + "_cpu_ratio", Title: "servers' CPU, over one stream", Format: "%.2f", Spread: true})
}

// idleOnes makes many objects that are then idle.
func (b *bench) idleOnes(what string, one func(i int) error) (rig.Figures, error) {
	before, start := b.on.ResidentBytes(), time.Now()
	for i := range many {
		if err := one(i); err != nil {
			return nil, err
		}
	}
	took, grew := time.Since(start), max(0, b.on.ResidentBytes()-before)
	busy := b.on.ProcessorTime()
	time.Sleep(idling)
	return rig.Figures{
		what + "_ms": rig.In("ms", took) / many, what + "_kb": float64(grew) / 1e3 / many,
		what + "_idle_cpu_us": rig.In("us", b.on.ProcessorTime()-busy) / many / idling.Seconds(),
	}, nil
}

// idling is the time for which the objects stay idle.
const idling = 10 * time.Second

func idleStreams(ctx context.Context, b *bench) (rig.Figures, error) {
	return b.idleOnes("stream", func(int) error {
		_, err := b.stream(ctx)
		return err
	})
}

func idleConsumers(ctx context.Context, b *bench) (rig.Figures, error) {
	name, err := b.stream(ctx)
	if err != nil {
		return nil, err
	}
	return b.idleOnes("consumer", func(i int) error {
		return jsretry.Do(ctx, timeout, func(ctx context.Context) error {
			_, err := b.js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{Durable: fmt.Sprintf("c%d", i), FilterSubject: fmt.Sprintf("%s.%d", name, i)})
			return err
		})
	})
}

// idle returns the columns of idleOnes.
func idle(what string) []rig.Column {
	return []rig.Column{
		{Figure: what + "_ms", Title: "ms to make one", Format: "%.1f"},
		{Figure: what + "_kb", Title: "kB of each, on all servers", Format: "%.0f"},
		{Figure: what + "_idle_cpu_us", Title: "CPU µs of each a second", Format: "%.0f"},
	}
}

// jobs measures messages that a consumer of each stream takes, and whose acknowledgement the server confirms.
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

// rates are the rates, in operations a second, for which the page lists the servers and streams needed.
var rates = []int{1_000, 10_000, 100_000, 1_000_000}

// derive adds the needs of the given rates: the processors of all servers, and the number of streams with which each has half the rate of
// one stream here.
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

// sizes returns the columns of the figures that derive adds.
func sizes() (all []rig.Column) {
	for _, r := range rates {
		all = append(all,
			rig.Column{Figure: fmt.Sprintf("cores_%d", r), Title: fmt.Sprintf("%d/s: cores", r), Format: "%.2f"},
			rig.Column{Figure: fmt.Sprintf("streams_%d", r), Title: "streams", Format: "%.0f"},
		)
	}
	return all
}
