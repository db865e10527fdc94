package notifier

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// TestRowsAreDivided divides the rows while a notifier works that does not know of it, which is then followed by one that does. Nobody
// is told nothing, or twice; each row, and each that comes of it, is in the partition of its user, and found there by event and by user.
func TestRowsAreDivided(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const guests, events = 16, 8 // which are of all but the cancelled one
		p := newPlace(t, srv)
		everyone := users(contracts.RecipientRestaurantUser, guests)
		for i := range everyone {
			everyone[i].Endpoints = map[string]map[string]contracts.Endpoint{"pigeon": {"home": {Address: "h"}, "work": {Address: "w"}}}
		}
		p.directory(everyone...)
		birds := &pigeon{}
		rules := writeRules(t, "version: 1\nevents:\n  X: {RESTAURANT_USER: {fallback: [dove, pigeon]}}\n  LATER: {RESTAURANT_USER: {channels: [owl]}}\n")
		set := func(c *Config) {
			c.Channels = append(c.Channels, Channel{Channel: &pigeon{name: "dove", send: refusing().send}}, Channel{Channel: &pigeon{name: "owl"}})
			c.Rules = rules
		}
		before := p.start(birds, set)
		tell := func(id, kind string, notBefore time.Duration) {
			t.Helper()
			p.publish(event(id, kind, func(e *contracts.Event) {
				e.RecipientType, e.NotBefore = contracts.RecipientRestaurantUser, time.Now().Add(notBefore)
			}))
		}
		tell("first-1", "X", 0)
		tell("first-2", "X", 10*time.Minute)
		check.OK(t, contracts.DivideNotifications(t.Context(), p.js, 3))
		tell("first-3", "X", 0) // the planner does not know
		elapse(partitionsKept)
		after := p.start(birds, set, partitioned)
		for i := range events - 4 {
			tell(fmt.Sprint("both-", i), "X", 0) // planned by one, and expanded by any
		}
		tell("cancelled", "LATER", 10*time.Minute)
		elapse(time.Minute)
		p.cancelled(before, after, everyone)
		check.Is(t, before.Stop(), nil)
		tell("last", "X", 0)
		elapse(15 * time.Minute)

		all := p.settled(guests * (events*4 + 1)) // of each event one by dove, one that is split, and two of addresses
		check.Same(t, "rows", len(all), guests*(events*4+1))
		for key, d := range all {
			ended := d.State == deliveries.Failed || d.State == deliveries.Split || d.State == deliveries.Sent || d.Reason == deliveries.ReasonCancelled
			check.That(t, ended, "%s: %+v", key, d)
		}
		messages, calls := birds.counts()
		check.That(t, messages == guests*events*2 && calls == messages, "%d messages in %d calls, want %d", messages, calls, guests*events*2)
		p.inTheirPartitions(after)

		for _, q := range []Query{{EventID: "last"}, {UserID: "u7"}, {UserID: "u7", RecipientType: contracts.RecipientRestaurantUser}, {Channel: "owl"}, {}} {
			want := map[string]bool{}
			for key := range all {
				of := check.Must(contracts.RowOfKey(key))(t)
				want[key] = (q.EventID == "" || of.EventID == q.EventID) && (q.UserID == "" || of.UserID == q.UserID) && (q.Channel == "" || of.Channel == q.Channel)
			}
			maps.DeleteFunc(want, func(_ string, is bool) bool { return !is })
			got := map[string]bool{}
			for q.Limit = 7; ; {
				page := check.Must(after.Notifications(t.Context(), q))(t)
				for _, n := range page.Notifications {
					row := contracts.Notification{Channel: n.Channel, EventID: n.EventID, RecipientType: n.RecipientType, UserID: n.UserID}
					if len(n.Addresses) == 0 && n.Channel == "pigeon" {
						row.Address = n.Address
					}
					key := check.Must(row.Key())(t)
					check.That(t, !got[key], "%s is listed twice", key)
					got[key] = true
				}
				if q.Cursor = page.Next; q.Cursor == "" {
					break
				}
			}
			check.That(t, maps.Equal(got, want), "%+v lists %d rows, want %d", q, len(got), len(want))
		}
		check.Is(t, after.Stop(), nil)
	})
}

// cancelled has an event cancelled for one user in each partition after another, by a notifier that was started before the rows were
// divided and by one that was started after.
func (p *place) cancelled(before, after *Notifier, everyone []contracts.Recipient) {
	p.Helper()
	for i, of := range everyone {
		n := []*Notifier{before, after}[i%2]
		got, err := n.Cancel(p.Context(), Cancellation{EventID: "cancelled", RecipientType: of.RecipientType, UserID: of.UserID})
		check.That(p, err == nil && got.Suppressed == 1, "%s: %+v, %v", of.UserID, got, err)
	}
}

// inTheirPartitions judges which partition has each row. Only a plan of the notifier that knows of partitions has any.
func (p *place) inTheirPartitions(n *Notifier) {
	p.Helper()
	divided := map[string]bool{}
	share := make([]int, 3)
	for part := range share {
		for subject, times := range p.rowsIn(part) {
			key, _, _ := contracts.RowKey(subject)
			of := check.Must(contracts.RowOfKey(key))(p)
			plan := check.Must(n.reader.Get(p.Context(), of.EventID))(p)
			divided[of.EventID] = plan.Partitions == 3
			check.That(p, times == 1 && part == plan.Partition(of.UserID), "%s is %d times in partition %d, of %d", subject, times, part, plan.Partitions)
			if of.EventID == "last" {
				share[part]++
			}
		}
	}
	check.That(p, !divided["first-1"] && !divided["first-2"] && !divided["first-3"] && divided["last"], "divided: %v", divided)
	check.That(p, slices.Min(share) >= 2*4, "the last event has %v rows in the partitions", share)
}

// TestAnotherNumberOfPartitionsIsRefused wants a typed error from a notifier whose setting is not the number that the
// streams have.
func TestAnotherNumberOfPartitionsIsRefused(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t))
	start := func(partitions int, create bool) error {
		nc, _ := natstest.Connect(t, p.srv)
		cfg := config(&pigeon{}, writeRules(t, testRules))
		cfg.CreateAssets, cfg.Partitions = create, partitions
		n, err := Start(t.Context(), nc, cfg)
		if err == nil {
			err = n.Stop()
		}
		return err
	}
	refused := func(partitions int, create bool) {
		t.Helper()
		err := start(partitions, create)
		_, drift := errors.AsType[*worker.DriftError](err)
		check.That(t, drift && strings.Contains(err.Error(), "NOTIFIER_PARTITIONS"), "%d partitions: %v", partitions, err)
	}
	for _, n := range []int{-1, contracts.MaxNotifyPartitions + 1} {
		check.That(t, strings.Contains(fmt.Sprint(start(n, true)), "NOTIFIER_PARTITIONS"), "%d partitions were taken", n)
	}
	refused(3, false)
	check.Is(t, start(3, true), nil)
	for _, n := range []int{0, 2, 4} {
		refused(n, true)
	}
	check.Is(t, start(3, false), nil)
}

// TestRowsInPartitionsAreFound has rows in each of three partitions, and in the first those of before: an instance without the setting
// learns of them in ten seconds, a page may end with a partition, and a cancellation finds the rows in every partition.
func TestRowsInPartitionsAreFound(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const guests = 60 // so that those of one partition fill the first read
		p := newPlace(t, srv)
		everyone := users(contracts.RecipientRestaurantUser, guests)
		p.directory(everyone...)
		rules := writeRules(t, "version: 1\nevents:\n  LATER: {RESTAURANT_USER: {channels: [pigeon]}}\n")
		set := func(c *Config) { c.Rules = rules }
		tell := func(id string) {
			t.Helper()
			p.publish(event(id, "LATER", func(e *contracts.Event) {
				e.RecipientType, e.NotBefore = contracts.RecipientRestaurantUser, time.Now().Add(time.Hour)
			}))
		}
		before := p.start(&pigeon{}, set)
		partitions := before.partitions(p.js)
		check.OK(t, contracts.DivideNotifications(t.Context(), p.js, 3))
		tell("before")
		check.Same(t, "partitions at once", check.Must(partitions(t.Context()))(t), 1)
		elapse(partitionsKept)
		check.Same(t, "partitions after a while", check.Must(partitions(t.Context()))(t), 3)
		check.Is(t, before.Stop(), nil)
		n := p.start(&pigeon{}, set, partitioned)
		tell("planned")
		tell("without a plan")
		elapse(2 * time.Minute) // until it is certain whom they concern
		plans := check.Must(contracts.NotifyPlanSubject("without a plan"))(t)
		check.OK(t, check.Must(p.js.Stream(t.Context(), contracts.StreamNotifications))(t).Purge(t.Context(), jetstream.WithPurgeSubject(plans)))

		elsewhere := 0 // users whose rows are not in the first
		for _, of := range everyone {
			if contracts.NotifyPartition(of.UserID, 3) == 0 {
				continue
			}
			elsewhere++
			for _, again := range []bool{false, true} {
				got, err := n.Cancel(t.Context(), Cancellation{EventID: "planned", RecipientType: of.RecipientType, UserID: of.UserID})
				check.That(t, err == nil && got.Suppressed == 1 && got.Again == again, "%s: %+v, %v", of.UserID, got, err)
			}
			check.Must(n.Cancel(t.Context(), Cancellation{EventID: "without a plan", RecipientType: of.RecipientType, UserID: of.UserID}))(t)
		}
		for _, tc := range []struct {
			q    Query
			want int
		}{
			{Query{}, 3 * guests},
			{Query{EventID: "without a plan"}, guests},
			{Query{EventID: "planned"}, guests},
			{Query{UserID: "u7"}, 3},
			{Query{EventID: "without a plan", State: deliveries.Suppressed}, elsewhere},
		} {
			for tc.q.Limit = 1; tc.q.Limit <= min(tc.want, guests-elsewhere); tc.q.Limit++ {
				got := map[string]bool{}
				for tc.q.Cursor = ""; ; {
					page := check.Must(n.Notifications(t.Context(), tc.q))(t)
					for _, row := range page.Notifications {
						got[row.EventID+" "+row.UserID] = true
					}
					if tc.q.Cursor = page.Next; page.Next == "" {
						break
					}
				}
				check.Same(t, fmt.Sprintf("rows of %q %q %q by %d", tc.q.UserID, tc.q.EventID, tc.q.State, tc.q.Limit), len(got), tc.want)
			}
		}
		got, err := n.Cancel(t.Context(), Cancellation{EventID: "without a plan"})
		check.That(t, err == nil && got.Suppressed == guests, "%+v, %v", got, err)
	})
}

// A notifier starts when an answer about each of its streams is lost: the first, of the preparation, or a later one.
func TestStartThroughLostMessages(t *testing.T) {
	for nth := range 5 {
		natstest.RunBubble(t, fmt.Sprint(nth), func(t *testing.T, srv *natsrun.Server) {
			p := newPlace(t, srv)
			consumers := contracts.Consumers(contracts.AssetOptions{Channels: []string{"pigeon"}, Services: []string{contracts.ServiceNotifier}})
			check.OK(t, check.Err(contracts.ApplyConsumers(t.Context(), p.js, consumers, contracts.ApplyOptions{})))
			proxy := natstest.NewProxy(t, srv)
			nc, _ := natstest.Connect(t, srv, proxy.Through())
			asked := map[string]int{}
			proxy.Hit(func(m natstest.Frame) bool {
				asked[m.Subject]++
				return strings.HasPrefix(m.Subject, "$JS.API.STREAM.INFO.") && asked[m.Subject] == nth+1
			}, natstest.ReplyLost, 100)
			cfg := config(&pigeon{}, writeRules(t, testRules))
			cfg.CreateAssets = false
			n := check.Must(Start(t.Context(), nc, cfg))(t)
			check.OK(t, n.Stop())
		})
	}
}
