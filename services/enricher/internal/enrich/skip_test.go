package enrich

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// wantEvent checks the only entry of an event against its fields.
func wantEvent(t *testing.T, i *instance, event string, want map[string]string) {
	t.Helper()
	entries := i.log.events(event)
	check.Require(t, len(entries) == 1, "%d entries of %s, want one", len(entries), event)
	got := map[string]string{}
	for field := range want {
		got[field] = entries[0][field]
	}
	diff := cmp.Diff(want, got)
	check.That(t, diff == "", "fields of %s (-want +got):\n%s", event, diff)
}

// updateStream changes a stream under a running service.
func updateStream(t *testing.T, i *instance, name string, change func(*jetstream.StreamConfig)) {
	t.Helper()
	stream := check.Must(i.js.Stream(t.Context(), name))(t)
	cfg := stream.CachedInfo().Config
	change(&cfg)
	check.OK(t, check.Err(i.js.UpdateStream(t.Context(), cfg)))
}

func TestEventsOfAMiss(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	i.ask(t, "req_abc123", []contracts.Restaurant{{PlaceID: "ChIJ123", Name: "Pizza House", CityText: "Tel Aviv"}})
	wantEvent(t, i, "wolt_cache_miss", map[string]string{
		"requestId": "req_abc123", "placeId": "ChIJ123", "restaurantName": "Pizza House", "cityText": "Tel Aviv",
	})
	wantEvent(t, i, "wolt_lock_acquired", map[string]string{"requestId": "req_abc123", "placeId": "ChIJ123", "restaurantName": "Pizza House"})
	wantEvent(t, i, "wolt_job_enqueued", map[string]string{
		"requestId": "req_abc123", "placeId": "ChIJ123", "name": "Pizza House", "cityText": "Tel Aviv", "statusSet": "PENDING", "reason": "cache_miss",
	})
	reasons := i.log.reasons()
	check.That(t, len(reasons) == 0, "skipped for %q, want nothing skipped", reasons)
}

func TestEventsOfAHit(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	stop := i.work(t)
	i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
	i.outcomes(t, "req-1")
	stop()
	i.ask(t, "req-2", []contracts.Restaurant{place("Pizza House")})
	wantEvent(t, i, "wolt_cache_hit", map[string]string{
		"requestId": "req-2", "placeId": "id-Pizza-House", "restaurantName": "Pizza House", "status": "FOUND",
	})
	wantEvent(t, i, "wolt_enqueue_skipped", map[string]string{"requestId": "req-2", "placeId": "id-Pizza-House", "reason": "already_cached"})
	check.Same(t, "counted", i.Stats().Skipped[SkipAlreadyCached], 1)
}

func TestEventsOfAHeldLock(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
	i.ask(t, "req-2", []contracts.Restaurant{place("Pizza House")})
	wantEvent(t, i, "wolt_lock_skipped", map[string]string{"requestId": "req-2", "placeId": "id-Pizza-House", "restaurantName": "Pizza House"})
	wantEvent(t, i, "wolt_enqueue_skipped", map[string]string{"requestId": "req-2", "placeId": "id-Pizza-House", "reason": "lock_held"})
}

// TestEventsOfALockError takes the claims' writes away and leaves the reads.
func TestEventsOfALockError(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	updateStream(t, i, "KV_"+contracts.BucketEnrich, func(c *jetstream.StreamConfig) { c.Sealed = true })
	resp := i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
	wantStatus(t, state(t, resp, 0), contracts.StatusPending)
	wantEvent(t, i, "wolt_lock_failed", map[string]string{"requestId": "req-1", "placeId": "id-Pizza-House"})
	e := i.log.events("wolt_lock_failed")[0]["lockError"]
	check.That(t, strings.Contains(e, "sealed"), "lockError is %q, want the server's error", e)
	wantEvent(t, i, "wolt_enqueue_skipped", map[string]string{"requestId": "req-1", "placeId": "id-Pizza-House", "reason": "lock_error"})
	i.wantJobs(t, 0)
}

func TestFlagDisabled(t *testing.T) {
	t.Parallel()
	p := &far{}
	i := newInstance(t, natstest.Server(t), p, func(c *Config) { c.Enabled = false })
	before := []contracts.Restaurant{place("Pizza House")}
	resp := i.ask(t, "req-1", before)
	check.That(t, resp.Results[0].Equal(before[0]), "the restaurant was touched")
	check.That(t, resp.Skipped == "flag_disabled" && resp.Pending == 0,
		"skipped %q with %d pending, want flag_disabled with none", resp.Skipped, resp.Pending)
	wantEvent(t, i, "wolt_enqueue_skipped", map[string]string{"requestId": "req-1", "reason": "flag_disabled"})
	i.wantJobs(t, 0)
}

func TestNoResults(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	resp := i.ask(t, "", []contracts.Restaurant{})
	check.That(t, resp.Skipped == "no_results" && resp.RequestID != "" && resp.Results != nil,
		"answer is %+v, want no_results, a request id and an empty list", resp)
	wantEvent(t, i, "wolt_enqueue_skipped", map[string]string{"requestId": resp.RequestID, "reason": "no_results"})
}

// TestBothFields checks the fields of a restaurant with and without the deprecated one.
func TestBothFields(t *testing.T) {
	t.Parallel()
	const body = `{"requestId":"r","results":[{"z":1.50,"placeId":"ChIJ1","name":"Pizza House","providers":{"yelp":{"status":"FOUND","url":"https://y.test/1","stars":4}}}]}`
	for name, c := range map[string]struct {
		deprecated bool
		want       string
	}{
		"both": {true, `{"z":1.50,"placeId":"ChIJ1","name":"Pizza House","providers":{"yelp":{"status":"FOUND","url":"https://y.test/1","stars":4},` +
			`"wolt":{"status":"PENDING","url":null}},"wolt":{"status":"PENDING","url":null}}`},
		"new only": {false, `{"z":1.50,"placeId":"ChIJ1","name":"Pizza House","providers":{"yelp":{"status":"FOUND","url":"https://y.test/1","stars":4},` +
			`"wolt":{"status":"PENDING","url":null}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstance(t, natstest.Server(t), &far{}, func(cfg *Config) { cfg.Deprecated = c.deprecated })
			req := check.Must(contracts.Decode[contracts.EnrichRequest]([]byte(body)))(t)
			resp := check.Must(i.Enrich(t.Context(), req))(t)
			got := check.Must(contracts.Encode(resp))(t)
			want := `{"requestId":"r","results":[` + c.want + `],"pending":1}`
			check.That(t, equalJSON(t, want, string(got)), "got  %s\nwant %s", got, want)
			check.That(t, strings.Contains(string(got), c.want), "the restaurant was not kept byte for byte:\n%s\nwant %s", got, c.want)
			sub := check.Must(i.Subscribe(t.Context(), "r", ""))(t)
			defer sub.Close()
			i.work(t)
			for {
				update := check.Must(sub.Next(t.Context()))(t)
				if patch, is := update.Body.(contracts.ResultPatch); is {
					check.That(t, (patch.Patch.Wolt != nil) == c.deprecated, "patch is %+v, want the deprecated field: %t", patch, c.deprecated)
					return
				}
			}
		})
	}
}

// TestPlaceTwice asks for one place twice in a request, and for two providers.
func TestPlaceTwice(t *testing.T) {
	t.Parallel()
	wolt, yelp := &far{}, &far{name: "yelp", search: noVenue}
	i := newInstance(t, natstest.Server(t), wolt, func(c *Config) { c.Providers = append(c.Providers, yelp) })
	i.work(t)
	resp := i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House"), place("Pizza House")})
	check.Same(t, "pending", resp.Pending, 2)
	i.outcomes(t, "req-1")
	resp = i.ask(t, "req-2", []contracts.Restaurant{place("Pizza House"), place("Pizza House")})
	for n := range resp.Results {
		wantStatus(t, state(t, resp, n), contracts.StatusFound)
		s, _ := resp.Results[n].State("yelp")
		check.That(t, s.Status == contracts.StatusNotFound, "state of yelp is %+v, want NOT_FOUND", s)
	}
	check.That(t, wolt.total() == 1 && yelp.total() == 1, "asked %d and %d times, want once each", wolt.total(), yelp.total())
	resp = i.ask(t, "req-3", []contracts.Restaurant{place("Pizza House")}, func(r *contracts.EnrichRequest) { r.Providers = []string{"yelp", "yelp"} })
	_, has := resp.Results[0].State("wolt")
	check.That(t, !has, "a provider answered that was not asked")
	check.That(t, !slices.Contains(i.log.reasons(), "lock_error"), "a claim failed")
}

// reads counts the reads of entries that reach the server.
func reads(t *testing.T, srv *natsrun.Server) (count func() int) {
	t.Helper()
	nc, _ := natstest.Connect(t, srv)
	sub, err := nc.SubscribeSync("$JS.API.DIRECT.GET.KV_" + contracts.BucketEnrich)
	if err == nil {
		err = nc.Flush()
	}
	check.OK(t, err)
	return func() int {
		synctest.Wait()
		n, _, err := sub.Pending()
		check.Is(t, err, nil)
		return n
	}
}

// TestKnownPlacesAreAnsweredFromMemory: a request whose places this process knows reads nothing, until another process
// replaces a result: that is answered for at once.
func TestKnownPlacesAreAnsweredFromMemory(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i, other := newInstance(t, srv, &far{}), newInstance(t, srv, &far{})
		stop := i.work(t)
		i.ask(t, "req-0", places(10))
		i.outcomes(t, "req-0")
		stop()
		other.ask(t, "req-1", places(10)) // has read the places that were not pushed to it
		count := reads(t, srv)
		before := count()
		for range 5 {
			elapse(time.Minute / 2)
			for n, r := range other.ask(t, "req-2", places(10)).Results {
				s, _ := r.State(contracts.ProviderWolt)
				check.That(t, s.Status == contracts.StatusFound, "place %d is %+v", n, s)
			}
		}
		check.Same(t, "reads of known places", count()-before, 0)
		key := check.Must(contracts.EnrichEntryKey(contracts.ProviderWolt, places(1)[0].PlaceID))(t)
		check.OK(t, i.flight.Invalidate(t.Context(), key))
		synctest.Wait() // the push is there
		resp := other.ask(t, "req-3", places(10))
		wantStatus(t, state(t, resp, 0), contracts.StatusPending)
		wantStatus(t, state(t, resp, 1), contracts.StatusFound)
	})
}

// TestWithoutAMemoryEveryRequestReads is the same without one.
func TestWithoutAMemoryEveryRequestReads(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &far{}, func(cfg *Config) { cfg.MemoryBytes = -1 })
		stop := i.work(t)
		i.ask(t, "req-0", places(10))
		i.outcomes(t, "req-0")
		stop()
		count := reads(t, srv)
		before := count()
		i.ask(t, "req-1", places(10))
		check.Same(t, "reads", count()-before, 1)
	})
}

// soon is how long after a crash, when everything is up again, a place is answered that no provider puts off, with default settings.
const soon = 30 * time.Second

// Each message that an instance sends in the life of a place meets with each mishap, one message of each place. Within the
// promised time a request that is repeated has the answer, and no job is left. Settings are the defaults.
func TestAPlaceIsAnsweredSoonAfterAnyMessageIsLost(t *testing.T) {
	for _, mishap := range natstest.Mishaps() {
		natstest.RunBubble(t, mishap.String(), func(t *testing.T, srv *natsrun.Server) {
			slow := &far{search: func(_ context.Context, place match.Place) ([]provider.Venue, error) {
				elapse(8 * time.Second) // for as long as a provider may take by default
				return venueOf(place)
			}}
			client := newInstance(t, srv, slow) // has a connection of its own, and works nothing
			wire := natstest.NewWire(t, srv, mishap)
			var i *instance
			start := func() {
				i = newInstanceOn(t, srv, slow, wire.Connect())
				i.cutOff = mishap.Dies
				stop, nc := i.work(t), i.js.Conn()
				wire.Stops(func() {
					nc.Close()
					stop()
				})
			}
			start()
			var asking sync.WaitGroup
			defer asking.Wait()
			longest, asked := time.Duration(0), 0
			for struck := true; struck; asked++ {
				req := contracts.EnrichRequest{RequestID: fmt.Sprint("req-", asked), Results: places(asked + 1)[asked:]}
				wire.Aim(asked + 1)
				first := i
				asking.Go(func() {
					check.Is(t, check.Err(first.Enrich(context.WithoutCancel(t.Context()), req)), nil)
				})
				var took time.Duration
				took, struck = wire.Until(soon, func() string { return client.open(t, req) }, start)
				longest = max(longest, took)
			}
			t.Logf("%d messages; answered after %s at most", asked-1, longest)
			check.That(t, asked >= 10, "%d messages are too few to be all", asked-1)
		})
	}
}

// open describes the places of a request that are not answered, "" when all are. For a server that is away it
// returns its error.
func (i *instance) open(t *testing.T, req contracts.EnrichRequest) string {
	t.Helper()
	resp, err := i.Enrich(t.Context(), req)
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	stream, err := i.js.Stream(ctx, contracts.StreamEnrichJobs)
	if err != nil {
		return err.Error()
	}
	if left := stream.CachedInfo().State.Msgs; left > 0 || resp.Pending > 0 {
		return fmt.Sprintf("%d jobs are in the stream, %+v", left, resp)
	}
	return ""
}
