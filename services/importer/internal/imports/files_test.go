package imports

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/source"
)

// A file is what its digest says, whatever the bucket holds.
func TestAnotherContentIsNoFile(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), contracts.ApplyOptions{})))
	s := check.Must(OpenFiles(t.Context(), js, nil, 100, time.Hour))(t)
	defer s.Close()
	check.OK(t, check.Err(s.Put(t.Context(), "soup.vtt", []byte("soup"))))
	got, err := s.Get(t.Context(), sha256.Sum256([]byte("soup")))
	check.That(t, err == nil && string(got) == "soup", "%q, %v", got, err)
	digest := sha256.Sum256([]byte("stew"))
	key := check.Must(s.keyOf(digest, s.period()))(t)
	check.OK(t, check.Err(s.flight.Do(t.Context(), key, func(context.Context) ([]byte, error) { return []byte("soup"), nil },
		flight.DoOptions{TTL: time.Hour})))
	check.Is(t, check.Err(s.Get(t.Context(), digest)), source.ErrNoFile)
}

// A file that is sent again late in its TTL is there for half of the TTL from then, and at no moment is it missing.
func TestFileIsSentAgain(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		_, js := natstest.Connect(t, srv)
		check.OK(t, check.Err(contracts.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), contracts.ApplyOptions{})))
		s := check.Must(OpenFiles(t.Context(), js, nil, 100, time.Hour))(t)
		defer s.Close()
		content := []byte("soup")
		for range 10 {
			check.OK(t, check.Err(s.Put(t.Context(), "soup.vtt", content)))
			for range 29 {
				pass(time.Minute)
				check.OK(t, check.Err(s.Get(t.Context(), sha256.Sum256(content))))
			}
			pass(30 * time.Second)
		}
		pass(time.Hour)
		check.Is(t, check.Err(s.Get(t.Context(), sha256.Sum256(content))), source.ErrNoFile)
	})
}

// pass lets fake time pass: only in a bubble.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // costs no real time there
