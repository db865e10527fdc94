package notifier

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// bound gives a stream another bound of bytes.
func (p *place) bound(name string, bytes int64) {
	p.Helper()
	stream := check.Must(p.js.Stream(p.Context(), name))(p)
	config := stream.CachedInfo().Config
	config.MaxAge, config.MaxBytes = 0, bytes // by its age the server would remove all at once, under fake time
	check.OK(p, check.Err(p.js.UpdateStream(p.Context(), config)))
}

// A request that a full store refuses is answered by its own problem, the service is not ready and names the store, and both go
// away when there is room. Events published in the meantime reach their users then.
func TestAFullStoreIsNamedAndOvercome(t *testing.T) {
	const staff = "RESTAURANT_USER"
	publish := func(ctx context.Context, n *Notifier) error {
		_, err := n.Publish(ctx, event("evt-002", "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType = staff }))
		return err
	}
	replay := func(ctx context.Context, n *Notifier) error {
		_, err := n.Replay(ctx, Query{EventID: "evt-001"})
		return err
	}
	for name, test := range map[string]struct {
		stream string
		ask    func(ctx context.Context, n *Notifier) error
		taken  bool // by a stream that has room; the work that follows waits
	}{
		"publish": {stream: "KV_deliveries", ask: publish},
		"cancel": {stream: "KV_deliveries", ask: func(ctx context.Context, n *Notifier) error {
			_, err := n.Cancel(ctx, Cancellation{EventID: "evt-001"})
			return err
		}},
		"record of a replay": {stream: "KV_deliveries", ask: replay},
		"row of a replay":    {stream: contracts.StreamNotifications, ask: replay},
		"mark": {stream: "KV_inbox", ask: func(ctx context.Context, n *Notifier) error {
			_, err := n.Inbox.Mark(ctx, staff, "u0", "evt-001", inapp.Read)
			return err
		}},
		"recipient": {stream: "KV_directory", ask: func(ctx context.Context, n *Notifier) error {
			return n.Directory.Put(ctx, contracts.Recipient{RecipientType: staff, UserID: "u9"})
		}},
		"rows":   {stream: contracts.StreamNotifications, ask: publish, taken: true},
		"items":  {stream: "KV_inbox", ask: publish, taken: true},
		"jobs":   {stream: "KV_jobs", ask: publish, taken: true},
		"events": {stream: contracts.StreamEvents, ask: publish, taken: true}, // drops the oldest, and has room for one
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
				p := newPlace(t, srv)
				p.directory(users(staff, 2)...)
				n := p.start(&pigeon{send: func(context.Context, channel.Message) (channel.Receipt, error) {
					return channel.Receipt{}, &channel.Error{Channel: "pigeon", Kind: channel.KindRejected}
				}})
				p.publish(event("evt-001", "RESERVATION_REQUESTED", func(e *recipient.Event) { e.RecipientType = staff }))
				p.settled(4)
				refuses := test.stream != contracts.StreamEvents
				if refuses {
					p.bound(test.stream, 1)
				} else {
					p.bound(test.stream, 600)
				}
				err := test.ask(t.Context(), n)
				problem := service.ErrorMapper(api.Problem).Of(err)
				check.That(t,
					test.taken == (err == nil) && (err == nil || problem.Status == http.StatusInsufficientStorage && problem.Code == "STORE_FULL"),
					"%+v: %v", problem, err)
				check.That(t, err == nil || strings.Contains(err.Error(), strings.TrimPrefix(test.stream, "KV_")),
					"the error does not name %s: %v", test.stream, err)
				natstest.Pass(20 * time.Second)
				if ready := n.running.Ready()["streams"]; (ready != nil) != refuses || refuses && !strings.Contains(ready.Error(), test.stream) {
					t.Errorf("%v does not name %s", ready, test.stream)
				}
				p.bound(test.stream, 1<<26)
				if !test.taken {
					check.ErrorIs(t, test.ask(t.Context(), n), nil)
				}
				natstest.Pass(time.Minute)
				if test.taken {
					p.settled(8)
				}
				for part, err := range n.running.Ready() {
					check.That(t, err == nil, "%s: %v", part, err)
				}
			})
		})
	}
}

const (
	month = 30 * day

	// inAMonth is how many notifications a month has, by which the sizes are declared: one user who is told on one channel each.
	inAMonth = 10_000_000

	// most is which part of its bound a stream may use then. The rest is headroom.
	most = 0.67

	// gap is the time between two batches of notifications, a divisor of the ages of all records, and batches is how many there
	// are: the last one comes when the first has left everywhere.
	gap, batches = 10 * day, 11

	// perEvent is how many notifications an event becomes: two users, each in the inbox and on another channel.
	perEvent = 4
)

// monthly is the payload of the events.
const monthly = `{"reservation_id":"0b0e7a3c-7f0a-4c2e-9d8e-3b5f6a1d2c4e","date":"2026-12-24","time":"19:30","guests":4,` +
	`"name":"Ada Lovelace","phone":"+49 30 901820","note":"A table by the window, please"}`

// paged is a line of the table in docs/operate.md: stream, bytes of one notification, days.
var paged = regexp.MustCompile("(?m)^\\| `([A-Za-z_]+)` \\| ([0-9,]+) B \\| ([0-9]+) days \\|")

// With 10 million notifications a month, no stream outgrows its declared size: computed from the bytes that one notification
// takes in each, when the oldest leave as fast as new ones come. The table in docs/operate.md says so.
//
//	MONTH=100000 go -C services/notifier test . -run AMonthFits -v     with so many in a month instead of 1,200
func TestAMonthFitsTheDeclaredSizes(t *testing.T) {
	batch := 1200 * int(gap/day) / int(month/day) / perEvent
	if text := os.Getenv("MONTH"); text != "" {
		n := check.Must(strconv.Atoi(text))(t)
		batch = n * int(gap/day) / int(month/day) / perEvent
	}
	bounds := map[string]int64{}
	for _, config := range contracts.Assets(contracts.AssetOptions{Services: []string{contracts.ServiceNotifier}}) {
		bounds[config.Name] = config.MaxBytes
	}
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		srv.Stop() // the seconds of a server take time, so there is one for the days of the batches only
		ages, states := months(t, batch)
		for name, said := range monthOnThePage(t) {
			used := float64(states[name].Bytes)
			if age, ok := ages[name]; ok {
				used *= float64(age) / float64(batches*gap)
			}
			inMonth := used / float64(batch*perEvent) * float64(gap) / float64(month) // of each of a month, at any time
			each := inMonth * float64(month) / float64(time.Duration(said.days)*day)
			full := inMonth * inAMonth / float64(bounds[name])
			t.Logf("%s: %d messages, %.0f bytes of each notification for %d days, %.1f GiB in all, %.0f %% of its bound",
				name, states[name].Msgs, each, said.days, inMonth*inAMonth/(1<<30), 100*full)
			check.That(t, full <= most,
				"a month fills %s to %.0f %%, at most %.0f %%: raise its size in pkg/contracts", name, 100*full, 100*most)
			check.That(t, each <= 1.02*float64(said.bytes) && each >= 0.98*float64(said.bytes),
				"a notification takes %.0f bytes of %s for %d days, docs/operate.md says %d", each, name, said.days, said.bytes)
		}
	})
}

// share is the part of a stream that one notification takes.
type share struct{ bytes, days int }

func monthOnThePage(t *testing.T) map[string]share {
	t.Helper()
	text := check.Must(os.ReadFile(filepath.Join("..", "..", "docs", "operate.md")))(t)
	lines := map[string]share{}
	for _, line := range paged.FindAllStringSubmatch(string(text), -1) {
		bytes := check.Must(strconv.Atoi(strings.ReplaceAll(line[2], ",", "")))(t)
		days := check.Must(strconv.Atoi(line[3]))(t)
		lines[line[1]] = share{bytes, days}
	}
	check.Require(t, len(lines) == 4, "docs/operate.md has %d streams that a month fills, want 4", len(lines))
	return lines
}

// months has a batch of events told every ten days until no bucket grows any more, and returns the states of all streams at the
// end. The streams with an age keep everything, and their ages are returned: the server would go by the real year.
func months(t *testing.T, batch int) (ages map[string]time.Duration, states map[string]jetstream.StreamState) {
	t.Helper()
	ages, states = map[string]time.Duration{}, map[string]jetstream.StreamState{}
	dir, rules := t.TempDir(), writeRules(t, testRules)
	natstest.Pass(123456789) // so that times are as long as they are in life
	for i := range batches {
		born := time.Now()
		srv := natstest.Server(t, func(c *natsrun.Config) { c.Dir = dir })
		p := newPlace(t, srv, nats.PingInterval(forever))
		p.tell(i, batch, rules)
		for _, config := range contracts.Assets(contracts.AssetOptions{Services: []string{contracts.ServiceNotifier}}) {
			stream := check.Must(p.js.Stream(t.Context(), config.Name))(t)
			states[config.Name] = stream.CachedInfo().State
			if config.MaxAge > 0 {
				ages[config.Name], config.MaxAge = config.MaxAge, 0
				check.OK(t, check.Err(p.js.UpdateStream(t.Context(), config)))
			}
		}
		p.nc.Close()
		srv.Stop()
		natstest.Pass(time.Until(born.Add(gap + time.Minute)))
	}
	return ages, states
}

// tell has a notifier tell a batch of events.
func (p *place) tell(number, batch int, rules string) {
	p.Helper()
	cfg := config(&pigeon{}, rules)
	cfg.MaxBytes, cfg.RulesEvery = 0, forever
	n := check.Must(Start(p.Context(), p.nc, cfg))(p)
	born := time.Now()
	for i := range batch {
		e := event(fmt.Sprintf("%08x-7f0a-4c2e-9d8e-%012x", number, i), "RESERVATION_REQUESTED", func(e *recipient.Event) {
			e.OccurredAt, e.Payload, e.RecipientType = born, json.RawMessage(monthly), "RESTAURANT_USER"
			for user := range perEvent / 2 {
				e.Recipients = append(e.Recipients, contracts.Recipient{
					RecipientType: e.RecipientType, UserID: fmt.Sprintf("%08x-61d4-4e0b-8f5e-%012x", user, i),
				})
			}
		})
		check.OK(p, check.Err(n.Publish(p.Context(), e)))
	}
	for told := int64(0); told < int64(batch*perEvent); natstest.Pass(time.Second) {
		states := n.Stats().States
		if told = states["delivered"] + states["sent"]; time.Since(born) > day {
			p.Fatalf("%d of %d are told in a day", told, batch*perEvent)
		}
	}
	check.ErrorIs(p, n.Stop(), nil)
	natstest.Pass(2 * time.Minute) // until the records by which it is ready are gone
}
