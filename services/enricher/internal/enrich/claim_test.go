package enrich

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// TestSharedClaims: a request for a place that another request of this process is claiming waits for that claim, and
// makes none itself; if that takes too long it is answered.
func TestSharedClaims(t *testing.T) {
	link := linkOf("Pizza House")
	for name, c := range map[string]struct {
		come   func(call *claimCall) // nil: nothing comes in time
		reason string
		status contracts.ProviderStatus
	}{
		"queued":   {func(*claimCall) {}, "lock_held", contracts.StatusPending},
		"no queue": {func(call *claimCall) { call.reason = SkipQueueUnavailable }, "queue_unavailable", contracts.StatusPending},
		"found": {func(call *claimCall) {
			call.taken = &flight.Entry{Key: pizzaKey, State: flight.Done, Value: []byte(`{"status":"FOUND","url":"` + link + `"}`)}
		}, "already_cached", contracts.StatusFound},
		"late": {nil, "lock_held", contracts.StatusPending},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			i := newInstance(t, srv, &far{})
			all, err := lookups(contracts.EnrichRequest{CityText: "Haifa", Results: []contracts.Restaurant{place("Pizza House")}}, "r", i.names)
			check.OK(t, err)
			call, first := i.claims.join(all[0].claim())
			check.Require(t, first, "somebody claims already")
			began := time.Now()
			answer := make(chan contracts.EnrichResponse, 1)
			go func() {
				defer close(answer)
				answer <- i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
			}()
			synctest.Wait()
			check.That(t, len(answer) == 0, "answered before the other request knew")
			if c.come != nil {
				c.come(call)
				i.claims.end(all[0].claim(), call)
			}
			wantStatus(t, state(t, <-answer, 0), c.status)
			took := time.Since(began)
			check.That(t, took <= answerTime, "answered after %s", took)
			reasons := i.log.reasons()
			check.That(t, len(reasons) == 1 && reasons[0] == c.reason, "skipped for %q, want %s", reasons, c.reason)
			check.Same(t, "claims were taken", len(i.log.events("wolt_lock_acquired")), 0)
		})
	}
}

// TestTTL: how long a claim and each outcome are kept, to the second, by when the server lets them go.
func TestTTL(t *testing.T) {
	const week, day = 7 * 24 * time.Hour, 24 * time.Hour
	for name, c := range map[string]struct {
		far         *far
		least, most time.Duration
	}{
		"FOUND":     {&far{}, week * 9 / 10, week * 11 / 10},
		"NOT_FOUND": {&far{search: noVenue}, day * 9 / 10, day * 11 / 10},
		"AMBIGUOUS": {&far{search: twoVenues}, time.Minute, time.Minute},
		"ERROR":     {&far{search: failTimes(1000, errFar)}, time.Minute, time.Minute},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			i := newInstance(t, srv, c.far, func(cfg *Config) {
				if c.least > time.Hour { // a memory asks for changes every second
					cfg.MemoryBytes = -1
				}
			})
			stop := i.work(t)
			somewhere := place("Pizza House")
			somewhere.Address = ""
			i.ask(t, "req-1", []contracts.Restaurant{somewhere})
			i.outcomes(t, "req-1")
			stop()
			entry := check.Must(i.flight.Get(t.Context(), "wolt.id-Pizza-House"))(t)
			results, err := i.Results(t.Context(), "wolt", contracts.EnrichRequest{Results: []contracts.Restaurant{somewhere, place("unknown")}})
			if r := results["id-Pizza-House"]; err != nil || len(results) != 1 || string(r.Outcome) != name || r.Matcher == "" {
				t.Errorf("results are %+v, %v, want one that is %s", results, err, name)
			}
			check.That(t, entry.TTL >= c.least && entry.TTL <= c.most, "kept for %s, want %s to %s", entry.TTL, c.least, c.most)
			elapse(entry.TTL - entry.Age() - time.Second)
			entry, err = i.flight.Get(t.Context(), entry.Key)
			check.That(t, err == nil && entry.State == flight.Done, "a second before its time it is %v, %v", entry.State, err)
			elapse(2 * time.Second)
			entry, err = i.flight.Get(t.Context(), entry.Key)
			check.That(t, err == nil && entry.State == flight.Absent, "a second after its time it is %v, %v", entry.State, err)
		})
	}
	natstest.RunBubble(t, "claim", func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &far{})
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		entry, err := i.flight.Get(t.Context(), "wolt.id-Pizza-House")
		check.That(t, err == nil && entry.State == flight.Pending && entry.TTL == time.Minute, "claim is %+v, %v, want one of 60 s", entry, err)
		elapse(time.Minute + time.Second)
		entry, err = i.flight.Get(t.Context(), entry.Key)
		check.That(t, err == nil && entry.State == flight.Absent, "after 61 s it is %v, %v", entry.State, err)
	})
}

// TestUnusableJobs go to the dead letters at once. Their places are left without an answer for a minute, so that they
// are not queued again for ever, and nobody else is held up.
func TestUnusableJobs(t *testing.T) {
	good := contracts.EnrichJob{Provider: "wolt", PlaceID: "id-Pizza-House", RequestID: "r", Claim: "abc.1.1", Name: "Pizza House"}
	alter := func(f func(*contracts.EnrichJob)) []byte {
		job := good
		f(&job)
		return check.Must(json.Marshal(job))(t)
	}
	for name, c := range map[string]struct {
		body   []byte
		reason worker.Reason
	}{
		"not JSON":         {[]byte("?"), worker.ReasonUndecodable},
		"empty":            {nil, worker.ReasonUndecodable},
		"missing field":    {alter(func(j *contracts.EnrichJob) { j.Name = "" }), worker.ReasonUndecodable},
		"wrong type":       {[]byte(`{"provider":7}`), worker.ReasonUndecodable},
		"no claim":         {alter(func(j *contracts.EnrichJob) { j.Claim = "../../x" }), worker.ReasonCancelled},
		"unknown provider": {alter(func(j *contracts.EnrichJob) { j.Provider = "yelp" }), worker.ReasonCancelled},
		"long id":          {alter(func(j *contracts.EnrichJob) { j.PlaceID = strings.Repeat("x", 10_000) }), worker.ReasonUndecodable},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			p := &far{}
			i := newInstance(t, srv, p)
			check.OK(t, check.Err(i.js.Publish(t.Context(), "jobs.enrich."+pizzaKey, c.body)))
			i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House"), place("Sushi Bar")})
			began := time.Now()
			i.work(t)
			states := i.outcomes(t, "req-1")
			took := time.Since(began)
			check.That(t, took <= time.Second, "told after %s, want at once", took)
			got := states["id-Pizza-House"]
			check.That(t, got.Reason == contracts.ReasonProviderError, "told %+v of the place, want that there is no answer", got)
			wantStatus(t, states["id-Sushi-Bar"], contracts.StatusFound)
			letter := deadLetter(t, i)
			check.That(t, letter.Reason == c.reason, "dead letter is %s (%s), want %s", letter.Reason, letter.Error, c.reason)
			i.wantJobs(t, 2)
			elapse(61 * time.Second)
			i.ask(t, "req-2", []contracts.Restaurant{place("Pizza House")})
			wantStatus(t, i.outcomes(t, "req-2")["id-Pizza-House"], contracts.StatusFound)
		})
	}
}

// TestAbandonLeavesOthersAlone: a job is dead-lettered while somebody works on its place for another job, or has answered.
func TestAbandonLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	settled := worker.Settlement{Info: worker.Info{ID: "another", Subject: "jobs.enrich." + pizzaKey}, Outcome: worker.OutcomeDead}
	claim := check.Must(i.flight.Begin(t.Context(), pizzaKey, flight.BeginOptions{Fingerprint: "pizza house"}))(t)
	i.Settled(settled)
	i.background.Wait()
	check.Is(t, claim.Renew(t.Context(), time.Minute), nil)
	check.OK(t, claim.HandOff(t.Context(), time.Minute))
	settled.Outcome = worker.OutcomeRetried
	i.Settled(settled)
	i.background.Wait()
	entry, err := i.flight.Get(t.Context(), pizzaKey)
	check.That(t, err == nil && entry.State == flight.Pending, "after a retry the entry is %v, %v, want pending", entry.State, err)
	writes := check.Must(i.js.Conn().SubscribeSync("$KV." + contracts.BucketEnrich + "." + pizzaKey))(t)
	settled.Outcome = worker.OutcomeDead
	i.Settled(settled)
	i.background.Wait()
	for range 2 { // the place is never free meanwhile: a process with a subscriber would queue its job again
		msg, err := writes.NextMsg(patience)
		check.Require(t, err == nil && msg.Header.Get("KV-Operation") == "", "%v: %v", msg, err)
	}
	entry, err = i.flight.Get(t.Context(), pizzaKey)
	check.That(t, err == nil && entry.State == flight.Done, "a claim that nobody will resume is %v, %v, want an end", entry.State, err)
	check.Is(t, i.abandon(t.Context(), pizzaKey, "another"), flight.ErrTaken) // of which Settled says nothing
	for _, subject := range []string{"jobs.other.x", "jobs.enrich.wolt.a b", ""} {
		i.Settled(worker.Settlement{Info: worker.Info{Subject: subject}, Outcome: worker.OutcomeDead})
	}
	i.background.Wait()
}

// TestInvalidVenue: the venues of a provider are checked before they are stored.
func TestInvalidVenue(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{search: func(_ context.Context, place match.Place) ([]provider.Venue, error) {
		return []provider.Venue{{Place: place, ID: "v", URL: "javascript:alert(1)"}}, nil
	}})
	i.work(t)
	i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
	got := i.outcomes(t, "req-1")["id-Pizza-House"]
	check.That(t, got.Reason == contracts.ReasonProviderError && got.URL == nil, "told %+v, want no answer", got)
}

// A job is a CloudEvent under the id of its claim.
func TestJobIsACloudEvent(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &far{})
	i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
	stream, err := i.js.Stream(t.Context(), contracts.StreamEnrichJobs)
	check.OK(t, err)
	msg := check.Must(stream.GetLastMsgForSubject(t.Context(), "jobs.enrich."+pizzaKey))(t)
	for field, want := range map[string]string{
		"Nats-Msg-Id": i.log.events("wolt_lock_acquired")[0]["claim"], "ce-type": contracts.CloudEventEnrichRequested, "ce-source": "/enricher",
	} {
		check.Same(t, fmt.Sprintf("header %s", field), msg.Header.Get(field), want)
	}
}

// TestProgressGoesThroughEventIDs for every number of places around the bounds of a byte.
func TestProgressGoesThroughEventIDs(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for n := range 18 {
		p := progress{nonce: "abcd1234", published: make([]published, n)}
		for i := range p.published {
			p.published[i] = published(random.IntN(3))
		}
		q := progress{nonce: p.nonce, published: make([]published, n)}
		check.Require(t, q.resume(p.eventID()), "%d places: refused", n)
		diff := cmp.Diff(p.published, q.published)
		check.That(t, diff == "", "%d places (-want +got):\n%s", n, diff)
		want := !slices.Contains(p.published, publishedNothing)
		check.That(t, p.complete() == want, "%v is complete: %t, want %t", p.published, p.complete(), want)
		grown := progress{nonce: p.nonce, published: make([]published, n+9)}
		check.Require(t, grown.resume(p.eventID()), "%d places and 9 more: refused", n)
		diff = cmp.Diff(append(slices.Clone(p.published), make([]published, 9)...), grown.published)
		check.That(t, diff == "", "%d places and 9 more (-want +got):\n%s", n, diff)
		check.That(t, !grown.complete(), "%d places and 9 more are complete", n)
	}
}

func TestProgressRefusesForeignIDs(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", ".", "abcd1234", "other.AA", "abcd1234.AAAA", "abcd1234.?", "abcd1234.A", "abcd1234.AA==", "abcd1234.AA.AA", ".AA"} {
		p := progress{nonce: "abcd1234", published: make([]published, 3)}
		check.That(t, !p.resume(id), "%q was accepted", id)
		diff := cmp.Diff(make([]published, 3), p.published)
		check.That(t, diff == "", "%q left something behind:\n%s", id, diff)
	}
}

// FuzzResume: no id, wherever it comes from, breaks anything or tells more than it can.
func FuzzResume(f *testing.F) {
	f.Add("abcd1234.AA", 3)
	f.Add("abcd1234.__8", 9)
	f.Add("abcd1234.", 0)
	f.Add("?", 100)
	f.Fuzz(func(t *testing.T, id string, n int) {
		if n < 0 || n > 1000 {
			return
		}
		p := progress{nonce: "abcd1234", published: make([]published, n)}
		if !p.resume(id) {
			return
		}
		for i, state := range p.published {
			check.That(t, state <= publishedAnswer, "place %d is %d", i, state)
		}
		q := progress{nonce: p.nonce, published: make([]published, n)}
		if !q.resume(p.eventID()) || !slices.Equal(p.published, q.published) {
			t.Errorf("%q became %q, which is %v, want %v", id, p.eventID(), q.published, p.published)
		}
	})
}

// FuzzReadState: the value of an entry is a valid state or an error.
func FuzzReadState(f *testing.F) {
	for _, value := range []string{
		`{"status":"FOUND","url":"https://wolt.com/x","updatedAt":"2026-02-03T12:00:00Z"}`, `{"status":"NOT_FOUND","url":null}`,
		`{"status":"PENDING","url":null,"outcome":"AMBIGUOUS"}`, `{"status":"FOUND","url":null}`, `null`, `[]`, ``,
	} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		state, err := contracts.ReadState(value)
		if err != nil {
			return
		}
		err = state.Validate()
		check.That(t, err == nil, "%q became %+v: %v", value, state, err)
	})
}

// TestReadState reads the plain cache entry of the document, and values that this service writes.
func TestReadState(t *testing.T) {
	t.Parallel()
	link := "https://wolt.com/en/isr/tel-aviv/restaurant/pizza-house"
	for value, want := range map[string]contracts.ProviderState{
		`{"status":"FOUND","url":"` + link + `","updatedAt":"2026-02-03T12:00:00Z"}`: contracts.FoundState(link),
		`{"status":"NOT_FOUND","url":null}`:                                          contracts.NotFoundState(),
		`{"status":"PENDING","url":null,"outcome":"ERROR"}`:                          {Status: contracts.StatusPending, Reason: contracts.ReasonProviderError},
		`{"status":"PENDING","url":null,"outcome":"AMBIGUOUS","score":"?"}`:          {Status: contracts.StatusPending, Reason: contracts.ReasonAmbiguous},
	} {
		got, err := contracts.ReadState([]byte(value))
		diff := cmp.Diff(want, got)
		check.That(t, diff == "" && err == nil, "%s: %v (-want +got):\n%s", value, err, diff)
	}
}

// TestJitter: answers that were found together do not expire together, and each is kept for a time within its bounds.
func TestJitter(t *testing.T) {
	t.Parallel()
	s := &Service{cfg: Config{FoundTTL: 100 * time.Second, NotFoundTTL: time.Second}}
	seen := map[time.Duration]bool{}
	for range 1000 {
		d := s.ttl(contracts.OutcomeFound)
		check.Require(t, d >= 90*time.Second && d <= 110*time.Second && d%time.Second == 0,
			"FOUND is kept for %s, want 90 s to 110 s in whole seconds", d)
		seen[d] = true
		d = s.ttl(contracts.OutcomeNotFound)
		check.Require(t, d == time.Second, "a second became %s: the shortest TTL there is", d)
	}
	check.That(t, len(seen) >= 10, "only %d different TTLs", len(seen))
	for _, o := range []contracts.Outcome{contracts.OutcomeAmbiguous, contracts.OutcomeError} {
		check.Same(t, fmt.Sprintf("%s is kept for", o), s.ttl(o), time.Minute)
	}
}

func TestLookups(t *testing.T) {
	t.Parallel()
	req := contracts.EnrichRequest{CityText: "Haifa", Results: []contracts.Restaurant{
		{PlaceID: "a", Name: "A"}, {PlaceID: "b/..*>", Name: "B", CityText: "Akko"}, {PlaceID: "a", Name: " a"}, {PlaceID: "a", Name: "Another"},
	}}
	list := check.Must(lookups(req, "req-1", []string{"wolt", "yelp"}))(t)
	type row struct {
		Key, Name, City, Request string
		Results                  []int
	}
	var got []row
	for _, x := range list {
		got = append(got, row{x.key(), x.job.Name, x.job.CityText, x.job.RequestID, x.results})
	}
	want := []row{
		{"wolt.a", "A", "Haifa", "req-1", []int{0, 2}},
		{"yelp.a", "A", "Haifa", "req-1", []int{0, 2}},
		{"wolt.=Yi8uLio-", "B", "Akko", "req-1", []int{1}},
		{"yelp.=Yi8uLio-", "B", "Akko", "req-1", []int{1}},
		{"wolt.a", "Another", "Haifa", "req-1", []int{3}},
		{"yelp.a", "Another", "Haifa", "req-1", []int{3}},
	}
	check.Equal(t, want, got)
	check.Failsf(t, check.Err(lookups(req, "req-1", []string{"not a name"})), "a provider that is no token was taken")
}

func TestConfigReportsEverything(t *testing.T) {
	t.Parallel()
	err := Config{
		ClaimTTL: time.Millisecond, FoundTTL: -1, LeaseTTL: 1500 * time.Millisecond, MemoryBytes: -2,
	}.Validate()
	check.Contains(t, err, "ClaimTTL", "FoundTTL", "LeaseTTL", "MemoryBytes")
}
