package natstest

import (
	"context"
	"testing"

	"github.com/expediter-io/expediter/pkg/jsretry"
)

// UntilAnswered asks a cluster until it answers, and returns the answer: nil or
// a refusal. While the nodes elect a leader, which a busy machine may make them
// do at any time, requests get lost or are refused (jsretry.Transient). What ask
// does must bear repetition: a lost answer does not mean that nothing was done.
// The test fails after two minutes.
func UntilAnswered(t testing.TB, ask func(ctx context.Context) error) error {
	t.Helper()

	err := jsretry.Do(t.Context(), patience, ask)
	if jsretry.Transient(err) {
		t.Fatalf("no answer within %s: %v", patience, err)
	}

	return err
}
