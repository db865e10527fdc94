package enrich

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// answerTime is the time within which a request has to be answered, whichever server is down.
const answerTime = 2 * time.Second

// TestStoreDown stops the server: everything is PENDING, in time.
func TestStoreDown(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &fakeProvider{})
		i.ask(t, "req-0", places(1))
		srv.Stop()
		began := time.Now()
		resp := i.ask(t, "req-1", places(100))
		wantTook(t, began, 0, answerTime)
		check.Equal(t, resp.Skipped, "store_down", "skipped for : nobody can subscribe to the request, and the answer does")
		check.That(t, resp.Pending == 100 && i.Stats().Skipped[SkipStoreDown] == 100,
			"%d pending, %d skipped as store_down, want 100 each", resp.Pending, i.Stats().Skipped[SkipStoreDown])
		for n := range resp.Results {
			wantStatus(t, state(t, resp, n), contracts.StatusPending)
		}
		e := i.log.events("wolt_enqueue_skipped")[0]
		check.That(t, e["reason"] == "store_down" && e["placeId"] != "" && e["requestId"] == "req-1", "logged %v", e)
	})
}

// TestRequestThatIsNotRecorded: its places are claimed and queued, but nobody can subscribe to it. The answer says so, unless
// there is nothing to subscribe to.
func TestRequestThatIsNotRecorded(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &fakeProvider{})
	check.OK(t, i.js.DeleteKeyValue(t.Context(), contracts.BucketRequests))
	short := func(r *contracts.EnrichRequest) { r.WaitMS = 1 }
	resp := i.ask(t, "req-1", places(2), short)
	check.That(t, resp.Skipped == "store_down" && resp.Pending == 2, "skipped for %q with %d pending", resp.Skipped, resp.Pending)
	i.work(t)
	long := func(r *contracts.EnrichRequest) { r.WaitMS = int(contracts.MaxWait.Milliseconds()) }
	resp = i.ask(t, "req-2", places(2), long)
	check.That(t, resp.Skipped == "" && resp.Pending == 0, "skipped for %q with %d pending", resp.Skipped, resp.Pending)
}

// TestQueueUnavailable takes the queue away: the claim is given back, so that the next request queues the place.
func TestQueueUnavailable(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &fakeProvider{})
		bringBack := takeQueueAway(t, i)
		began := time.Now()
		resp := i.ask(t, "req-1", places(claimsAtOnce))
		wantTook(t, began, 0, answerTime)
		check.Equal(t, i.Stats().Skipped[SkipQueueUnavailable], claimsAtOnce, "skipped as queue_unavailable")
		check.Equal(t, resp.Pending, claimsAtOnce, "pending")
		e := i.log.events("wolt_enqueue_skipped")[0]
		check.That(t, e["requestId"] == "req-1" && e["reason"] == "queue_unavailable" && e["level"] == "WARN", "logged %v", e)
		bringBack()
		i.background.Wait()
		i.ask(t, "req-2", places(claimsAtOnce))
		i.wantJobs(t, claimsAtOnce)
	})
}

// TestSubscribersTryAgain: a subscription has its places claimed and queued soon after what was missing for it is back, however long
// it was away, without another request.
func TestSubscribersTryAgain(t *testing.T) {
	claims := func(t *testing.T, i *instance, bytes int64) {
		t.Helper()
		updateStream(t, i, "KV_"+contracts.BucketEnrich, func(c *jetstream.StreamConfig) { c.MaxBytes = bytes })
	}
	for name, takeAway := range map[string]func(t *testing.T, i *instance) (bringBack func()){
		"the queue": takeQueueAway,
		"room for claims": func(t *testing.T, i *instance) func() {
			t.Helper()
			claims(t, i, 1)
			return func() { claims(t, i, 1<<20) }
		},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			p := &fakeProvider{}
			i := newInstance(t, srv, p)
			bringBack := takeAway(t, i)
			i.ask(t, "req-1", places(10))
			outcome := make(chan map[string]contracts.ProviderState, 1)
			go func() {
				states, err := i.follow(t.Context(), "req-1")
				check.ErrorIs(t, err, nil)
				outcome <- states
			}()
			natstest.Pass(10 * time.Minute)
			i.triesInVain()
			bringBack()
			i.work(t)
			up := time.Now()
			states := <-outcome
			wantTook(t, up, 0, soon)
			for _, r := range places(10) {
				wantStatus(t, states[r.PlaceID], contracts.StatusFound)
			}
			check.Equal(t, p.total(), 10, "the provider was asked, times")
		})
	}
}

// triesInVain lets time pass until the instance has failed once more to claim or to queue a place.
func (i *instance) triesInVain() {
	for before := i.Stats().Skipped; maps.Equal(i.Stats().Skipped, before); {
		natstest.Pass(10 * time.Millisecond)
	}
	natstest.Pass(time.Second) // for all that it tries together
}

// TestSlowQueue: the queue acknowledges after the request had to be answered. The job is queued all the same, in the
// background, and the claim is its own.
func TestSlowQueue(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &fakeProvider{})
		bringBack := takeQueueAway(t, i)
		deaf := check.Must(i.js.Conn().SubscribeSync(contracts.EnrichJobsSubjects))(t) // takes jobs, acknowledges nothing
		began := time.Now()
		i.ask(t, "req-1", places(2))
		wantTook(t, began, 0, answerTime)
		natstest.Pass(500 * time.Millisecond)
		check.OK(t, deaf.Unsubscribe())
		bringBack()
		i.background.Wait()
		i.wantJobs(t, 2)
		i.work(t)
		i.outcomes(t, "req-1")
		wantTook(t, began, 0, 10*time.Second) // else the claim had no job
	})
}

// TestGoneCaller: the caller goes away while its places are claimed. Each claim still gets its job.
func TestGoneCaller(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &fakeProvider{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	check.OK(t, check.Err(i.Enrich(ctx, contracts.EnrichRequest{RequestID: "req-1", Results: places(20)})))
	i.wantJobs(t, 20)
}

// TestCorruptEntry: a record that cannot be read, and a result in one that can, are looked up again.
func TestCorruptEntry(t *testing.T) {
	t.Parallel()
	for name, corrupt := range map[string]func(t *testing.T, i *instance){
		"record": func(t *testing.T, i *instance) {
			t.Helper()
			check.OK(t, check.Err(i.js.Publish(t.Context(), "$KV.enrich.wolt.id-Pizza-House", []byte("?"))))
		},
		"result":  func(t *testing.T, i *instance) { t.Helper(); put(t, i, `not JSON`) },
		"no link": func(t *testing.T, i *instance) { t.Helper(); put(t, i, `{"status":"FOUND","url":null}`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInstance(t, natstest.Server(t), &fakeProvider{})
			corrupt(t, i)
			resp := i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
			wantStatus(t, state(t, resp, 0), contracts.StatusPending)
			i.wantJobs(t, 1)
			i.work(t)
			wantStatus(t, i.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		})
	}
}

// put makes value the result of a place.
func put(t *testing.T, i *instance, value string) {
	t.Helper()
	claim := check.Must(i.flight.Begin(t.Context(), pizzaKey, flight.BeginOptions{}))(t)
	check.OK(t, check.Err(claim.Complete(t.Context(), []byte(value), time.Hour)))
}

// TestCorruptEntryWhileListening: a subscription has it looked up again too.
func TestCorruptEntryWhileListening(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &fakeProvider{})
	claim := check.Must(i.flight.Begin(t.Context(), "wolt.id-Pizza-House", flight.BeginOptions{}))(t)
	i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
	sub := check.Must(i.Subscribe(t.Context(), "req-1", ""))(t)
	defer sub.Close()
	check.OK(t, check.Err(claim.Complete(t.Context(), []byte("not JSON"), time.Hour)))
	i.work(t)
	for !sub.Over() {
		update := check.Must(sub.Next(t.Context()))(t)
		if patch, is := update.Body.(contracts.ResultPatch); is {
			wantStatus(t, patch.Patch.Providers["wolt"], contracts.StatusFound)
		}
	}
}

func described(change func(*contracts.Restaurant)) contracts.Restaurant {
	r := contracts.Restaurant{
		PlaceID: "p-real", Name: "Café Alma Levana", Address: "Rothschild Blvd 71", CityText: "Tel Aviv", Phone: "03-123-4567",
		Location: &contracts.Location{Lat: 32.0640, Lng: 34.7730},
	}
	change(&r)
	return r
}

func noCity(req *contracts.EnrichRequest) { req.CityText = "" }
func waits(req *contracts.EnrichRequest)  { req.WaitMS = 60_000 }

// TestDescriptionsOfAPlace: a request shares the answer to another one about the place if neither contradicts the other, and has its
// own otherwise, in whatever order the two come, and also while the first is looked up.
func TestDescriptionsOfAPlace(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*contracts.Restaurant)
		shared bool
	}{
		"spelling":       {func(r *contracts.Restaurant) { r.Name, r.Address = "CAFE  Alma-Levana", "71 Rothschild Boulevard" }, true},
		"no telephone":   {func(r *contracts.Restaurant) { r.Phone = "" }, true},
		"name and city":  {func(r *contracts.Restaurant) { r.Address, r.Phone, r.Location = "", "", nil }, true},
		"ten metres off": {func(r *contracts.Restaurant) { r.Location = &contracts.Location{Lat: 32.0641, Lng: 34.7731} }, true},
		"name":           {func(r *contracts.Restaurant) { r.Name = "Burger Saloon" }, false},
		"renamed":        {func(r *contracts.Restaurant) { r.Name = "Bistro Tamar" }, false},
		"address":        {func(r *contracts.Restaurant) { r.Address = "Harbour Road 3" }, false},
		"house":          {func(r *contracts.Restaurant) { r.Address = "Rothschild Blvd 12" }, false},
		"telephone":      {func(r *contracts.Restaurant) { r.Phone = "03-765-4321" }, false},
		"location":       {func(r *contracts.Restaurant) { r.Location = &contracts.Location{Lat: 32.8, Lng: 35} }, false},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			all := []contracts.Restaurant{described(func(*contracts.Restaurant) {}), described(c.change)}
			for order := range 2 {
				p := &fakeProvider{}
				i := newInstance(t, srv, p)
				for _, r := range all {
					r.PlaceID += fmt.Sprint(order)
					i.ask(t, fmt.Sprint("req-", order), []contracts.Restaurant{r}, noCity) // both before any is looked up
				}
				stop := i.work(t)
				for range 2 {
					for _, r := range all {
						r.PlaceID += fmt.Sprint(order)
						got := state(t, i.ask(t, "", []contracts.Restaurant{r}, noCity, waits), 0)
						check.That(t, got.Status == contracts.StatusFound && (c.shared || *got.URL == linkOf(r.Name)), "%s is %+v", r.Name, got)
					}
				}
				stop()
				n := p.total()
				check.That(t, (n == 1) == c.shared && n <= 2, "looked up %d times", n)
				all[0], all[1] = all[1], all[0]
			}
		})
	}
}

// TestNothingFoundIsNotShared: a place that was not found by one description is looked up again by a richer
// or poorer one.
func TestNothingFoundIsNotShared(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &fakeProvider{search: noVenue}
		i := newInstance(t, srv, p)
		i.work(t)
		poor := described(func(r *contracts.Restaurant) { r.Phone, r.Location = "", nil })
		i.ask(t, "req-1", []contracts.Restaurant{poor}) // and the other one waits for its outcome
		i.ask(t, "req-2", []contracts.Restaurant{described(func(*contracts.Restaurant) {})})
		for _, id := range []string{"req-1", "req-2"} {
			wantStatus(t, i.outcomes(t, id)["p-real"], contracts.StatusNotFound)
		}
		check.Equal(t, p.total(), 2, "looked up, times")
	})
}

// TestDescriptionsAreBounded: however many descriptions there are of a place, its entries are as many as declared, and each
// gets its own answer.
func TestDescriptionsAreBounded(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &fakeProvider{})
		i.work(t)
		words := [2][]string{
			strings.Fields("Amber Birch Cobalt Dragon Falcon Garnet Hazel"), strings.Fields("Lantern Meadow Orchard Pelican Quarry Spindle Thunder"),
		}
		for n := range 3 * variants {
			name := words[0][n%7] + " " + words[1][n/7]
			r := described(func(r *contracts.Restaurant) { r.Name = name })
			got := state(t, i.ask(t, "", []contracts.Restaurant{r}, waits), 0)
			check.That(t, got.URL != nil && *got.URL == linkOf(name), "%s is %+v", name, got)
		}
		keys := map[string]bool{}
		for entry, err := range i.flight.List(t.Context(), "") {
			check.OK(t, err)
			keys[entry.Key] = true
		}
		check.That(t, len(keys) >= 2 && len(keys) <= 1+variants, "%d entries", len(keys))
	})
}

// TestJobOfAnotherDescription: the job of a claim that has expired does not answer the claim of another description.
func TestJobOfAnotherDescription(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &fakeProvider{}
		i := newInstance(t, srv, p)
		i.ask(t, "req-1", []contracts.Restaurant{described(func(r *contracts.Restaurant) { r.Name = "Burger Saloon" })})
		natstest.Pass(61 * time.Second) // its claim has expired, its job waits
		i.ask(t, "req-2", []contracts.Restaurant{described(func(*contracts.Restaurant) {})})
		i.work(t)
		got := i.outcomes(t, "req-2")["p-real"]
		check.That(t, got.URL != nil && *got.URL == linkOf("Café Alma Levana"), "got %+v", got)
		check.Equal(t, p.count("Burger Saloon"), 0, "asked for the other place, times")
	})
}

// TestEntryThatChanges: a result is parsed once, and one in its place is another. A job that was given up had no claim, so its entry has
// no description, and its place rests for every description.
func TestEntryThatChanges(t *testing.T) {
	t.Parallel()
	req := contracts.EnrichRequest{Results: []contracts.Restaurant{described(func(*contracts.Restaurant) {})}}
	first := check.Must(lookups(req, "r", []string{"wolt"}))(t)[0]
	entry := flight.Entry{Key: "wolt.p-real", State: flight.Done, Value: []byte(`{"status":"PENDING","url":null,"outcome":"ERROR"}`)}
	check.OK(t, first.learn(&entry))
	check.Equal(t, first.state.Reason, "provider_error")
	entry.Fingerprint = first.fingerprint
	for _, url := range []string{"https://wolt.test/a", "https://wolt.test/a", "https://wolt.test/b"} {
		entry.Value = []byte(`{"status":"FOUND","url":"` + url + `"}`)
		check.OK(t, first.learn(&entry))
		check.Equal(t, *first.state.URL, url)
	}
	entry.Value = entry.Value[:9]
	err := first.learn(&entry)
	check.That(t, err != nil && !first.settled, "a result that cannot be read: settled %t, %v", first.settled, err)
}

func FuzzFingerprint(f *testing.F) {
	f.Add("Café\nAlma", "Rothschild 71", "Tel Aviv", "03", 32.064, 34.773, true)
	f.Add(strings.Repeat("x", 2000), "", "", "", 0.0, 0.0, false)
	f.Fuzz(func(t *testing.T, name, address, city, phone string, lat, lng float64, located bool) {
		job := contracts.EnrichJob{Name: name, Address: address, CityText: city, Phone: phone}
		if located {
			job.Location = &contracts.Location{Lat: lat, Lng: lng}
		}
		first := fingerprint(job)
		place, ok := describedBy(first)
		check.Require(t, len(first) <= maxFingerprint && strings.HasPrefix(first, "sha256:") != ok, "%q is read: %t", first, ok)
		if !ok {
			return
		}
		check.Equal(t, place.Name, strings.ToLower(strings.Join(strings.Fields(name), " ")), "name")
		job = contracts.EnrichJob{Name: place.Name, Address: place.Address, CityText: place.City, Phone: place.Phone}
		if l := place.Location; l != nil {
			job.Location = &contracts.Location{Lat: l.Lat, Lng: l.Lng}
		}
		again := fingerprint(job)
		check.That(t, cmp.Equal(again, first), "%q becomes %q", first, again)
	})
}

// callers returns the contexts of requests of two callers with keys, and of one without a name.
func callers(t *testing.T) [3]context.Context {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.json")
	var requests [2]*http.Request
	for i := range requests {
		secret := check.Must(access.Add(path, access.Key{Name: fmt.Sprint("caller-", i), Scopes: []access.Scope{access.Publish}}))(t)
		requests[i] = httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/enrich", http.NoBody)
		requests[i].Header.Set("Authorization", "Bearer "+secret)
	}
	keys := check.Must(access.Open("enricher", path, slog.New(slog.DiscardHandler)))(t)
	admit := func(r *http.Request) context.Context {
		admitted := check.Must(access.NewGuard(keys, nil).Admit(r, access.Own(access.Publish)))(t)
		return admitted.Context()
	}
	return [3]context.Context{admit(requests[0]), admit(requests[1]), t.Context()}
}

// TestRequestOfAnotherCaller: only the caller that made a request adds places to it.
func TestRequestOfAnotherCaller(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &fakeProvider{})
	for n, ctx := range callers(t) {
		_, err := i.Enrich(ctx, contracts.EnrichRequest{RequestID: "req-1", Results: places(2 * (n + 1))[2*n:]})
		taken := n > 0
		check.That(t, errors.Is(err, ErrRequestTaken) == taken && Problem(err).Status == http.StatusConflict == taken, "caller %d: %v", n, err)
	}
	record, err := i.load(t.Context(), "req-1")
	check.That(t, err == nil && len(record.Jobs) == 2, "%d places, %v, want those of the first caller", len(record.Jobs), err)
}

// TestRequestsAreBounded: a record takes no more places than it may have, also when its id is used again.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &fakeProvider{})
	all := places(maxRecorded + 1)
	for from := 0; from < maxRecorded; from += 100 {
		i.ask(t, "req-1", all[from:from+100])
	}
	i.ask(t, "req-1", all[:3]) // adds nothing
	check.ErrorIs(t, check.Err(i.Enrich(t.Context(), contracts.EnrichRequest{RequestID: "req-1", Results: all[maxRecorded:]})), ErrRequestFull)
	resp := i.ask(t, "req-2", all[maxRecorded:])
	check.That(t, resp.Pending == 1 && resp.Skipped == "", "under another id: %+v", resp)
}

// TestAnswerWhileTheConnectionHangs: the client library ignores the context and waits when the server takes nothing. The answer
// comes all the same.
func TestAnswerWhileTheConnectionHangs(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	proxy := natstest.NewProxy(t, srv)
	i := newInstanceOn(t, srv, &fakeProvider{}, []nats.Option{proxy.Through()}, func(cfg *Config) { cfg.StoreTimeout = time.Second })
	open := hang(proxy)
	defer open()
	began := time.Now()
	resp := i.ask(t, "req-1", places(100))
	wantTook(t, began, 0, 30*time.Second) // the library gives up after a minute
	check.That(t, resp.Pending == 100 && resp.Skipped == "store_down", "%d pending, skipped %q", resp.Pending, resp.Skipped)
}

// hang holds the messages of clients back, until open.
func hang(proxy *natstest.Proxy) (open func()) {
	gate := make(chan struct{})
	proxy.Filter(func(natstest.Frame) natstest.Verdict {
		<-gate
		return natstest.Relay
	})
	return func() { close(gate) }
}

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

// TestEventsOfAMiss and, for another request, of the lock that the first one has.
func TestEventsOfAMiss(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &fakeProvider{})
	place := contracts.Restaurant{PlaceID: "ChIJ123", Name: "Pizza House", CityText: "Tel Aviv"}
	i.ask(t, "req_abc123", []contracts.Restaurant{place})
	wantEvent(t, i, "wolt_cache_miss", map[string]string{
		"level": "DEBUG", "requestId": "req_abc123", "placeId": "ChIJ123", "restaurantName": "Pizza House", "cityText": "Tel Aviv",
	})
	wantEvent(t, i, "wolt_lock_acquired", map[string]string{
		"level": "INFO", "requestId": "req_abc123", "placeId": "ChIJ123", "restaurantName": "Pizza House",
	})
	wantEvent(t, i, "wolt_job_enqueued", map[string]string{
		"level": "INFO", "requestId": "req_abc123", "placeId": "ChIJ123", "name": "Pizza House", "cityText": "Tel Aviv",
		"statusSet": "PENDING", "reason": "cache_miss",
	})
	reasons := i.log.reasons()
	check.That(t, len(reasons) == 0, "skipped for %q, want nothing skipped", reasons)
	i.ask(t, "req-2", []contracts.Restaurant{place})
	wantEvent(t, i, "wolt_lock_skipped", map[string]string{
		"level": "DEBUG", "requestId": "req-2", "placeId": "ChIJ123", "restaurantName": "Pizza House",
	})
	wantEvent(t, i, "wolt_enqueue_skipped", map[string]string{"level": "DEBUG", "requestId": "req-2", "placeId": "ChIJ123", "reason": "lock_held"})
}

// TestEventsOfAHit: places that were found, and places that were not, are answered at once, and nothing is claimed or queued.
func TestEventsOfAHit(t *testing.T) {
	t.Parallel()
	for _, status := range []contracts.ProviderStatus{contracts.StatusFound, contracts.StatusNotFound} {
		p := &fakeProvider{}
		if status == contracts.StatusNotFound {
			p.search = noVenue
		}
		i := newInstance(t, natstest.Server(t), p)
		stop := i.work(t)
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		i.outcomes(t, "req-1")
		stop()
		resp := i.ask(t, "req-2", []contracts.Restaurant{place("Pizza House")})
		wantStatus(t, state(t, resp, 0), status)
		wantEvent(t, i, "wolt_cache_hit", map[string]string{
			"level": "DEBUG", "requestId": "req-2", "placeId": "id-Pizza-House", "restaurantName": "Pizza House", "status": string(status),
		})
		wantEvent(t, i, "wolt_enqueue_skipped", map[string]string{"requestId": "req-2", "placeId": "id-Pizza-House", "reason": "already_cached"})
		check.That(t, resp.Pending == 0 && i.Stats().Skipped[SkipAlreadyCached] == 1, "%d pending, %+v", resp.Pending, i.Stats())
		check.Equal(t, len(i.log.events("wolt_lock_acquired")), 1, "locks were taken")
		i.wantJobs(t, 1)
	}
}

// TestEventsOfALockError takes the claims' writes away and leaves the reads.
func TestEventsOfALockError(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &fakeProvider{})
	updateStream(t, i, "KV_"+contracts.BucketEnrich, func(c *jetstream.StreamConfig) { c.Sealed = true })
	resp := i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
	wantStatus(t, state(t, resp, 0), contracts.StatusPending)
	wantEvent(t, i, "wolt_lock_failed", map[string]string{"level": "WARN", "requestId": "req-1", "placeId": "id-Pizza-House"})
	e := i.log.events("wolt_lock_failed")[0]["lockError"]
	check.That(t, strings.Contains(e, "sealed"), "lockError is %q, want the server's error", e)
	wantEvent(t, i, "wolt_enqueue_skipped", map[string]string{"requestId": "req-1", "placeId": "id-Pizza-House", "reason": "lock_error"})
	i.wantJobs(t, 0)
}

func TestFlagDisabled(t *testing.T) {
	t.Parallel()
	p := &fakeProvider{}
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
	i := newInstance(t, natstest.Server(t), &fakeProvider{})
	resp := i.ask(t, "", []contracts.Restaurant{})
	check.That(t, resp.Skipped == "no_results" && resp.RequestID != "" && resp.Results != nil,
		"answer is %+v, want no_results, a request id and an empty list", resp)
	wantEvent(t, i, "wolt_enqueue_skipped", map[string]string{"requestId": resp.RequestID, "reason": "no_results"})
}

// TestPlaceTwice asks for one place twice in a request, and for two providers.
func TestPlaceTwice(t *testing.T) {
	t.Parallel()
	wolt, yelp := &fakeProvider{}, &fakeProvider{name: "yelp", search: noVenue}
	i := newInstance(t, natstest.Server(t), wolt, func(c *Config) { c.Providers = append(c.Providers, yelp) })
	i.work(t)
	resp := i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House"), place("Pizza House")})
	check.Equal(t, resp.Pending, 2, "pending")
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

// TestKnownPlacesAreAnsweredFromMemory: a request whose places this process knows reads nothing, until another process
// replaces a result: that is answered for at once. Without a memory every request reads.
func TestKnownPlacesAreAnsweredFromMemory(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i, other := newInstance(t, srv, &fakeProvider{}), newInstance(t, srv, &fakeProvider{})
		stop := i.work(t)
		i.ask(t, "req-0", places(10))
		i.outcomes(t, "req-0")
		stop()
		other.ask(t, "req-1", places(10))                                               // has read the places that were not pushed to it
		count := countMessages(t, srv, "$JS.API.DIRECT.GET.KV_"+contracts.BucketEnrich) // reads of entries that reach the server
		before := count()
		for range 5 {
			natstest.Pass(time.Minute / 2)
			for n, r := range other.ask(t, "req-2", places(10)).Results {
				s, _ := r.State(contracts.ProviderWolt)
				check.That(t, s.Status == contracts.StatusFound, "place %d is %+v", n, s)
			}
		}
		check.Equal(t, count()-before, 0, "reads of known places")
		key := check.Must(contracts.EnrichEntryKey(contracts.ProviderWolt, places(1)[0].PlaceID))(t)
		check.OK(t, i.flight.Invalidate(t.Context(), key))
		synctest.Wait() // the push is there
		resp := other.ask(t, "req-3", places(10))
		wantStatus(t, state(t, resp, 0), contracts.StatusPending)
		wantStatus(t, state(t, resp, 1), contracts.StatusFound)
		forgetful := newInstance(t, srv, &fakeProvider{}, forgets)
		before, sent := count(), forgetful.js.Conn().Stats().OutMsgs
		for range 2 {
			forgetful.ask(t, "req-4", places(10)[1:])
		}
		check.Equal(t, forgetful.js.Conn().Stats().OutMsgs-sent, 2, "messages: one round trip for each request")
		check.Equal(t, count()-before, 2, "reads without a memory")
	})
}

// soon is how long after a crash, when everything is up again, a place is answered that no provider puts off, with default settings.
const soon = 30 * time.Second

// Each message that an instance sends in the life of a place meets with each mishap, one message of each place. Within the
// promised time a request that is repeated has the answer, and no job is left. Settings are the defaults.
func TestAPlaceIsAnsweredSoonAfterAnyMessageIsLost(t *testing.T) {
	for _, mishap := range natstest.Mishaps() {
		natstest.RunBubble(t, mishap.String(), func(t *testing.T, srv *natsrun.Server) {
			slow := &fakeProvider{search: func(_ context.Context, place match.Place) ([]provider.Venue, error) {
				natstest.Pass(8 * time.Second) // for as long as a provider may take by default
				return venueOf(place)
			}}
			client := newInstance(t, srv, slow, forgets) // has a separate connection, and works nothing
			wire := natstest.NewWire(t, srv, mishap)
			var i *instance
			start := func() {
				i = newInstanceOn(t, srv, slow, wire.Connect())
				i.cutOff = mishap.Dies
				stop, started := i.work(t), i
				wire.Stops(func() {
					started.js.Conn().Close()
					stop()
					started.Close() // or its goroutines would go on until the end of the test
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
				asking.Go(func() { check.ErrorIs(t, check.Err(first.Enrich(context.WithoutCancel(t.Context()), req)), nil) })
				var took time.Duration
				took, struck = wire.Until(soon, func() string { return client.unfinished(t, req) }, start)
				longest = max(longest, took)
			}
			t.Logf("%d messages; answered after %s at most", asked-1, longest)
			check.That(t, asked >= 10, "%d messages are too few to be all", asked-1)
		})
	}
}

// unfinished describes the places of a request that are not answered, "" when all are. For a server that is away it
// returns its error.
func (i *instance) unfinished(t *testing.T, req contracts.EnrichRequest) string {
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
