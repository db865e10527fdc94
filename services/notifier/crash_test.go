package notifier

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

var (
	planPoints   = []string{plan.PointSeen, plan.PointPage, plan.PointRecord, plan.PointPlanned}
	expandPoints = []string{deliver.PointRow, deliver.PointRows, deliver.PointExpanded}
	callPoints   = []string{deliver.PointClaimed, deliver.PointSent, deliver.PointRecorded}
	sendPoints   = append([]string{deliver.PointSplit, deliver.PointSpread}, callPoints...)
	allPoints    = slices.Concat(planPoints, expandPoints, sendPoints)
)

// TestKilledNotifiers kills notifier processes at each point of their work and anywhere else, freezes them, has everything delivered
// again, publishes events again and again, and kills the server, or one of three, while mail servers, users' servers and a push service
// have a bad day. The messages that they got are compared, notification by notification, with the deliveries. No user and no address is
// left out. A message comes twice only where a process died, or a provider fell silent, between the call and its record, and has the
// same id then; in a channel that is set to at-most-once none does, and a notification whose message may have been lost is failed, with
// unknown_outcome.
//
//	go test . -run KilledNotifiers                   a few thousand rows
//	go test . -run KilledNotifiers -args -long       some 140,000 rows on one server, and 50,000 to 120,000 on each other kind
//	go test . -run KilledNotifiers -args -seed N     with the choices of another run
func TestKilledNotifiers(t *testing.T) { //nolint:tparallel // the cells of the long form would only disturb each other
	t.Parallel()
	seed := crash.Seed(t)
	for _, test := range []struct {
		name        string
		on          func(t testing.TB) *crash.Servers
		once        bool
		at          []string // in the small form
		small, long int      // events
		crew        int
	}{
		{name: "one server", on: crash.OneServer, at: allPoints, small: 10, long: 200},
		{name: "one server, killed", on: crash.MortalServer, at: []string{plan.PointRecord, deliver.PointRow, deliver.PointSent}, small: 6, long: 50},
		{name: "three servers, the leader killed", on: crash.ThreeServers, at: []string{deliver.PointSent}, small: 4, long: 50},
		{name: "at most once", on: crash.OneServer, once: true, at: callPoints, small: 6, long: 50},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !crash.Long() {
				t.Parallel()
			}
			c := &cell{
				T: t, on: test.on(t), once: test.once, users: 5, crew: 1, events: test.small, at: test.at, chaos: 1,
				random: rand.New(rand.NewPCG(seed, uint64(len(test.name)))), seed: seed, wants: map[string]want{},
			}
			if crash.Long() {
				c.users, c.crew, c.events, c.at, c.chaos = 50, 2, test.long, slices.Repeat(allPoints, 3), 4
			}
			c.play()
		})
	}
}

// cell is some events whose notifiers are killed.
type cell struct {
	*testing.T

	at     []string // where processes die by their own hand, one after the other
	chaos  int      // how often each other misfortune happens
	crew   int      // how many processes there are beside the one that dies
	events int
	on     *crash.Servers
	once   bool
	random *rand.Rand
	seed   uint64
	users  int // of each kind

	store     *deliveries.Store
	directory *recipient.Directory
	duty      duty
	far       *far
	js        jetstream.JetStream
	reader    *plan.Reader
	records   *kvrecord.Client
	view      view

	published int
	wants     map[string]want // by key

	mu        sync.Mutex
	hands     []*crash.Process // the crew
	accidents accidents
}

// accidents explain why the outcome of a call is not known.
type accidents struct {
	frozen  int
	kills   int
	servers []span
	workers map[string]string // by name: how it ended
}

// span is when a server was away.
type span struct{ from, to time.Time }

func (c *cell) play() {
	c.Helper()
	c.prepare()
	begin := time.Now()
	for range c.crew {
		c.hands = append(c.hands, c.spawn("", 0))
	}
	var trouble sync.WaitGroup
	c.trouble(&trouble)
	portion := max(1, c.events/(len(c.at)+1))
	for _, point := range c.at {
		c.die(point, portion)
	}
	c.publish(max(0, c.events-c.published))
	c.settled()
	trouble.Wait()
	c.again(c.published)
	c.drained()
	c.settled()
	for _, p := range c.hands {
		p.Stop()
	}
	c.judge(time.Since(begin))
}

func (c *cell) prepare() {
	c.Helper()
	_, c.js = natstest.ConnectURL(c.T, c.on.URL)
	assets := contracts.Assets(contracts.AssetOptions{MaxBytes: 16 << 30, Replicas: c.on.Replicas}) // for the long form
	check.OK(c, natstest.UntilAnswered(c.T, func(ctx context.Context) error {
		_, err := provision.Apply(ctx, c.js, assets, provision.Options{})
		return err
	}))
	c.far = newFar(c.T, c.seed)
	c.accidents.workers = map[string]string{}
	c.duty = duty{
		Mail: c.far.mail, Once: c.once, Pages: 512, PushKey: c.far.pushKey, Rules: writeRules(c.T, crashRules()), Secret: c.far.secret,
		Templates: writeTexts(c.T, "news", "{{.EventID}}", "for {{.UserID}}", "<p>for {{.UserID}}</p>"), URL: c.on.URL,
	}
	c.records = recordtest.Client(c.T, c.js)
	c.store, c.reader = deliveries.New(c.records), plan.NewReader(c.records)
	c.directory = recipient.NewDirectory(c.js, c.records)
	for _, kind := range kinds {
		for n := range c.users {
			check.OK(c, natstest.UntilAnswered(c.T, func(ctx context.Context) error { return c.directory.Put(ctx, c.user(kind, n)) }))
		}
	}
}

// spawn starts a notifier that dies when it comes to a point for the n-th time.
func (c *cell) spawn(point string, n int) *crash.Process {
	c.Helper()
	d := c.duty
	d.Point, d.After = point, n
	return notifiers.Start(c, d)
}

// nameOf is how a process is called in the records.
func nameOf(p *crash.Process) string { return selfName(p.PID()) }

func selfName(pid int) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "-" + strconv.Itoa(pid)
}

// note notes how a process ended, or that it was frozen.
func (c *cell) note(p *crash.Process, fate string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accidents.workers[nameOf(p)] = fate
	if fate == freezing {
		c.accidents.frozen++
	} else {
		c.accidents.kills++
	}
}

// die has a process die at a point, while it works on new events and on those that are left.
func (c *cell) die(point string, events int) {
	c.Helper()
	after := 1
	switch {
	case point == deliver.PointSplit, point == deliver.PointSpread: // few notifications are
		after += c.random.IntN(2)
	case point == deliver.PointRow, point == plan.PointPage:
		after += c.random.IntN(c.users)
	case slices.Contains(sendPoints, point):
		after += c.random.IntN(4 * c.users)
	}
	p := c.spawn(point, after)
	c.publish(events)
	c.view.moved = time.Now() // nobody has looked in the meantime
	for !p.Ended() {
		select {
		case <-p.Gone:
		case <-time.After(50 * time.Millisecond): // the others may have done all that there was
			if c.look() || !slices.Contains(sendPoints, point) && c.expanded() {
				c.publish(1)
			}
		}
	}
	p.Died()
	c.note(p, "died at "+point)
}

// expanded reports whether the last event has all its notifications.
func (c *cell) expanded() bool {
	c.Helper()
	kept, err := c.reader.Event(c.Context(), c.event(c.published-1).EventID)
	return err == nil && kept.State == plan.StateExpanded
}

// publish publishes new events, some of them several times: under one id, and without any.
func (c *cell) publish(events int) {
	c.Helper()
	for range events {
		e := c.event(c.published)
		maps.Copy(c.wants, c.rowsOf(e))
		c.published++
		for range 1 + c.random.IntN(3) {
			c.tell(e, c.random.IntN(2) == 0)
		}
	}
}

// again publishes the events so far once more, as a source does that forgot, later than any window remembers.
func (c *cell) again(events int) {
	c.Helper()
	for n := range events {
		c.tell(c.event(n), false)
	}
}

func (c *cell) tell(e recipient.Event, id bool) {
	c.Helper()
	data := check.Must(contracts.Encode(e))(c)
	subject := check.Must(contracts.EventSubject(e.AggregateType, e.EventType))(c)
	check.OK(c, natstest.UntilAnswered(c.T, func(ctx context.Context) error {
		msg := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{}}
		if id {
			msg.Header.Set(nats.MsgIdHdr, e.EventID)
		}
		_, err := c.js.PublishMsg(ctx, msg)
		return err
	}))
}

// consumers are those of a notifier, by stream.
func (c *cell) consumers() map[string][]string {
	all := map[string][]string{contracts.StreamEvents: {"notifier"}, contracts.StreamNotifications: {"notifier-expand"}}
	for _, channel := range []string{"inapp", "email", "webhook", "webpush"} {
		name := "notifier-send-" + channel
		all[contracts.StreamNotifications] = append(all[contracts.StreamNotifications], name)
	}
	return all
}

// consumer asks for a consumer, and returns nil for one that is being made again.
func (c *cell) consumer(stream, name string) (info *jetstream.ConsumerInfo) {
	c.Helper()
	err := natstest.UntilAnswered(c.T, func(ctx context.Context) error {
		consumer, err := c.js.Consumer(ctx, stream, name)
		if err == nil {
			info = consumer.CachedInfo()
		}
		return err
	})
	check.Require(c, err == nil || errors.Is(err, jetstream.ErrConsumerNotFound), "%v", err)
	return info
}

// undelivered is how many jobs wait for their first delivery by the consumers that there are.
func (c *cell) undelivered() (n uint64) {
	c.Helper()
	for stream, names := range c.consumers() {
		for _, name := range names {
			if i := c.consumer(stream, name); i != nil {
				n += i.NumPending
			}
		}
	}
	return n
}

// drained waits until everything that there is has been delivered, and every event and every plan been dealt with, for as long as
// there comes to be less of it.
func (c *cell) drained() {
	c.Helper()
	for stream, names := range c.consumers() {
		for _, name := range names {
			least, moved := -1, time.Now()
			for left := 1; left > 0; <-time.After(20 * time.Millisecond) {
				if i := c.consumer(stream, name); i != nil {
					left = int(i.NumPending)
					if !strings.Contains(name, "send") { // those wait for the end of quiet hours
						left += i.NumAckPending
					}
				}
				if least < 0 || left < least {
					least, moved = left, time.Now()
				}
				if time.Since(moved) > patience {
					c.Fatalf("%s has had %d jobs for %s", name, left, patience)
				}
			}
		}
	}
}
