package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// ours is a notifier in a separate process, and a connection that publishes events.
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
	_, err := provision.Apply(ctx, js, assets, provision.Options{})
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
	if o.process, err = rig.StartTask(childRole, task{Address: b.service.Address, Storage: b.contestant.storage}); err == nil {
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
	e := recipient.Event{
		EventID: event, EventType: eventType, AggregateType: "AUDIENCE", AggregateID: fmt.Sprint(n),
		RecipientType: "CUSTOMER", Payload: json.RawMessage(payload),
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

// streams are those in which events leave messages.
var streams = []string{
	contracts.StreamNotifications, contracts.StreamEvents,
	"KV_" + contracts.BucketDeliveries, "KV_" + contracts.BucketInbox, "KV_" + contracts.BucketJobs,
}

func (o *ours) empty(ctx context.Context) (err error) {
	for _, name := range streams {
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
	if _, err := o.ask(ctx, order{Mark: true}); err != nil {
		return err
	}
	o.baseline = o.process.ResidentBytes()
	o.process.ResetPeak()
	return nil
}

// idle waits until every event, plan and row is acknowledged.
func (o *ours) idle(ctx context.Context) error {
	for _, name := range streams[:2] {
		stream, err := o.js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		for {
			busy := 0
			consumers := stream.ListConsumers(ctx)
			for info := range consumers.Info() {
				busy += int(info.NumPending) + info.NumAckPending
			}
			if err := consumers.Err(); err != nil {
				return fmt.Errorf("consumers of %s: %w", name, err)
			}
			if busy == 0 {
				break
			}
			if !retry.Sleep(ctx, 5*time.Millisecond) {
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
	const rows, items = "notify.send." + inbox + ".", "$KV." + contracts.BucketInbox + "."
	keys := map[string]bool{} // of rows and items
	_, c.double, err = messages(ctx, o.js, contracts.StreamNotifications, rows+">", o.first[contracts.StreamNotifications])
	if err != nil {
		return c, err
	}
	err = o.read(ctx, contracts.StreamNotifications, rows, func(key string, _ kvrecord.Record) error {
		keys[key] = true
		return nil
	})
	if err != nil {
		return c, err
	}
	err = o.read(ctx, "KV_"+contracts.BucketInbox, items+"CUSTOMER.", func(key string, r kvrecord.Record) error {
		var record struct {
			Item json.RawMessage `json:"item"`
		}
		keys["CUSTOMER."+key] = true
		if r.Header.Get(kvrecord.HeaderReplaced) != "0." { // it was not delivered at the first try
			c.double++
		}
		err := json.Unmarshal(r.Data, &record)
		if len(record.Item) > 0 {
			c.sent++
		}
		return err
	})
	c.stored = len(keys)
	return c, err
}

// read calls each with all records of a stream whose subjects begin with a prefix, and with what follows the prefix. The prefix leaves
// out the probes, which are overwritten all the time.
func (o *ours) read(ctx context.Context, name, prefix string, each func(key string, r kvrecord.Record) error) error {
	client, err := kvrecord.New(kvrecord.Config{JetStream: o.js})
	if err != nil {
		return err
	}
	defer client.Close()
	stream := client.Stream(name)
	for from := uint64(1); from > 0; {
		found, next, err := stream.Scan(ctx, from, 1000)
		if err != nil {
			return err
		}
		for _, r := range found {
			if key, ok := strings.CutPrefix(r.Subject, prefix); ok {
				if err := each(key, r); err != nil {
					return fmt.Errorf("stream %s: %s: %w", name, r.Subject, err)
				}
			}
		}
		from = next
	}
	return nil
}

func (o *ours) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if o.process != nil {
		o.process.End()
		_ = o.empty(ctx) // the server ends soon
	}
	o.nc.Close()
}
