package enricher

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/pkg/service/servicetest"
)

// Where a store is full, a request is answered all the same: its place is pending. It is found when there is room.
func TestAPlaceIsPendingWhileAStoreIsFull(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"KV_" + contracts.BucketEnrich, "KV_" + contracts.BucketRequests, contracts.StreamEnrichJobs} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			nc, js := natstest.Connect(t, natstest.Server(t))
			e := begin(t, nc, config())
			full, err := js.Stream(t.Context(), stream)
			check.OK(t, err)
			for _, room := range []bool{false, true} {
				config := full.CachedInfo().Config
				request := contracts.EnrichRequest{RequestID: "r", Results: []contracts.Restaurant{restaurant("A")}, WaitMS: 30_000}
				if !room {
					config.MaxBytes, request.WaitMS = 1, 0
				}
				check.OK(t, check.Err(js.UpdateStream(t.Context(), config)))
				answer, err := e.Enrich(t.Context(), request)
				unrecorded := !room && stream == "KV_"+contracts.BucketRequests
				check.That(t, err == nil && room == (answer.Pending == 0) && (answer.Skipped == contracts.SkippedStoreFull) == unrecorded,
					"room %t: %+v, %v", room, answer, err)
			}
		})
	}
}

// TestLongAnswers: the time that a client has to send its request does not end a stream of events, nor a request that
// waits.
func TestLongAnswers(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		nc, _ := natstest.Connect(t, srv)
		listener := servicetest.NewPipes()
		cfg := config()
		cfg.Listener = listener
		e, err := prepare(cfg)
		check.OK(t, err)
		spec := e.spec()
		spec.Open = e.answer // without a worker: the place stays pending
		e.running, err = service.Start(t.Context(), nc, spec)
		check.OK(t, err)
		client := &http.Client{Transport: &http.Transport{DialContext: listener.DialContext}}
		defer client.CloseIdleConnections()
		check.Same(t, "URL", e.URL(), "http://127.0.0.1:80")
		began := time.Now()
		answer, err := client.Post("http://localhost/v1/enrich?wait=55s", "application/json", strings.NewReader(`{"requestId":"r","results":[{"placeId":"a","name":"A"}]}`))
		check.OK(t, err)
		defer answer.Body.Close()
		took := time.Since(began)
		check.That(t, took >= 55*time.Second && took <= 56*time.Second, "answered after %s, want 55 s", took)
		resp, err := client.Get("http://localhost/v1/requests/r/events") //nolint:bodyclose // closed below
		check.OK(t, err)
		defer resp.Body.Close()
		ended := make(chan error, 1)
		go func() {
			_, err := io.Copy(io.Discard, resp.Body)
			ended <- err
		}()
		elapse(10 * time.Minute)
		select {
		case err := <-ended:
			t.Errorf("the stream has ended: %v", err)
		default:
		}
		began = time.Now()
		check.Is(t, e.Stop(), nil)
		<-ended
		took = time.Since(began)
		check.That(t, took <= time.Second, "the stop took %s, want no wait for open streams", took)
	})
}

// elapse lets fake time pass.
func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // inside a bubble only
