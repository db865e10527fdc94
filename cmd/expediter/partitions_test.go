package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/notifier"
)

// counted is a provider that has each place, and counts how often it is asked for it.
type counted struct {
	mu    sync.Mutex
	calls map[string]int
}

func (c *counted) Name() string { return "wolt" }

func (c *counted) Search(_ context.Context, place match.Place) ([]provider.Venue, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[place.Name]++
	return []provider.Venue{{Place: place, ID: place.Name, URL: "https://example.org/"}}, nil
}

// divided is a site with the accounts of deploy/nats for three partitions.
type divided struct {
	*testing.T

	denied chan error
	srv    *natsrun.Server
	users  *natstest.Users
}

const parts = 3

func newDivided(t *testing.T) *divided {
	t.Helper()
	d := &divided{T: t, denied: make(chan error, 1000), users: natstest.NewUsers(t)}
	d.srv = natstest.Server(t, func(c *natsrun.Config) { c.Listen, c.Partitions, c.Users = true, parts, d.users.Public })
	return d
}

// expediter runs the command as an administrator.
func (d *divided) expediter(args string) string {
	return shell(d.T, fmt.Sprintf("NATS_URL=%s NATS_NKEY=%s expediter %s", d.srv.URL(), d.users.SeedFile(d, "admin"), args))
}

func (d *divided) apply(to, args string) string {
	return d.expediter(fmt.Sprintf("apply --account %s --services %s --max-bytes 400000000 %s", strings.ToUpper(to), to, args))
}

// as connects as a user, and notes the operations that it is denied.
func (d *divided) as(user string) *nats.Conn {
	nc, _ := natstest.Connect(d, d.srv, d.users.As(user), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { d.denied <- err }))
	return nc
}

// streams returns how many messages streams have, and checks that nothing differs from the declarations but sizes.
func (d *divided) streams(of string, names ...string) (messages []uint64) {
	js := check.Must(jetstream.NewWithAPIPrefix(d.as("admin"), "$JS."+strings.ToUpper(of)+".API"))(d)
	for _, name := range names {
		messages = append(messages, check.Must(js.Stream(d.Context(), name))(d).CachedInfo().State.Msgs)
	}
	wanted := contracts.AssetOptions{Services: []string{of}}
	wanted.Partitions = check.Must(contracts.FindPartitions(d.Context(), js, wanted.Services))(d)
	check.Same(d, "partitions", wanted.Partitions[of], parts)
	changes := check.Must(contracts.Apply(d.Context(), js, contracts.Assets(wanted), contracts.ApplyOptions{DryRun: true}))(d)
	consumers := check.Must(contracts.ApplyConsumers(d.Context(), js, contracts.Consumers(wanted), contracts.ApplyOptions{DryRun: true}))(d)
	for _, c := range append(changes, consumers...) {
		for _, differs := range c.Differences {
			check.That(d, differs.Field == "max_bytes", "%s", differs)
		}
	}
	return messages
}

func (d *divided) isPermitted() {
	for {
		select {
		case err := <-d.denied:
			d.Errorf("denied: %v", err)
		default:
			return
		}
	}
}

// enricher starts one, and returns its URL.
func (d *divided) enricher(wolt provider.Provider) string {
	e := check.Must(enricher.Start(d.Context(), d.as("enricher"), enricher.Config{
		BaseConfig: service.BaseConfig{Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)},
		Enabled:    true, Partitions: parts, Providers: []provider.Provider{wolt},
	}))(d)
	d.Cleanup(func() { check.Is(d, e.Stop(), nil) })
	return e.URL()
}

// ask asks for a place, and returns how many answers are pending, -1 when it failed.
func ask(t *testing.T, url string, place int64) (pending int) {
	t.Helper()
	body := strings.NewReader(fmt.Sprintf(`{"results":[{"placeId":"p%d","name":"Soup %d"}]}`, place, place))
	status, answer := reply(check.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/enrich?wait=20s", body))(t))
	if status != http.StatusOK {
		t.Errorf("place %d: %d %s", place, status, answer)
		return -1
	}
	return decode(t, answer).Pending
}

// Two enrichers with the permissions of deploy/nats are asked for places while the command divides their jobs and results. Each place is
// looked up once, each has its answer, and each partition has a share.
func TestPlacesAreAskedForWhileTheyAreDivided(t *testing.T) {
	t.Parallel()
	const places, askers = 20, 4
	d := newDivided(t)
	d.apply("enricher", "")
	wolt := &counted{calls: map[string]int{}}
	urls := []string{d.enricher(wolt), d.enricher(wolt)}
	var asking sync.WaitGroup
	var asked atomic.Int64
	begun, divided := make(chan struct{}), make(chan struct{})
	for range askers {
		asking.Go(func() {
			for after := 0; after < places; {
				i := asked.Add(1)
				if i == places {
					close(begun)
				}
				select {
				case <-divided:
					after++
				default:
				}
				for pending := 1; pending > 0; { // until the test ends
					if pending = ask(t, urls[i%2], i); pending < 0 {
						return
					}
				}
			}
		})
	}
	<-begun
	said := d.apply("enricher", fmt.Sprintf("--partitions %d", parts))
	check.Same(t, "divided", strings.Count(said, "Divided "), 2)
	close(divided)
	asking.Wait()
	check.Same(t, "places looked up", len(wolt.calls), int(asked.Load()))
	for name, n := range wolt.calls {
		check.That(t, n == 1, "%s was looked up %d times", name, n)
	}
	for p, messages := range d.streams("enricher", "KV_enrich", "KV_enrich-1", "KV_enrich-2") {
		check.That(t, messages > 0, "bucket %d has nothing", p)
	}
	d.isPermitted()

	js := check.Must(jetstream.NewWithAPIPrefix(d.as("admin"), "$JS.ENRICHER.API"))(t)
	check.OK(t, js.DeleteStream(t.Context(), "KV_enrich-1"))
	d.apply("enricher", fmt.Sprintf("--partitions %d", parts)) // makes it anew
	for d.streams("enricher", "KV_enrich-1")[0] == 0 {         // until the enricher hears that the former one is gone, or the test ends
		for i := range asked.Load() {
			check.Same(t, "pending", ask(t, urls[0], i+1), 0)
		}
	}
	d.isPermitted()
}

// A notifier with the permissions of deploy/nats notifies by the partitions that the command has made.
func TestRowsAreDividedByTheCommand(t *testing.T) {
	t.Parallel()
	const people = 30
	d := newDivided(t)
	d.apply("notifier", "")
	d.expediter("apply --services lock")
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	writeFile(t, rules, "version: 1\nevents:\n  OUTAGE:\n    CUSTOMER: {scope: user, channels: [inapp]}\n")
	start := func(partitions int) (*notifier.Notifier, error) {
		return notifier.Start(t.Context(), d.as("notifier"), notifier.Config{
			BaseConfig: service.BaseConfig{Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}, Partitions: partitions, Rules: rules,
		})
	}
	before := check.Must(start(1))(t)
	for range 2 { // the second has nothing to do
		check.Same(t, "answer", strings.Contains(d.apply("notifier", fmt.Sprintf("--partitions %d", parts)), "Divided NOTIFICATIONS into 3"), true)
	}
	check.Is(t, before.Stop(), nil)
	_, err := start(1)
	check.That(t, errors.As(err, new(*worker.DriftError)), "started without the setting: %v", err)
	n := check.Must(start(parts))(t)
	defer func() { check.Is(t, n.Stop(), nil) }()
	for i := range people {
		body := fmt.Sprintf(`{"event_id":"e%d","event_type":"OUTAGE","aggregate_type":"RESTAURANT","restaurant_id":"5","recipient_type":"CUSTOMER","user_id":"u%d","not_before":"2026-01-01T00:00:00Z"}`, i, i)
		r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, n.URL()+"/v1/events", strings.NewReader(body)))(t)
		status, answer := reply(r)
		check.That(t, status < 300, "%d %s", status, answer)
	}
	for i := range people {
		for unread := 0; unread == 0; { // until the test ends
			counts := check.Must(n.Inbox.Counts(t.Context(), "CUSTOMER", fmt.Sprint("u", i)))(t)
			unread = counts.Unread
		}
	}
	for p, messages := range d.streams("notifier", "NOTIFICATIONS", "NOTIFICATIONS-1", "NOTIFICATIONS-2") {
		check.That(t, messages > 0, "stream %d has nothing", p)
	}
	d.isPermitted()
}
