// Package recordtest makes clients of records for tests.
package recordtest

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Client returns a client of records, and closes it at the end of the test.
func Client(t testing.TB, js jetstream.JetStream) *kvrecord.Client {
	t.Helper()
	records := check.Must(kvrecord.New(kvrecord.Config{JetStream: js}))(t)
	t.Cleanup(records.Close)
	return records
}

// Open connects to a server, makes its streams and buckets, and returns a client of their records.
func Open(t testing.TB, srv *natsrun.Server, opts ...nats.Option) (jetstream.JetStream, *kvrecord.Client) {
	t.Helper()
	_, js := natstest.Connect(t, srv, opts...)
	assets := contracts.Assets(contracts.AssetOptions{MaxBytes: 2 << 30})
	check.OK(t, check.Err(provision.Apply(t.Context(), js, assets, provision.Options{})))
	return js, Client(t, js)
}
