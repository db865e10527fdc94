package notifier

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/child"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// A user whom one channel does not reach is told by the next one, once, and by no other.
func TestTheNextChannelTells(t *testing.T) {
	t.Parallel()
	p := newPlace(t, natstest.Server(t)).watched()
	p.directory(users(contracts.RecipientRestaurantUser, 2)...)
	var mood atomic.Value
	mood.Store(channel.KindRejected)
	dove := &pigeon{name: "dove"}
	n := p.start(moody(&mood), func(c *Config) {
		c.Channels = append(c.Channels, Channel{Channel: dove})
		c.Rules = writeRules(t, "version: 1\nevents: {X: {RESTAURANT_USER: {fallback: [pigeon, inapp, dove], priority: critical}}}")
	})
	p.publish(event("evt-001", "X", func(e *contracts.Event) { e.RecipientType = contracts.RecipientRestaurantUser }))
	all := p.settled(4)
	for key, want := range map[string]deliveries.State{"evt-001.pigeon.RESTAURANT_USER.u0": deliveries.Failed, "evt-001.inapp.RESTAURANT_USER.u0": deliveries.Delivered} {
		check.That(t, all[key] != nil && all[key].State == want, "%s: %+v, want %s", key, all[key], want)
	}
	if e, err := n.Event(t.Context(), "evt-001"); err != nil || e.Rows != 2 || len(p.rows()) != 4 {
		t.Errorf("%+v, %d rows are stored: %v", e, len(p.rows()), err)
	}
	page, err := n.Notifications(t.Context(), Query{EventID: "evt-001", Channel: "pigeon"})
	if err != nil || len(page.Notifications) != 2 || page.Notifications[0].FellBackTo != "inapp" || page.Notifications[0].Reason != "rejected" {
		t.Errorf("%+v: %v", page, err)
	}
	messages, _ := dove.counts()
	check.That(t, messages == 0, "%d messages by the third channel", messages)
}

// fallers are notifiers whose first channel refuses everything.
var fallers = crash.Role[fall]{Name: "falling", Run: falling}

// fall says where a process dies whose first channel refuses everything.
type fall struct{ Point, Rules, URL string }

func (f fall) config(birds *pigeon) Config {
	return Config{
		BaseConfig: service.BaseConfig{
			AckWait: ackWait, Concurrency: 1, CreateAssets: true, Listen: "-", Logger: slog.New(slog.DiscardHandler), MaxBytes: 2 << 30,
		},
		Channels: []Channel{{Channel: birds}}, Rules: f.Rules, passed: child.DieAt(f.Point, 1),
	}
}

// refusing is a channel that takes nothing.
func refusing() *pigeon {
	var mood atomic.Value
	mood.Store(channel.KindRejected)
	return moody(&mood)
}

// falling is the life of such a process.
func falling(ctx context.Context, f fall) error {
	nc, err := nats.Connect(f.URL)
	if err != nil {
		return err
	}
	defer nc.Close()
	n, err := Start(ctx, nc, f.config(refusing()))
	if err != nil {
		return err
	}
	<-ctx.Done()
	return n.Stop()
}

// A process that is killed between the end of a row and its acknowledgement, whether a channel has refused the row, all addresses of
// its user have, or its user cannot be read: the row of the next channel is there once, and told.
func TestAKillBetweenTheEndAndTheNextRow(t *testing.T) {
	t.Parallel()
	both := map[string]map[string]contracts.Endpoint{"pigeon": {"roof": {Address: "roof"}, "tower": {Address: "tower"}}}
	for name, test := range map[string]struct {
		point      string
		unreadable bool // what the directory has of the user
		to         map[string]map[string]contracts.Endpoint
		ends       string
		calls      int // after the death
	}{
		"refused, recorded":    {deliver.PointRecorded, false, nil, "failed rejected", 0},
		"refused, ended":       {deliver.PointEnded, false, nil, "failed rejected", 0},
		"refused, followed":    {deliver.PointFollowed, false, nil, "failed rejected", 0},
		"unreadable, ended":    {deliver.PointEnded, true, nil, "failed recipient", 0},
		"unreadable, followed": {deliver.PointFollowed, true, nil, "failed recipient", 0},
		"several, recorded":    {deliver.PointRecorded, false, both, "split ", 1},
		"several, unheard":     {deliver.PointUnheard, false, both, "split ", 1},
		"several, ended":       {deliver.PointEnded, false, both, "split ", 0},
		"several, followed":    {deliver.PointFollowed, false, both, "split ", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
			p := newPlace(t, srv)
			ada := contracts.Recipient{RecipientType: contracts.RecipientCustomer, UserID: "ada", Endpoints: test.to}
			directory := p.directory(ada)
			if test.unreadable {
				p.spoil(ada)
			}
			f := fall{
				Point: test.point, URL: srv.URL(),
				Rules: writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: user, fallback: [pigeon, inapp]}}}"),
			}
			dying := fallers.Start(t, f)
			p.publish(event("evt-001", "X", func(e *contracts.Event) { e.UserID = "ada" }))
			dying.Died()
			check.OK(t, directory.Put(t.Context(), ada))
			birds := refusing()
			p.start(birds, func(c *Config) { *c = f.config(birds); c.passed = nil })
			all := p.settled(2 + len(test.to["pigeon"]))
			first, next := all["evt-001.pigeon.CUSTOMER.ada"], all["evt-001.inapp.CUSTOMER.ada"]
			check.That(t, first != nil && string(first.State)+" "+first.Reason == test.ends && first.FellBackTo == "inapp", "%+v", first)
			// The process that died may have given up the next row as well, as it could not read the user then either.
			given := test.unreadable && test.point == deliver.PointFollowed && next != nil && next.State == deliveries.Failed
			if next == nil || next.State != deliveries.Delivered && !given {
				t.Errorf("the next: %+v", next)
			}
			_, calls := birds.counts()
			check.That(t, calls == test.calls, "%d calls after the end was written down, want %d", calls, test.calls)
			letters := "./" // of an address that ended when the other had not
			if given {
				letters = ".inapp."
			}
			p.fellOnce(letters)
		})
	}
}

// fellOnce checks that each row is stored once, and that none is a dead letter but those that are named.
func (p *place) fellOnce(letters string) {
	p.Helper()
	for _, letter := range p.letters() {
		if !strings.Contains(letter.Subject, letters) {
			p.Errorf("a row that is followed is a dead letter: %+v", letter)
		}
	}
	for subject, times := range p.rows() {
		check.Same(p, subject+" is stored, times", times, 1)
	}
}

// spoil makes what the directory has of a user unreadable.
func (p *place) spoil(r contracts.Recipient) {
	p.Helper()
	key := check.Must(contracts.DirectoryKey(r.RecipientType, r.UserID))(p)
	kv, err := p.js.KeyValue(p.Context(), contracts.BucketDirectory)
	if err == nil {
		_, err = kv.PutString(p.Context(), key, "{")
	}
	check.OK(p, err)
}
