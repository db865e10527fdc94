package natstest

import (
	"context"
	"testing"

	"github.com/expediter-io/expediter/pkg/jsretry"
)

// UntilAnswered calls ask until the cluster answers, and returns the answer: nil or a refusal. While the nodes elect a
// leader, which can happen at any time on a busy machine, requests are lost or refused (jsretry.Transient). ask must be
// safe to repeat: a request without an answer may have been carried out. The test fails after two minutes.
func UntilAnswered(t testing.TB, ask func(ctx context.Context) error) error {
	t.Helper()

	err := jsretry.Do(t.Context(), patience, ask)
	if jsretry.Transient(err) {
		t.Fatalf("no answer within %s: %v", patience, err)
	}
	return err
}
