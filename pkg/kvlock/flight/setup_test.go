package flight_test

import (
	"context"
	"errors"
	"testing"

	_ "github.com/expediter-io/expediter/internal/testbed/fastelection" // in every server process
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

func TestMain(m *testing.M) { crash.Main(m, 2, holder) }

// wantEntry rereads a key and checks its state and value.
func wantEntry(t testing.TB, f *flight.Flight, key string, state flight.State, value string) flight.Entry {
	t.Helper()
	s := testbed.Get(t, f, key)
	check.That(t, s.State == state && string(s.Value) == value, "%s is %s with %q, want %s with %q", key, s.State, s.Value, state, value)
	return s
}

var errOven = errors.New("oven is cold")

// wantDo calls Do for key "k" and compares value and outcome.
func wantDo(t *testing.T, f *flight.Flight, fn func(context.Context) ([]byte, error), opts flight.DoOptions, want string, outcome flight.Outcome) flight.Result {
	t.Helper()
	r, err := f.Do(t.Context(), "k", fn, opts)
	check.That(t, err == nil && string(r.Value) == want && r.Outcome == outcome,
		"got %q, %s, %v; want %q, %s", r.Value, r.Outcome, err, want, outcome)
	return r
}
