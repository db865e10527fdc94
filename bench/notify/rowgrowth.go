package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
)

// The operations that are measured beside growing numbers of followers and events.
const (
	itemOfFollowed  rig.Growth = "item_followed"
	rowAmongEvents  rig.Growth = "row_events"
	pageAmongEvents rig.Growth = "page_events"
)

const (
	fewestFollowers = 10
	fewestEvents    = 100
	toldTo          = 1_000 // the number of recipients of a measured event
	pages           = 200
)

// isOurs reports whether a contestant is the notifier.
func isOurs(who contestant) bool { return who.Raw != "" }

// growing returns the rows of operations beside growing state.
func (o options) growing() []rig.Row[contestant] {
	run := func(of func(context.Context, *bench) (rig.Figures, error)) func(context.Context, contestant, *rig.Service) (rig.Figures, error) {
		return func(ctx context.Context, who contestant, on *rig.Service) (rig.Figures, error) {
			return of(ctx, &bench{contestant: who, profile: o.profile, row: "growth", scale: o.Scale, service: on})
		}
	}
	return []rig.Row[contestant]{
		{
			Name: "growth_followers", Title: "An item of the inbox until the program that shows it has it, with 10, 100 and 1,000 inboxes that are followed",
			Once: true, Needs: isOurs, Run: run(followers),
			Columns: slices.Concat(itemOfFollowed.Columns("item"), itemOfFollowed.Memory()),
		},
		{
			Name: "growth_events", Once: true, Needs: isOurs, Run: run(kept),
			Title:   "A row of an event to 1,000 recipients, and a page of its 100 first rows, with 100, 1,000 and 10,000 earlier events kept",
			Columns: slices.Concat(rowAmongEvents.Columns("row"), pageAmongEvents.Columns("page"), rowAmongEvents.Memory()),
		},
	}
}

// n scales a number of operations.
func (b *bench) n(n int) int { return max(1, int(float64(n)*b.scale)) }

// followers puts items into inboxes that are all followed, as by programs that show them.
func followers(ctx context.Context, b *bench) (rig.Figures, error) {
	nc, js, err := rig.Connect(b.service.Address)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	if err := applyAssets(ctx, b, js); err != nil {
		return nil, err
	}
	records, err := kvrecord.New(kvrecord.Config{JetStream: js})
	if err != nil {
		return nil, err
	}
	defer records.Close()
	items, err := inapp.Open(ctx, js, records, inapp.Config{})
	if err != nil {
		return nil, err
	}
	f := rig.Figures{}
	var feeds []*inapp.Feed
	defer func() {
		for _, feed := range feeds {
			feed.Close()
		}
	}()
	for _, times := range rig.Times {
		for len(feeds) < fewestFollowers*times {
			feed, err := items.Follow(ctx, contracts.RecipientCustomer, userID(len(feeds)), 0)
			if err != nil {
				return nil, err
			}
			feeds = append(feeds, feed)
		}
		n, before := b.n(4000), rig.WorkOf(b.service)
		for i := range n {
			user := i % len(feeds)
			r := row(eventID(), user, time.Now())
			_, err := items.Send(ctx, channel.Message{
				CreatedAt: r.CreatedAt, EventID: r.EventID, EventType: r.EventType, ID: r.EventID, Payload: r.Payload,
				RecipientType: r.RecipientType, Template: r.Template, UserID: r.UserID,
			})
			if err == nil {
				_, err = feeds[user].Next(ctx)
			}
			if err != nil {
				return nil, err
			}
		}
		itemOfFollowed.Add(f, times, b.service, before, n)
		itemOfFollowed.Hold(f, times, rig.OwnBytes(), b.service)
	}
	_, err = purge(ctx, js, "KV_"+contracts.BucketInbox)
	return f, err
}

// kept publishes events while more and more earlier events are kept.
func kept(ctx context.Context, b *bench) (rig.Figures, error) {
	o, err := start(ctx, b)
	if err != nil {
		return nil, err
	}
	defer o.close()
	if _, err := o.tell(ctx, eventID(), warmUp); err != nil {
		return nil, err
	}
	if err := o.mark(ctx); err != nil {
		return nil, err
	}
	f, stored := rig.Figures{}, 0
	for _, times := range rig.Times {
		if err := o.fill(ctx, fewestEvents*times-stored); err != nil {
			return nil, err
		}
		stored = fewestEvents * times
		last := ""
		events := b.n(10)
		err := o.spent(ctx, f, rowAmongEvents, times, events*toldTo, func() error {
			for range events {
				last = eventID()
				if _, err := o.tell(ctx, last, toldTo); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		rowAmongEvents.Hold(f, times, o.process.ResidentBytes(), b.service)
		if err := o.spent(ctx, f, pageAmongEvents, times, pages, func() error { return o.list(last) }); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// fill publishes events to one recipient each, and waits until all recipients are notified.
func (o *ours) fill(ctx context.Context, events int) error {
	if _, err := o.ask(ctx, order{Rows: events}); err != nil {
		return err
	}
	for range events {
		if err := o.publish(ctx, eventID(), 1); err != nil {
			return err
		}
	}
	_, err := o.hear(ctx)
	return err
}

// spent measures the costs of n operations for the notifier and the servers.
func (o *ours) spent(ctx context.Context, f rig.Figures, g rig.Growth, times, n int, do func() error) error {
	if err := o.begin(ctx); err != nil {
		return err
	}
	before := rig.WorkOf(o.bench.service)
	if err := do(); err != nil {
		return err
	}
	cpu, err := o.settle(ctx)
	if err != nil {
		return err
	}
	one := rig.Figures{}
	one.Since("op", o.bench.service, before, n)
	g.Set(f, times, one["op_server_cpu_us"]+rig.In("us", cpu)/float64(n))
	return nil
}

// list asks for the first rows of an event repeatedly.
func (o *ours) list(event string) error {
	question, err := json.Marshal(map[string]any{"event_id": event, "limit": 100})
	if err != nil {
		return err
	}
	for range pages {
		m, err := o.nc.Request("notifier.v1.list", question, timeout)
		if err != nil {
			return fmt.Errorf("list the rows of %s: %w", event, err)
		}
		var page struct {
			Items []json.RawMessage `json:"notifications"`
		}
		if err := json.Unmarshal(m.Data, &page); err != nil || len(page.Items) != 100 {
			return fmt.Errorf("list the rows of %s: %d rows: %.200s: %w", event, len(page.Items), m.Data, err)
		}
	}
	return nil
}
