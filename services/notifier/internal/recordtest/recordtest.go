// Package recordtest makes clients of records for tests.
package recordtest

import (
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// Client returns a client of records, and closes it at the end of the test.
func Client(t interface {
	Cleanup(f func())
	Fatal(args ...any)
	Helper()
}, js jetstream.JetStream,
) *kvrecord.Client {
	t.Helper()
	records, err := kvrecord.New(kvrecord.Config{JetStream: js})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(records.Close)
	return records
}
