package health_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/health"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The record of an endpoint ends by itself, unless the endpoint is disabled: nobody calls it then.
func TestOnlyDisabledEndpointsAreKeptForLong(t *testing.T) {
	t.Parallel()
	js, records := recordtest.Open(t, natstest.Server(t))
	store := check.Must(health.Open(t.Context(), records, health.Config{DisableAfter: 1, Logger: slog.New(slog.DiscardHandler)}))(t)
	stream := check.Must(js.Stream(t.Context(), "KV_"+contracts.BucketDeliveries))(t)
	failure := &channel.Error{Channel: "push", Kind: channel.KindUnavailable}
	var last uint64
	for _, step := range []struct {
		state   health.State
		failure *channel.Error
		ends    bool
	}{{health.Failing, failure, true}, {health.Disabled, failure, false}, {health.Healthy, nil, true}} {
		call := &health.Call{Address: "at home", Channel: "push", Slots: 32, Timeout: time.Second}
		store.Admit(call)
		store.Called(t.Context(), call, channel.Message{}, step.failure)
		counts := map[health.State]int{}
		store.Counts(func(_ string, state health.State, n int) { counts[state] = n })
		n := len(counts)
		check.That(t, n <= 1 && (step.state != health.Healthy) == (counts[step.state] == 1), "%s: the counts are %v", step.state, counts)
		stored := check.Must(stream.GetLastMsgForSubject(t.Context(), "$KV."+contracts.BucketDeliveries+"./endpoint.push.*"))(t)
		ttl, err := time.ParseDuration("0" + stored.Header.Get(jetstream.MsgTTLHeader))
		check.That(t, err == nil && ttl > 0 == step.ends && stored.Sequence != last, "%s: kept for %s, %v", step.state, ttl, err)
		last = stored.Sequence
	}
}
