package importer_test

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/services/importer"
)

// A file that a full store refuses is answered by a problem of its own, and is taken when there is room.
func TestAFullStoreIsNamedAndOvercome(t *testing.T) {
	t.Parallel()
	comment := make([]byte, 1<<20) // which no compression makes small
	if _, err := rand.Read(comment); err != nil {
		t.Fatal(err)
	}
	for stream, content := range map[string]string{
		"KV_" + contracts.BucketImportJobs:    captions,
		"KV_" + contracts.BucketImportSteps:   captions,
		"OBJ_" + contracts.ObjectsImportSteps: fmt.Sprintf("%s\nNOTE %x\n", captions, comment),
		contracts.StreamImportJobs:            captions,
	} {
		t.Run(stream, func(t *testing.T) {
			t.Parallel()
			i, nc := start(t, natstest.Server(t))
			js, err := jetstream.New(nc)
			if err != nil {
				t.Fatal(err)
			}
			bound := func(bytes int64) {
				s, err := js.Stream(t.Context(), stream)
				if err != nil {
					t.Fatal(err)
				}
				config := s.CachedInfo().Config
				config.MaxBytes = bytes
				if _, err := js.UpdateStream(t.Context(), config); err != nil {
					t.Fatal(err)
				}
			}
			bound(1)
			body, contentType := form(t, "owner_id", "ada", "@fluffy-pancakes.en.vtt", content)
			submit := func() (reply, string) {
				return call(t, http.MethodPost, i.URL()+"/v1/imports", body, "Content-Type", contentType, "Idempotency-Key", "k")
			}
			answer, text := submit()
			if answer.StatusCode != http.StatusInsufficientStorage || decode[struct{ Code string }](t, text).Code != "STORE_FULL" || answer.Header.Get("Retry-After") == "" {
				t.Errorf("%d %s", answer.StatusCode, text)
			}
			if stream == "OBJ_"+contracts.ObjectsImportSteps {
				return // it is taken when its claim has expired
			}
			bound(1 << 26)
			if answer, text = submit(); answer.StatusCode/100 != 2 {
				t.Fatalf("again: %d %s", answer.StatusCode, text)
			}
			if last := followed(t, i, decode[importer.Job](t, text).JobID); last.Status != contracts.ImportReady {
				t.Errorf("it ended as %+v", last)
			}
		})
	}
}
