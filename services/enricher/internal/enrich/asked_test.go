package enrich

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/access"
)

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
				p := &far{}
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
		p := &far{search: noVenue}
		i := newInstance(t, srv, p)
		i.work(t)
		poor := described(func(r *contracts.Restaurant) { r.Phone, r.Location = "", nil })
		i.ask(t, "req-1", []contracts.Restaurant{poor}) // and the other one waits for its outcome
		i.ask(t, "req-2", []contracts.Restaurant{described(func(*contracts.Restaurant) {})})
		for _, id := range []string{"req-1", "req-2"} {
			wantStatus(t, i.outcomes(t, id)["p-real"], contracts.StatusNotFound)
		}
		check.Same(t, "looked up, times", p.total(), 2)
	})
}

// TestDescriptionsAreBounded: however many descriptions there are of a place, its entries are as many as declared, and each
// gets its own answer.
func TestDescriptionsAreBounded(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &far{})
		i.work(t)
		words := [2][]string{
			strings.Fields("Amber Birch Cobalt Dragon Falcon Garnet Hazel"), strings.Fields("Lantern Meadow Orchard Pelican Quarry Spindle Thunder"),
		}
		for n := range 3 * contracts.EnrichVariants {
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
		check.That(t, len(keys) >= 2 && len(keys) <= 1+contracts.EnrichVariants, "%d entries", len(keys))
	})
}

// TestJobOfAnotherDescription: the job of a claim that has expired does not answer the claim of another description.
func TestJobOfAnotherDescription(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &far{}
		i := newInstance(t, srv, p)
		i.ask(t, "req-1", []contracts.Restaurant{described(func(r *contracts.Restaurant) { r.Name = "Burger Saloon" })})
		elapse(61 * time.Second) // its claim has expired, its job waits
		i.ask(t, "req-2", []contracts.Restaurant{described(func(*contracts.Restaurant) {})})
		i.work(t)
		got := i.outcomes(t, "req-2")["p-real"]
		if got.URL == nil || *got.URL != linkOf("Café Alma Levana") || p.count("Burger Saloon") != 0 {
			t.Errorf("got %+v, asked %d times for another place", got, p.count("Burger Saloon"))
		}
	})
}

// TestEntryWithoutADescription: a job that was given up had no claim, and its place rests for every description.
func TestEntryWithoutADescription(t *testing.T) {
	t.Parallel()
	entry := flight.Entry{Key: "wolt.p-real", State: flight.Done, Value: []byte(`{"status":"PENDING","url":null,"outcome":"ERROR"}`)}
	all := check.Must(lookups(contracts.EnrichRequest{Results: []contracts.Restaurant{described(func(*contracts.Restaurant) {})}}, "r", []string{"wolt"}))(t)
	check.OK(t, all[0].record(&entry))
	check.Same(t, "reason", all[0].state.Reason, contracts.ReasonProviderError)
}

// TestEntryThatChanges: a result is parsed once, and one in its place is another.
func TestEntryThatChanges(t *testing.T) {
	t.Parallel()
	all, err := lookups(contracts.EnrichRequest{Results: []contracts.Restaurant{described(func(*contracts.Restaurant) {})}}, "r", []string{"wolt"})
	check.OK(t, err)
	entry := flight.Entry{Key: "wolt.p-real", State: flight.Done, Fingerprint: all[0].fingerprint}
	for _, url := range []string{"https://wolt.test/a", "https://wolt.test/a", "https://wolt.test/b"} {
		entry.Value = []byte(`{"status":"FOUND","url":"` + url + `"}`)
		check.OK(t, all[0].record(&entry))
		check.Same(t, "url", *all[0].state.URL, url)
	}
	entry.Value = entry.Value[:9]
	if err := all[0].record(&entry); err == nil || all[0].settled {
		t.Errorf("a result that cannot be read: settled %t, %v", all[0].settled, err)
	}
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
		check.Same(t, "name", place.Name, strings.ToLower(strings.Join(strings.Fields(name), " ")))
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
	i := newInstance(t, natstest.Server(t), &far{})
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
	i := newInstance(t, natstest.Server(t), &far{})
	all := places(maxRecorded + 1)
	for from := 0; from < maxRecorded; from += contracts.MaxResults {
		i.ask(t, "req-1", all[from:from+contracts.MaxResults])
	}
	i.ask(t, "req-1", all[:3]) // adds nothing
	check.Is(t, check.Err(i.Enrich(t.Context(), contracts.EnrichRequest{RequestID: "req-1", Results: all[maxRecorded:]})), ErrRequestFull)
	resp := i.ask(t, "req-2", all[maxRecorded:])
	check.That(t, resp.Pending == 1 && resp.Skipped == "", "under another id: %+v", resp)
}

// TestAnswerWhileTheConnectionHangs: the client library ignores the context and waits when the server takes nothing. The answer
// comes all the same.
func TestAnswerWhileTheConnectionHangs(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	proxy := natstest.NewProxy(t, srv)
	i := newInstanceOn(t, srv, &far{}, []nats.Option{proxy.Through()}, func(cfg *Config) { cfg.StoreTimeout = time.Second })
	open := hang(proxy)
	defer open()
	began := time.Now()
	resp := i.ask(t, "req-1", places(100))
	took := time.Since(began)
	check.That(t, took <= 30*time.Second, "answered after %s", took) // the library gives up after a minute
	check.That(t, resp.Pending == 100 && resp.Skipped == contracts.SkippedStoreDown, "%d pending, skipped %q", resp.Pending, resp.Skipped)
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
