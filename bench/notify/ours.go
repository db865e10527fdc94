package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/pause"
)

// ours is a notifier in a process of its own, and a connection that publishes events.
type ours struct {
	bench    *bench
	js       jetstream.JetStream
	nc       *nats.Conn
	process  *rig.Process
	baseline int64             // the process's memory at mark, in bytes
	first    map[string]uint64 // sequence of the first message of each stream since mark
}

func openOurs(ctx context.Context, b *bench) (*client, error) {
	o, err := start(ctx, b)
	if err != nil {
		return nil, err
	}
	return &client{tell: o.tell, mark: o.mark, settle: o.settle, memory: o.memory, count: o.count, close: o.close}, nil
}

// applyAssets makes the streams of the services.
func applyAssets(ctx context.Context, b *bench, js jetstream.JetStream) error {
	assets := contracts.Assets(assetOptions(b.contestant.storage, b.service.Address))
	_, err := contracts.Apply(ctx, js, assets, contracts.ApplyOptions{})
	return err
}

func start(ctx context.Context, b *bench) (*ours, error) {
	o := &ours{bench: b, first: map[string]uint64{}}
	var err error
	if o.nc, o.js, err = rig.Connect(b.service.Address); err != nil {
		return nil, err
	}
	if err := applyAssets(ctx, b, o.js); err != nil {
		o.close()
		return nil, err
	}
	t := task{Address: b.service.Address, Storage: b.contestant.storage}
	if b.profile != "" {
		t.Profile = filepath.Join(b.profile, b.row+"-"+b.contestant.Name)
	}
	if o.process, err = rig.StartTask(childRole, t); err == nil {
		_, err = o.hear(ctx)
	}
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

func (o *ours) hear(ctx context.Context) (a answer, err error) {
	line, err := o.process.Line(ctx)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		return a, fmt.Errorf("%q: %w", line, err)
	}
	return a, nil
}

func (o *ours) ask(ctx context.Context, what order) (answer, error) {
	if err := json.NewEncoder(o.process.Input()).Encode(what); err != nil {
		return answer{}, fmt.Errorf("the notifier: %w", err)
	}
	return o.hear(ctx)
}

// publish publishes an event to n recipients.
func (o *ours) publish(ctx context.Context, event string, n int) error {
	e := contracts.Event{
		EventID: event, EventType: eventType, AggregateType: "AUDIENCE", AggregateID: fmt.Sprint(n),
		RecipientType: contracts.RecipientCustomer, Payload: json.RawMessage(payload),
	}
	if o.bench.contestant.waits {
		e.NotBefore = time.Now().UTC()
	}
	data, err := contracts.Encode(e)
	if err != nil {
		return err
	}
	subject, err := contracts.EventSubject(e.AggregateType, e.EventType)
	if err != nil {
		return err
	}
	if _, err := o.js.Publish(ctx, subject, data); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

func (o *ours) tell(ctx context.Context, event string, n int) (timing, error) {
	if _, err := o.ask(ctx, order{Rows: n}); err != nil {
		return timing{}, err
	}
	begun := time.Now()
	if err := o.publish(ctx, event, n); err != nil {
		return timing{}, err
	}
	a, err := o.hear(ctx)
	return timing{stored: a.Stored.Sub(begun), sent: a.Sent.Sub(begun)}, err
}

// streams returns the names of the streams in which events leave messages.
func (o *ours) streams() []string {
	return []string{
		contracts.StreamNotifications, contracts.StreamEvents, "KV_" + contracts.BucketDeliveries, "KV_" + contracts.BucketInbox,
		"KV_" + contracts.BucketJobs,
	}
}

func (o *ours) empty(ctx context.Context) (err error) {
	for _, name := range o.streams() {
		if o.first[name], err = purge(ctx, o.js, name); err != nil {
			return err
		}
	}
	return nil
}

func (o *ours) mark(ctx context.Context) error {
	if err := o.idle(ctx); err != nil {
		return err
	}
	if err := o.empty(ctx); err != nil {
		return err
	}
	return o.begin(ctx)
}

// begin starts the measurement of costs anew.
func (o *ours) begin(ctx context.Context) error {
	if err := o.idle(ctx); err != nil {
		return err
	}
	if _, err := o.ask(ctx, order{Mark: true}); err != nil {
		return err
	}
	o.baseline = o.process.ResidentBytes()
	o.process.ResetPeak()
	return nil
}

// idle waits until every event, plan and row is acknowledged.
func (o *ours) idle(ctx context.Context) error {
	for _, name := range []string{contracts.StreamNotifications, contracts.StreamEvents} {
		stream, err := o.js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		for {
			busy := 0
			consumers := stream.ListConsumers(ctx)
			for info := range consumers.Info() {
				busy += int(info.NumPending) + info.NumAckPending //nolint:gosec // small
			}
			if err := consumers.Err(); err != nil {
				return fmt.Errorf("consumers of %s: %w", name, err)
			}
			if busy == 0 {
				break
			}
			if !pause.For(ctx, 5*time.Millisecond) {
				return fmt.Errorf("%d messages of %s are not acknowledged: %w", busy, name, ctx.Err())
			}
		}
	}
	return nil
}

func (o *ours) settle(ctx context.Context) (time.Duration, error) {
	if err := o.idle(ctx); err != nil {
		return 0, err
	}
	said, err := o.ask(ctx, order{Settle: true})
	return said.CPU, err
}

func (o *ours) memory() int64 { return o.process.PeakBytes() - o.baseline }

// count reads the rows, and the records of those in the inbox.
func (o *ours) count(ctx context.Context) (c counts, err error) {
	const filter = "notify.send." + inbox + "."
	keys := map[string]bool{} // of rows and items
	stored, double, err := messages(ctx, o.js, contracts.StreamNotifications, filter+">", o.first[contracts.StreamNotifications])
	if err == nil && stored > 0 {
		err = o.read(ctx, contracts.StreamNotifications, filter+">", func(msg jetstream.Msg) error {
			keys[strings.TrimPrefix(msg.Subject(), filter)] = true
			return nil
		})
	}
	if err != nil {
		return c, err
	}
	c.double = double
	const items = "$KV." + contracts.BucketInbox + "."
	err = o.read(ctx, "KV_"+contracts.BucketInbox, items+string(contracts.RecipientCustomer)+".>", func(msg jetstream.Msg) error {
		var record struct {
			Item json.RawMessage `json:"item"`
		}
		if err := json.Unmarshal(msg.Data(), &record); err != nil {
			return fmt.Errorf("%s: %w", msg.Subject(), err)
		}
		keys[strings.TrimPrefix(msg.Subject(), items)] = true
		if len(record.Item) > 0 {
			c.sent++
		}
		if msg.Headers().Get(kvrecord.HeaderReplaced) != "0." { // it was not delivered at the first try
			c.double++
		}
		return nil
	})
	c.stored = len(keys)
	return c, err
}

// read calls each with all messages of a stream whose subjects match a filter. The filter leaves out the probes, which are overwritten all
// the time.
func (o *ours) read(ctx context.Context, name, filter string, each func(jetstream.Msg) error) error {
	stream, err := o.js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}})
	if err != nil {
		return fmt.Errorf("stream %s: %w", name, err)
	}
	for left := consumer.CachedInfo().NumPending; left > 0; {
		batch, err := consumer.Fetch(int(min(left, 1000))) //nolint:gosec // small
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		for msg := range batch.Messages() {
			if err := each(msg); err != nil {
				return fmt.Errorf("stream %s: %w", name, err)
			}
			left--
		}
		if err := batch.Error(); err != nil && !errors.Is(err, nats.ErrNoResponders) { // the error of a consumer that is too new
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	return nil
}

func (o *ours) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if o.process != nil {
		o.process.End()
		_ = o.empty(ctx) //nolint:errcheck // the server ends soon
	}
	o.nc.Close()
}
