package enricher

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
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
				if err != nil || room != (answer.Pending == 0) || (answer.Skipped == contracts.SkippedStoreFull) != unrecorded {
					t.Errorf("room %t: %+v, %v", room, answer, err)
				}
			}
		})
	}
}
