package test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// TestMadeDeadStreamTakesWhatTheDeployedOneTakes compares the stream of dead letters that
// AutoCreate makes with the declared one. A second worker, whose letters go elsewhere, finds
// the advisories taken.
func TestMadeDeadStreamTakesWhatTheDeployedOneTakes(t *testing.T) {
	t.Parallel()

	data, err := os.ReadFile("../../../deploy/nats/streams/DEAD.json")
	check.OK(t, err)

	var declared struct {
		Subjects []string `json:"subjects"`
	}
	check.OK(t, json.Unmarshal(data, &declared))

	b := setup(t, nil)

	assertDead(t, b, "dead", declared.Subjects)
	assertDead(t, b, "graves", []string{"graves.>"})
}

func assertDead(t *testing.T, b *bundle, subject string, want []string) {
	t.Helper()

	ready := make(chan bool, 10)
	cfg := b.config(t, func(c *worker.Config) {
		c.DeadSubject, c.Hooks.Ready = subject, func(is bool, _ error) { ready <- is }
	})
	r := run(t, b.js, cfg, worker.Policy{}, complete)

	for !receive(t, ready, "the worker to be ready") {
		continue
	}

	check.OK(t, r.wait())

	s, err := b.js.Stream(t.Context(), strings.ToUpper(subject))
	check.OK(t, err)

	have := slices.Clone(s.CachedInfo().Config.Subjects)
	slices.Sort(have)
	want = slices.Clone(want)
	slices.Sort(want)

	if !slices.Equal(have, want) {
		t.Errorf("%s takes %v, want %v", subject, have, want)
	}
}

// TestMissingJobStreamIsNotAutoCreates checks the advice of an error: no worker makes the
// stream of its jobs.
func TestMissingJobStreamIsNotAutoCreates(t *testing.T) {
	t.Parallel()

	_, js := natstest.Connect(t, natstest.Server(t))
	r := run(t, js, (&bundle{js: js}).config(t), worker.Policy{}, func(context.Context, *worker.Job[order]) error { return nil })
	r.once = true
	err := receive(t, r.done, "Run to return")

	missing, ok := errors.AsType[*worker.MissingError](err)
	if !ok || missing.Asset != "stream JOBS" || strings.Contains(missing.Error(), "AutoCreate") {
		t.Errorf("%v, want stream JOBS missing, and nothing of AutoCreate", err)
	}
}
