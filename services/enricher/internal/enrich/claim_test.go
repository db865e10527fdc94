package enrich

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/retry"
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
			i := newInstance(t, srv, &fakeProvider{})
			req := contracts.EnrichRequest{CityText: "Haifa", Results: []contracts.Restaurant{place("Pizza House")}}
			all := check.Must(lookups(req, "r", i.names))(t)
			call, end := i.claims.join(all[0].key() + "\n" + all[0].fingerprint)
			check.Require(t, end != nil, "somebody claims already")
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
				end()
			}
			wantStatus(t, state(t, <-answer, 0), c.status)
			wantTook(t, began, 0, answerTime)
			reasons := i.log.reasons()
			check.That(t, len(reasons) == 1 && reasons[0] == c.reason, "skipped for %q, want %s", reasons, c.reason)
			check.Equal(t, len(i.log.events("wolt_lock_acquired")), 0, "claims were taken")
		})
	}
}

// TestTTL: how long a claim and each outcome are kept, to the second, by when the server lets them go.
func TestTTL(t *testing.T) {
	const week, day = 7 * 24 * time.Hour, 24 * time.Hour
	for name, c := range map[string]struct {
		provider    *fakeProvider
		least, most time.Duration
	}{
		"FOUND":     {&fakeProvider{}, week * 9 / 10, week * 11 / 10},
		"NOT_FOUND": {&fakeProvider{search: noVenue}, day * 9 / 10, day * 11 / 10},
		"AMBIGUOUS": {&fakeProvider{search: twoVenues}, time.Minute, time.Minute},
		"ERROR":     {&fakeProvider{search: failTimes(1000, errBroken)}, time.Minute, time.Minute},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			i := newInstance(t, srv, c.provider, forgets)
			stop := i.work(t)
			somewhere := place("Pizza House")
			somewhere.Address = ""
			i.ask(t, "req-1", []contracts.Restaurant{somewhere})
			reason := i.outcomes(t, "req-1")["id-Pizza-House"].Reason
			stop()
			check.Equal(t, reason, map[string]string{"AMBIGUOUS": "ambiguous", "ERROR": "provider_error"}[name], "reason")
			entry := check.Must(i.flight.Get(t.Context(), "wolt.id-Pizza-House"))(t)
			results, err := i.Results(t.Context(), "wolt", contracts.EnrichRequest{Results: []contracts.Restaurant{somewhere, place("unknown")}})
			r := results["id-Pizza-House"]
			check.That(t, err == nil && len(results) == 1 && string(r.Outcome) == name && r.Matcher != "", "results are %+v, %v", results, err)
			check.That(t, entry.TTL >= c.least && entry.TTL <= c.most, "kept for %s, want %s to %s", entry.TTL, c.least, c.most)
			stream := check.Must(i.js.Stream(t.Context(), "KV_"+contracts.BucketEnrich))(t)
			stored := check.Must(stream.GetLastMsgForSubject(t.Context(), "$KV."+contracts.BucketEnrich+"."+entry.Key))(t)
			server := check.Must(time.ParseDuration(stored.Header.Get(jetstream.MsgTTLHeader)))(t)
			check.That(t, server >= entry.TTL && server <= entry.TTL+time.Second, "the server keeps it for %s, want %s", server, entry.TTL)
			if entry.TTL > 2*day { // the server ends it as it ends the others; the timers of a week take a second
				return
			}
			natstest.Pass(entry.TTL - entry.Age() - time.Second)
			entry, err = i.flight.Get(t.Context(), entry.Key)
			check.That(t, err == nil && entry.State == flight.Done, "a second before its time it is %v, %v", entry.State, err)
			natstest.Pass(2 * time.Second)
			entry, err = i.flight.Get(t.Context(), entry.Key)
			check.That(t, err == nil && entry.State == flight.Absent, "a second after its time it is %v, %v", entry.State, err)
		})
	}
	natstest.RunBubble(t, "claim", func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv, &fakeProvider{})
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		entry, err := i.flight.Get(t.Context(), "wolt.id-Pizza-House")
		check.That(t, err == nil && entry.State == flight.Pending && entry.TTL == time.Minute, "claim is %+v, %v, want one of 60 s", entry, err)
		natstest.Pass(time.Minute + time.Second)
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
		"wrong type":       {[]byte(`{"provider":7}`), worker.ReasonUndecodable},
		"no claim":         {alter(func(j *contracts.EnrichJob) { j.Claim = "../../x" }), worker.ReasonDiscarded},
		"unknown provider": {alter(func(j *contracts.EnrichJob) { j.Provider = "yelp" }), worker.ReasonDiscarded},
		"long id":          {alter(func(j *contracts.EnrichJob) { j.PlaceID = strings.Repeat("x", 10_000) }), worker.ReasonUndecodable},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			p := &fakeProvider{}
			i := newInstance(t, srv, p)
			check.OK(t, check.Err(i.js.Publish(t.Context(), "jobs.enrich."+pizzaKey, c.body)))
			i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House"), place("Sushi Bar")})
			began := time.Now()
			i.work(t)
			states := i.outcomes(t, "req-1")
			wantTook(t, began, 0, time.Second)
			got := states["id-Pizza-House"]
			check.That(t, got.Reason == "provider_error", "got %+v of the place, want that there is no answer", got)
			wantStatus(t, states["id-Sushi-Bar"], contracts.StatusFound)
			dead := deadLetter(t, i)
			check.That(t, dead.Reason == c.reason, "dead letter is %s (%s), want %s", dead.Reason, dead.Error, c.reason)
			i.wantJobs(t, 2)
			natstest.Pass(61 * time.Second)
			i.ask(t, "req-2", []contracts.Restaurant{place("Pizza House")})
			wantStatus(t, i.outcomes(t, "req-2")["id-Pizza-House"], contracts.StatusFound)
		})
	}
}

// TestAbandonLeavesOthersAlone: a job is dead-lettered while somebody works on its place for another job, or has answered.
func TestAbandonLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &fakeProvider{})
	settled := worker.Settlement{Info: worker.Info{ID: "another", Subject: "jobs.enrich." + pizzaKey}, Outcome: worker.OutcomeDead}
	claim := check.Must(i.flight.Begin(t.Context(), pizzaKey, flight.BeginOptions{Fingerprint: "pizza house"}))(t)
	i.Settled(settled)
	i.background.Wait()
	check.ErrorIs(t, claim.Renew(t.Context(), time.Minute), nil)
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
	for range 2 { // the place is never free in the meantime: a process with a subscriber would queue its job again
		msg, err := writes.NextMsg(patience)
		check.Require(t, err == nil && msg.Header.Get("KV-Operation") == "", "%v: %v", msg, err)
	}
	entry, err = i.flight.Get(t.Context(), pizzaKey)
	check.That(t, err == nil && entry.State == flight.Done, "a claim that nobody will resume is %v, %v, want an end", entry.State, err)
	check.ErrorIs(t, i.abandon(t.Context(), pizzaKey, "another"), flight.ErrTaken) // of which Settled says nothing
	for _, subject := range []string{"jobs.other.x", "jobs.enrich.wolt.a b", ""} {
		i.Settled(worker.Settlement{Info: worker.Info{Subject: subject}, Outcome: worker.OutcomeDead})
	}
	i.background.Wait()
}

// A job is a CloudEvent under the id of its claim.
func TestJobIsACloudEvent(t *testing.T) {
	t.Parallel()
	i := newInstance(t, natstest.Server(t), &fakeProvider{})
	i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
	msg, _ := queuedJob(t, i)
	for field, want := range map[string]string{
		"Nats-Msg-Id": i.log.events("wolt_lock_acquired")[0]["claim"], "ce-type": cloudEventType, "ce-source": "/enricher",
	} {
		check.Equal(t, msg.Header.Get(field), want, fmt.Sprintf("header %s", field))
	}
}

// FuzzProgress: progress goes through event ids, also to a request that has grown in the meantime; and no id, wherever it comes from,
// breaks anything or says more than it can.
func FuzzProgress(f *testing.F) {
	for n := range 18 { // around the bounds of bytes
		f.Add(strings.Repeat("\x00\x01\x02\x02\x01", n)[:n], "abcd1234.AA")
	}
	f.Add("\x02\x02", "abcd1234.__8")
	f.Add("", "?")
	f.Fuzz(func(t *testing.T, states, id string) {
		p := progress{nonce: "abcd1234", published: make([]published, len(states))}
		for i := range p.published {
			p.published[i] = published(states[i] % 3)
		}
		check.Equal(t, p.complete(), !slices.Contains(p.published, publishedNothing), p.published)
		for _, more := range []int{0, 9} {
			q := progress{nonce: p.nonce, published: make([]published, len(states)+more)}
			check.Require(t, q.resume(p.eventID()), "%q was refused", p.eventID())
			check.Equal(t, q.published, append(slices.Clone(p.published), make([]published, more)...), p.eventID())
		}
		q := progress{nonce: p.nonce, published: make([]published, len(states))}
		known := q.resume(id)
		for i, state := range q.published {
			check.That(t, state <= publishedAnswer && (known || state == publishedNothing), "%q: place %d is %d", id, i, state)
		}
	})
}

// TestReadState reads the plain cache entry of the document, and values that this service writes. A patch has the state, also in the
// deprecated field while that is written.
func TestReadState(t *testing.T) {
	t.Parallel()
	link := "https://wolt.com/en/isr/tel-aviv/restaurant/pizza-house"
	for value, want := range map[string]contracts.ProviderState{
		`{"status":"FOUND","url":"` + link + `","updatedAt":"2026-02-03T12:00:00Z"}`: {Status: contracts.StatusFound, URL: new(link)},
		`{"status":"NOT_FOUND","url":null}`:                                          {Status: contracts.StatusNotFound},
		`{"status":"PENDING","url":null,"outcome":"ERROR"}`:                          {Status: contracts.StatusPending, Reason: "provider_error"},
		`{"status":"PENDING","url":null,"outcome":"AMBIGUOUS","score":"?"}`:          {Status: contracts.StatusPending, Reason: "ambiguous"},
	} {
		got, err := readState([]byte(value))
		diff := cmp.Diff(want, got)
		check.That(t, diff == "" && err == nil, "%s: %v (-want +got):\n%s", value, err, diff)
	}
	found := contracts.ProviderState{Status: contracts.StatusFound, URL: new(link)}
	for _, c := range []struct {
		provider string
		both     bool
	}{{contracts.ProviderWolt, true}, {contracts.ProviderWolt, false}, {"yelp", true}} {
		patch := newResultPatch("r", "p", c.provider, found, c.both).Patch
		both := patch.Wolt != nil && *patch.Wolt == patch.Providers[c.provider]
		check.Equal(t, both, c.both && c.provider == contracts.ProviderWolt, "the deprecated field", c)
		check.Equal(t, patch.Providers[c.provider], found)
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
	check.Equal(t, got, want)
	check.That(t, check.Err(lookups(req, "req-1", []string{"not a name"})) != nil, "a provider that is no token was taken")
}

// counting is a remote service without venues, as it is seen from all instances: when each call came, and how many were under way.
type counting struct {
	slow time.Duration // the least time of each call

	mu    sync.Mutex
	came  []time.Time
	most  int
	under int
}

// client returns a provider that calls the service at a rate.
func (c *counting) client(t *testing.T, rate float64) *provider.Client {
	t.Helper()
	return check.Must(provider.New(provider.Config{
		Rate: rate, Transport: c, Turn: Turn(contracts.ProviderWolt), URL: "http://127.0.0.1",
	}))(t)
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.came = append(c.came, time.Now())
	c.under++
	c.most = max(c.most, c.under)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.under--
		c.mu.Unlock()
	}()
	if !retry.Sleep(r.Context(), c.slow) {
		return nil, r.Context().Err()
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(`{"venues":[]}`)),
	}, nil
}

// check fails unless in every time there were no more calls than the rate allows in it, and the burst.
func (c *counting) check(t *testing.T, gap time.Duration, burst int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortFunc(c.came, time.Time.Compare)
	for i, first := range c.came {
		for j, last := range c.came[i:] {
			allowed := burst + int(last.Sub(first)/gap) + 1
			check.Require(t, j < allowed, "%d calls in %s, want at most %d", j+1, last.Sub(first), allowed)
		}
	}
}

// TestBacklogAtTheRate has three instances look up many more places than the rate lets be looked up in the time for which a provider's
// limits are waited for; one of them may be cut off in the middle. Each place comes to its turn, without an attempt used on waiting or
// a call made in vain. The remote service never gets more calls than its rate, nor more at once than searches that may be under way.
func TestBacklogAtTheRate(t *testing.T) {
	for _, dies := range []bool{false, true} {
		natstest.RunBubble(t, fmt.Sprintf("dies=%t", dies), func(t *testing.T, srv *natsrun.Server) {
			const gap, burst, total = 6250 * time.Millisecond, 2, 100
			remote := &counting{slow: 7900 * time.Millisecond}
			var all []*instance
			var stops []func()
			var limit int
			for n := range 3 {
				client := remote.client(t, float64(time.Second)/float64(gap))
				limit = client.Limits().Searches
				i := newInstance(t, srv, client, forgets)
				i.cutOff = dies && n == 1
				stops, all = append(stops, i.work(t)), append(all, i)
			}
			began := time.Now()
			all[0].ask(t, "req-1", places(total))
			natstest.Pass(20 * time.Second)
			if dies {
				all[1].js.Conn().Close()
			}
			for id, got := range all[0].outcomes(t, "req-1") {
				check.That(t, got.Status == contracts.StatusNotFound, "%s is %+v, want NOT_FOUND", id, got)
			}
			took := time.Since(began)
			check.Require(t, took >= limitedFor, "took %s: there was no backlog", took)
			remote.check(t, gap, burst)
			check.That(t, remote.most <= limit && remote.most >= limit-1, "%d calls were under way, want %d or one less", remote.most, limit)
			var answers, searches int64
			for n, i := range all {
				stops[n]() // the subscriber may have the event before the worker has counted
				answers, searches = answers+i.Stats().Outcomes[contracts.OutcomeNotFound], searches+i.Stats().ProviderCalls
				check.Equal(t, len(i.log.events("wolt_provider_fail")), 0, "failures logged: nobody failed")
			}
			check.Equal(t, all[0].deadLetters(t), 0, "dead letters: nobody failed")
			if !dies {
				check.That(t, answers == total && searches == total && len(remote.came) == total && all[0].Stats().Jobs == total,
					"%d answers by %d searches in %d calls of %d jobs, want %d each", answers, searches, len(remote.came), all[0].Stats().Jobs, total)
			}
		})
	}
}

// oneSearch is a provider that may be asked once at a time.
type oneSearch struct{ *fakeProvider }

func (oneSearch) Limits() provider.Limits {
	return provider.Limits{Burst: 1, Gap: time.Millisecond, Searches: 1}
}

// TestPermitLostInMidSearch: the lease of the worker is deleted, so its search loses the permit, and fails for good because of
// that. No failure of the provider is logged or stored, the attempt does not count, and the place is looked up.
func TestPermitLostInMidSearch(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		begun, ended := make(chan struct{}), make(chan error, 1)
		p := oneSearch{&fakeProvider{}}
		p.search = func(ctx context.Context, place match.Place) ([]provider.Venue, error) {
			if p.total() > 1 {
				return venueOf(place)
			}
			close(begun)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil, &provider.Error{Kind: provider.KindUnsupported, Provider: contracts.ProviderWolt}
		}
		i := newInstance(t, srv, p)
		attempts := make(chan int, 10)
		i.work(t, func(c *worker.Config) { c.Hooks.Started = func(info worker.Info) { attempts <- info.Attempt } })
		i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
		<-begun
		check.OK(t, check.Must(i.js.Stream(t.Context(), "KV_"+contracts.BucketJobs))(t).Purge(t.Context()))
		err := <-ended
		check.That(t, errors.As(err, new(*worker.LimitLostError)), "the search ended with %v, want a LimitLostError", err)
		wantStatus(t, i.outcomes(t, "req-1")["id-Pizza-House"], contracts.StatusFound)
		check.Require(t, len(attempts) == 2 && p.total() == 2, "%d attempts asked %d times, want two", len(attempts), p.total())
		first, second := <-attempts, <-attempts
		check.That(t, first == 1 && second == 1, "attempts %d and %d, want the first twice", first, second)
		check.Equal(t, len(i.log.events("wolt_provider_fail")), 0, "failures logged: the provider did nothing wrong")
		check.Equal(t, i.deadLetters(t), 0, "dead letters")
	})
}

// TestBacklogLongerThanTheClaim asks for a place again after its claim has expired, twice, while its job waits: nobody
// works. The place is queued once; the worker that comes at last adopts the latest claim, and asks the provider once.
func TestBacklogLongerThanTheClaim(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		p := &fakeProvider{}
		i := newInstance(t, srv, p)
		i.ask(t, "req-0", []contracts.Restaurant{place("Pizza House")})
		began := time.Now()
		for n, at := range []time.Duration{61 * time.Second, 130 * time.Second} {
			natstest.Pass(at - time.Since(began))
			resp := i.ask(t, fmt.Sprintf("req-%d", n+1), []contracts.Restaurant{place("Pizza House")})
			wantStatus(t, state(t, resp, 0), contracts.StatusPending)
			got := len(i.log.events("wolt_lock_acquired"))
			check.Require(t, got == n+2, "%d claims were taken after %s, want %d: the earlier one has expired", got, at, n+2)
			ever, now := i.jobs(t)
			check.Require(t, ever == 1 && now == 1, "after %s %d jobs were queued and %d are, want one and the same", at, ever, now)
		}
		reasons := i.log.reasons()
		check.That(t, len(reasons) == 1 && reasons[0] == "lock_held", "skipped for %q, want that the place is queued already", reasons)
		entry := check.Must(i.flight.Get(t.Context(), pizzaKey))(t)
		check.That(t, entry.State == flight.Pending && entry.HandOff, "the latest claim is %+v, want one that the job may adopt", entry)
		i.work(t)
		for n := range 3 {
			wantStatus(t, i.outcomes(t, fmt.Sprintf("req-%d", n))["id-Pizza-House"], contracts.StatusFound)
		}
		check.Equal(t, p.total(), 1, "the provider was asked, times")
		natstest.Pass(time.Second) // the job is confirmed after the result
		ever, now := i.jobs(t)
		check.That(t, ever == 1 && now == 0, "%d jobs were queued and %d are, want one that is done", ever, now)
	})
}
