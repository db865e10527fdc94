// Package recordtest gives tests what reads and writes records.
package recordtest

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/kvrecord"
)

// Client returns a client of records that the end of the test closes.
func Client(t testing.TB, js jetstream.JetStream) *kvrecord.Client {
	t.Helper()
	records, err := kvrecord.New(kvrecord.Config{JetStream: js})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(records.Close)
	return records
}
