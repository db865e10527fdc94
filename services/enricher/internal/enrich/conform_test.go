package enrich

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/workertest"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

const conformJobs = 20

// TestWorkConforms runs the handler of look-ups in the conformance suite of the worker. The effect of a job is the
// result in its entry; the suite intercepts it in the provider.
func TestWorkConforms(t *testing.T) {
	workertest.Conform(t, workertest.Suite{
		Effects: conformEffects, Job: conformJob, Jobs: conformJobs, Prepare: conformPrepare, Service: conformService,
		Stream: contracts.StreamEnrichJobs,
	})
}

func conformPrepare(ctx context.Context, js jetstream.JetStream) error {
	_, err := contracts.Apply(ctx, js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), contracts.ApplyOptions{})
	return err
}

func conformPlace(n int) string { return fmt.Sprintf("kitchen-%d", n) }

// conformJob is a job whose claim has expired, which the worker takes anew.
func conformJob(n int) *nats.Msg {
	job := contracts.EnrichJob{
		Provider: contracts.ProviderWolt, PlaceID: conformPlace(n), RequestID: "r", Name: conformPlace(n), Address: fmt.Sprintf("Harbour Road %d", n+1),
		CityText: "Haifa", Claim: fmt.Sprintf("claim%017d.%d.1", n, n+1), RequestedAt: time.Now(),
	}
	subject, err := contracts.EnrichJobSubject(job.Provider, job.PlaceID)
	if err != nil {
		panic(err)
	}
	header, body, err := jobMessage(job, job.Claim)
	if err != nil {
		panic(err)
	}
	header.Set(nats.MsgIdHdr, conformPlace(n))
	return &nats.Msg{Subject: subject, Header: header, Data: body}
}

func conformService(ctx context.Context, env workertest.Env) error {
	recorded := &far{search: func(ctx context.Context, place match.Place) ([]provider.Venue, error) {
		if err := env.Recorder.Reach(ctx, place.Name); err != nil {
			return nil, err
		}
		return venueOf(place)
	}}
	s, err := New(ctx, env.JS, Config{
		Enabled: true, LeaseTTL: 2 * time.Second, Logger: env.Logger, Providers: []provider.Provider{recorded}, // a lease is waited for
	})
	if err != nil {
		return err
	}
	defer s.Close()
	w, err := worker.New(env.JS, worker.Config{
		AckWait: env.AckWait, AutoCreate: true, Bucket: contracts.BucketJobs, Consumer: "enricher", Hooks: worker.Hooks{Settled: s.Settled},
		Logger: env.Logger, Stream: contracts.StreamEnrichJobs,
	})
	if err != nil {
		return err
	}
	if err := worker.Handle(w, contracts.EnrichJobsSubjects, s.Policy(), s.Work); err != nil {
		return err
	}
	return w.Run(ctx)
}

// conformEffects counts the places that have a link.
func conformEffects(ctx context.Context, js jetstream.JetStream) (map[string]int, error) {
	s, err := New(ctx, js, Config{Enabled: true, Providers: []provider.Provider{&far{}}})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	req := contracts.EnrichRequest{CityText: "Haifa"}
	for n := range 2 * conformJobs {
		req.Results = append(req.Results, contracts.Restaurant{
			PlaceID: conformPlace(n), Name: conformPlace(n), Address: fmt.Sprintf("Harbour Road %d", n+1),
		})
	}
	results, err := s.Results(ctx, contracts.ProviderWolt, req)
	effects := map[string]int{}
	for id, r := range results {
		if r.Outcome == contracts.OutcomeFound && r.URL != nil && strings.HasSuffix(*r.URL, id) {
			effects[id] = 1
		}
	}
	return effects, err
}

// TestScenario1SingleRequest: a new place is claimed and queued, answered PENDING, looked up, and told.
func TestScenario1SingleRequest(t *testing.T) {
	t.Parallel()
	p := &far{}
	i := newInstance(t, natstest.Server(t), p)
	resp := i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
	wantStatus(t, state(t, resp, 0), contracts.StatusPending)
	check.Same(t, "pending", resp.Pending, 1)
	i.wantJobs(t, 1)
	i.work(t)
	want := map[string]contracts.ProviderState{"id-Pizza-House": contracts.FoundState(linkOf("Pizza House"))}
	check.Equal(t, want, i.outcomes(t, "req-1"))
	check.Same(t, "the provider was asked, times", p.total(), 1)
}

// TestScenario2ConcurrentRequests: of three requests for one place at the same moment, one queues the job.
func TestScenario2ConcurrentRequests(t *testing.T) {
	t.Parallel()
	p := &far{}
	i := newInstance(t, natstest.Server(t), p)
	var wg sync.WaitGroup
	for n := range 3 {
		wg.Go(func() {
			resp := i.ask(t, fmt.Sprintf("req-%d", n), []contracts.Restaurant{place("Pizza House")})
			wantStatus(t, state(t, resp, 0), contracts.StatusPending)
		})
	}
	wg.Wait()
	i.wantJobs(t, 1)
	stats := i.Stats()
	check.That(t, stats.Jobs == 1 && stats.Skipped[SkipLockHeld] == 2,
		"stats are %+v, want one job and two requests that found the lock held", stats)
	i.work(t)
	for n := range 3 {
		wantStatus(t, i.outcomes(t, fmt.Sprintf("req-%d", n))["id-Pizza-House"], contracts.StatusFound)
	}
	check.Same(t, "the provider was asked, times", p.total(), 1)
}

// TestScenario3CacheHit: places that were found, and places that were not, are answered at once, and nothing is
// claimed or queued.
func TestScenario3CacheHit(t *testing.T) {
	t.Parallel()
	p := &far{}
	i := newInstance(t, natstest.Server(t), p)
	i.work(t)
	i.ask(t, "req-1", []contracts.Restaurant{place("Pizza House")})
	i.outcomes(t, "req-1")
	resp := i.ask(t, "req-4", []contracts.Restaurant{place("Pizza House")})
	check.Equal(t, contracts.FoundState(linkOf("Pizza House")), state(t, resp, 0))
	p.search = noVenue
	i.ask(t, "req-5", []contracts.Restaurant{place("Nowhere")})
	wantStatus(t, i.outcomes(t, "req-5")["id-Nowhere"], contracts.StatusNotFound)
	resp = i.ask(t, "req-6", []contracts.Restaurant{place("Nowhere")})
	wantStatus(t, state(t, resp, 0), contracts.StatusNotFound)
	check.Same(t, "pending", resp.Pending, 0)
	i.wantJobs(t, 2)
	check.Same(t, "locks were taken", len(i.log.events("wolt_lock_acquired")), 2)
}

// TestScenario4MultiInstance: the same as two, with an instance for each request.
func TestScenario4MultiInstance(t *testing.T) {
	t.Parallel()
	p := &far{}
	srv := natstest.Server(t)
	instances := []*instance{newInstance(t, srv, p), newInstance(t, srv, p), newInstance(t, srv, p)}
	var wg sync.WaitGroup
	for n, i := range instances {
		wg.Go(func() { i.ask(t, fmt.Sprintf("req-%d", n), []contracts.Restaurant{place("Pizza House")}) })
	}
	wg.Wait()
	instances[0].wantJobs(t, 1)
	var held int64
	for _, i := range instances {
		held += i.Stats().Skipped[SkipLockHeld]
	}
	check.Same(t, "requests found the lock held", held, 2)
	instances[2].work(t)
	for n := range instances {
		other := instances[(n+1)%3] // a client may ask one instance and listen to another
		wantStatus(t, other.outcomes(t, fmt.Sprintf("req-%d", n))["id-Pizza-House"], contracts.StatusFound)
	}
	check.Same(t, "the provider was asked, times", p.total(), 1)
}

// TestManyRequests asks three instances 200 times each, at the same moment, for the same 50 new places.
func TestManyRequests(t *testing.T) {
	t.Parallel()
	const requests, nPlaces = 200, 50
	p := &far{}
	srv := natstest.Server(t)
	var wg sync.WaitGroup
	var instances []*instance
	for range 3 {
		i := newInstance(t, srv, p)
		i.work(t)
		instances = append(instances, i)
	}
	for n, i := range instances {
		for m := range requests {
			wg.Go(func() {
				states := i.until(t, fmt.Sprintf("req-%d-%d", n, m), places(nPlaces))
				for _, r := range places(nPlaces) {
					if states[r.PlaceID].Status != contracts.StatusFound {
						t.Errorf("request %d of instance %d was told %+v of %s", m, n, states[r.PlaceID], r.PlaceID)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	// There is one job for each claim. A claim whose job the queue did not acknowledge in time is given back, and the place
	// claimed again, though the queue may have the job all the same; so may be one of whose claim nobody learnt. Two jobs
	// of a place are one search.
	late := false
	for n, i := range instances {
		stats := i.Stats()
		t.Logf("instance %d: %+v", n, stats)
		late = late || stats.Skipped[SkipQueueUnavailable]+stats.Skipped[SkipLockError] > 0
	}
	ever, _ := instances[0].jobs(t)
	check.That(t, ever >= nPlaces && (ever <= nPlaces || late), "%d jobs were queued, want %d", ever, nPlaces)
	for _, r := range places(nPlaces) {
		check.Same(t, r.Name+" was searched for, times", p.count(r.Name), 1)
	}
}
