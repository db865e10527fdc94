package doctor

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Silence is a finding for a publisher, who has no other question, unless doctor itself ran out of time.
func TestSilenceIsAFindingForPublishers(t *testing.T) {
	t.Parallel()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		ctx    context.Context
		err    error
		user   string
		others bool
		want   bool
	}{
		"an answer":                      {t.Context(), nil, userPublisher, true, false},
		"a publisher, nobody there":      {t.Context(), nats.ErrNoResponders, userPublisher, false, true},
		"a publisher, no answer":         {t.Context(), context.DeadlineExceeded, userPublisher, false, true},
		"a publisher, out of time":       {over, context.DeadlineExceeded, userPublisher, false, false},
		"another, nobody there":          {t.Context(), nats.ErrNoResponders, "enricher", true, true},
		"another, and it is explained":   {t.Context(), nats.ErrNoResponders, "enricher", false, false},
		"another, no answer in its time": {t.Context(), context.DeadlineExceeded, "enricher", true, false},
	} {
		check.Equal(t, isUnheard(tt.ctx, tt.err, tt.user, tt.others), tt.want, name)
	}
}
