package alerts

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/enricher/provider/wolt/wolttest"
)

const jobs = contracts.StreamEnrichJobs

// provider starts a far side of enrichers.
func (s *site) provider() *wolttest.Server {
	s.Helper()
	far, err := wolttest.Start(wolttest.Config{})
	check.OK(s, err)
	s.Cleanup(func() { check.Is(s, far.Close(), nil) })
	return far
}

// enricher starts one.
func (s *site) enricher(far *wolttest.Server, nats string) *program {
	s.Helper()
	return s.start("enricher", "NATS_URL="+nats, "ENRICHER_LISTEN=ADDRESS", "ENABLE_WOLT_ENRICHMENT=true", "ENRICHER_WOLT_RATE=100",
		"ENRICHER_WOLT_URL="+far.URL())
}

// places is a request for n places that were not asked for before.
func (s *site) places(n int) string {
	places := make([]string, n)
	for i := range places {
		s.asked++
		places[i] = fmt.Sprintf(`{"placeId":"%d","name":"Kitchen %[1]d","cityText":"Tel Aviv"}`, s.asked)
	}
	return `{"results":[` + strings.Join(places, ",") + `]}`
}

// edit changes the configuration of a stream.
func (s *site) edit(js jetstream.JetStream, stream string, change func(*jetstream.StreamConfig)) jetstream.Stream {
	s.Helper()
	found, err := js.Stream(s.Context(), stream)
	check.OK(s, err)
	cfg := found.CachedInfo().Config
	change(&cfg)
	check.OK(s, check.Err(js.UpdateStream(s.Context(), cfg)))
	return found
}

// enricherFaults are those of a far side, of instances, and of streams.
func enricherFaults(s *site) {
	srv, far := crash.StartServer(s), s.provider()
	_, js := natstest.ConnectURL(s, srv.URL)
	s.apply(srv.URL)
	network := crash.NewNetwork(s, srv.URL)
	well, killed := s.enricher(far, srv.URL), s.enricher(far, srv.URL)
	frozen, cut := s.enricher(far, srv.URL), s.enricher(far, network.URLs)
	s.watch(map[string][]*program{"enricher": {well, killed, frozen, cut}})
	fill := func(bucket string, most, size int) { // until it is full
		for n := range most {
			if check.Err(js.Publish(s.Context(), fmt.Sprintf("$KV.%s.%d-%d", bucket, size, n), make([]byte, size))) != nil {
				return
			}
		}
	}
	ask := func(n int) { check.Same(s, "status", s.post(well.address+"/v1/enrich", s.places(n)), http.StatusOK) }
	s.meanwhile = func() { ask(1) } // else the breaker lets a call through after 30 seconds, and there is none
	s.suffer(fault{"the provider fails", func() {
		far.FailAlways(wolttest.Status(http.StatusInternalServerError))
		ask(20)
	}, []string{"DeadLettersGrow", "FarSideHeld", "JobsFail"}, func() {
		far.Recover()
		s.await(false, "FarSideHeld")
		s.expediter("dead", "replay", "--server", srv.URL, "--job-stream", jobs, "--yes")
	}})

	var queue jetstream.Stream
	var stranded uint64
	s.suffer(fault{"instances are killed, frozen and cut off, workers are stopped, a message is stranded, streams fill", func() {
		s.expediter("jobs", "pause", "--server", srv.URL, "--stream", jobs, contracts.EnrichJobsSubjects)
		ask(1)
		queue = s.edit(js, jobs, func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "jobs.nobody") })
		ack, err := js.Publish(s.Context(), "jobs.nobody", nil)
		check.OK(s, err)
		stranded = ack.Sequence
		fill(contracts.BucketRequests, 11, 99_000)
		fill(contracts.BucketRequests, 11, 9_900)
		fill(contracts.BucketJobs, 9, 99_000)
		killed.Kill()
		frozen.Pause()
		network.Cut(crash.ToServer, crash.ToClient)
	}, append(atLength("JobsLate", "ServerSilent of "+cut.address),
		"ServiceDown of "+killed.address, "ServiceDown of "+frozen.address, "NATSUnreachable of "+cut.address,
		"JobsNotWorked", "JobsStranded", "ServiceNotReady of "+well.address, "StreamFilling", "StreamFull",
	), func() {
		killed.restart()
		frozen.restart()
		network.Heal()
		s.expediter("jobs", "resume", "--server", srv.URL, "--stream", jobs, contracts.EnrichJobsSubjects)
		check.OK(s, queue.DeleteMsg(s.Context(), stranded))
		for _, bucket := range []string{contracts.BucketRequests, contracts.BucketJobs} {
			s.edit(js, "KV_"+bucket, func(c *jetstream.StreamConfig) { c.MaxBytes *= 2 })
		}
	}})
}
