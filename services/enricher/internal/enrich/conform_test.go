package enrich

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/pkg/worker/workertest"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

const conformJobs = 20

// TestWorkConforms puts the handler of look-ups through what happens to a worker in production. The effect of a job is
// the result in its slot; the provider is where the suite takes hold of it.
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
