package importer_test

import (
	"net/http"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer"
)

// A file that a full store refuses is answered by a problem of its own, and is taken when there is room.
func TestAFullStoreIsNamedAndOvercome(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"KV_" + contracts.BucketImportJobs, "KV_" + contracts.BucketImportSteps, contracts.StreamImportJobs} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			i, nc := start(t, natstest.Server(t))
			js := check.Must(jetstream.New(nc))(t)
			full := check.Must(js.Stream(t.Context(), stream))(t)
			body, contentType := form(t, "owner_id", "ada", "@fluffy-pancakes.en.vtt", captions)
			submit := func(bytes int64) (reply, string) {
				config := full.CachedInfo().Config
				config.MaxBytes = bytes
				check.OK(t, check.Err(js.UpdateStream(t.Context(), config)))
				return call(t, http.MethodPost, i.URL()+"/v1/imports", body, "Content-Type", contentType, "Idempotency-Key", "k")
			}
			answer, text := submit(1)
			if answer.StatusCode != http.StatusInsufficientStorage || decode[struct{ Code string }](t, text).Code != "STORE_FULL" ||
				answer.Header.Get("Retry-After") == "" {
				t.Errorf("%d %s", answer.StatusCode, text)
			}
			answer, text = submit(1 << 26)
			check.Require(t, answer.StatusCode/100 == 2, "again: %d %s", answer.StatusCode, text)
			check.Same(t, "it ended as", followed(t, i, decode[importer.Job](t, text).JobID).Status, contracts.ImportReady)
		})
	}
}
