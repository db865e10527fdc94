package crash_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// children returns the processes that this one has started, with their states: T is stopped.
func children(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, path := range check.Must(filepath.Glob("/proc/[0-9]*/stat"))(t) {
		data, err := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(data), ") ") // behind the name of the program
		if words := strings.Fields(rest); err == nil && len(words) > 1 && words[1] == fmt.Sprint(os.Getpid()) && words[0] != "Z" {
			all[path] = words[0]
		}
	}
	return all
}

// during injects a fault, again and again until seen returns true while it lasts.
func during(t *testing.T, f crash.Fault, seen func() bool) {
	t.Helper()
	check.Until(t, crash.Patience, f.Name, func() (found bool) {
		done := make(chan error, 1)
		go func() { done <- f.Do(t.Context(), crash.Random(t)(0)) }()
		for {
			select {
			case err := <-done:
				check.OK(t, err)
				return found
			default:
				found = found || seen()
			}
		}
	})
}

// A fault that is in the log has happened: the process is another one, or was stopped, or lost data, or leads no more. Only this test may
// have processes.
func TestFaultsHappen(t *testing.T) { //nolint:paralleltest // see above
	log, one, three := crash.NewLog(t), crash.MortalServer(t), crash.ThreeServers(t)
	js := check.Must(jetstream.New(check.Must(nats.Connect(three.URL))(t)))(t)
	t.Cleanup(js.Conn().Close)
	check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) error {
		return check.Err(js.CreateStream(ctx, jetstream.StreamConfig{Name: "ANY", Replicas: 3}))
	}))
	group := crash.NewGroup(t, log, one.URL, 2, func(_, _ string) *crash.Process { return speakers.Start(t, "ready\n") })
	const long = 100 * time.Millisecond
	lost := map[string][2]bool{
		"process cut off": {true, true}, "nothing reaches a process": {crash.ToClient: true}, "nothing comes from a process": {crash.ToServer: true},
	}
	for _, f := range slices.Concat(group.Faults(long), one.Faults(log, long, "ANY"), three.Faults(log, long, "ANY")) {
		before, leader := children(t), three.Leader(t, "ANY")
		switch {
		case strings.HasSuffix(f.Name, "frozen"):
			during(t, f, func() bool { return slices.Contains(slices.Collect(maps.Values(children(t))), "T") })
		case strings.HasSuffix(f.Name, "killed"):
			check.OK(t, f.Do(t.Context(), crash.Random(t)(0)))
			check.That(t, len(children(t)) == len(before), "%s: another number of processes", f.Name)
			maps.DeleteFunc(before, func(path, _ string) bool { return children(t)[path] != "" })
			check.Equal(t, len(before), 1, f.Name, "processes that are gone")
		case f.Name == "leader deposed":
			check.OK(t, f.Do(t.Context(), crash.Random(t)(0)))
			check.That(t, three.Leader(t, "ANY") != leader, "%s still leads", leader)
		default:
			want, ok := lost[f.Name]
			check.Require(t, ok, "%s: a fault that this test does not know", f.Name)
			during(t, f, func() bool { return slices.Contains(group.Loses(), want) })
			check.Equal(t, group.Loses(), [][2]bool{{}, {}}, f.Name, "after it")
		}
		check.That(t, !slices.Contains(slices.Collect(maps.Values(children(t))), "T"), "%s: a process is still stopped", f.Name)
	}
	group.Stop()
}
