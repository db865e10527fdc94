package enricher

import (
	"context"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// slow is a provider that answers when it is released.
type slow struct {
	named

	released chan struct{}
}

func (s slow) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	select {
	case <-s.released:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return s.named.Search(ctx, place)
}

// Each of the seven log events of a request is in the log at the level debug, and those of a normal hit or miss are not in
// the log otherwise.
func TestLogEvents(t *testing.T) {
	t.Parallel()
	for level, want := range map[string]string{
		"":      "enqueue_skipped job_enqueued lock_acquired lock_failed",
		"debug": "cache_hit cache_miss enqueue_skipped job_enqueued lock_acquired lock_failed lock_skipped",
	} {
		t.Run("level "+level, func(t *testing.T) {
			t.Parallel()
			log := eventsLogged(t, level)
			var seen []string
			for _, event := range []string{
				"cache_hit", "cache_miss", "enqueue_skipped", "job_enqueued", "lock_acquired", "lock_failed", "lock_skipped",
			} {
				if strings.Contains(log, `"event":"wolt_`+event+`"`) {
					seen = append(seen, event)
				}
			}
			if got := strings.Join(seen, " "); got != want {
				t.Errorf("the log has %s, want %s:\n%s", got, want, log)
			}
		})
	}
}

// eventsLogged returns the log of an enricher in which every event happens.
func eventsLogged(t *testing.T, level string) string {
	t.Helper()
	log, far := &buffer{}, slow{named: "wolt", released: make(chan struct{})}
	cfg := config()
	check.OK(t, service.Read(name, map[string]string{"ENRICHER_LOG_LEVEL": level}, log, &cfg))
	cfg.Providers = []provider.Provider{far}
	nc, js := natstest.Connect(t, natstest.Server(t))
	e := begin(t, nc, cfg)
	ask := func(place string, waitMS int) {
		t.Helper()
		check.OK(t, check.Err(e.Enrich(t.Context(), contracts.EnrichRequest{Results: []contracts.Restaurant{restaurant(place)}, WaitMS: waitMS})))
	}
	ask("A", 0) // a miss: the place is claimed, its job is queued
	ask("A", 0) // the place is claimed already
	close(far.released)
	ask("A", 30_000)
	ask("A", 0) // a hit
	stream, err := js.Stream(t.Context(), "KV_"+contracts.BucketEnrich)
	check.OK(t, err)
	sealed := stream.CachedInfo().Config
	sealed.Sealed = true
	check.OK(t, check.Err(js.UpdateStream(t.Context(), sealed)))
	ask("B", 0) // no place can be claimed
	check.Is(t, e.Stop(), nil)
	return log.String()
}
