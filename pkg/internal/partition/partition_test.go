package partition

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestJumpIsThePublishedOne has values of another implementation, Guava's Hashing.consistentHash.
func TestJumpIsThePublishedOne(t *testing.T) {
	t.Parallel()
	for key, want := range map[uint64]int{10863919174838991: 6, 2016238256797177309: 3, 1673758223894951030: 5} {
		check.Same(t, fmt.Sprintf("jump(%d, 11)", key), jump(key, 11), want)
	}
}

// TestPartitionsNeverMove has jobs that lie in streams: their keys are found where they are only as long as these values stay.
func TestPartitionsNeverMove(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string][3]int{
		"jobs.mail": {1, 1, 5}, "jobs.mail.u17": {1, 2, 62}, "jobs.mail.u18": {1, 1, 32}, "jobs.report.2026-11": {0, 3, 21},
		"jobs.=w6k": {0, 0, 59}, "jobs.a.b.c.d": {1, 1, 34}, "orders.7": {1, 3, 7},
	} {
		for i, n := range []int{2, 4, 64} {
			check.Same(t, fmt.Sprintf("Of(%q, %d)", subject, n), Of(subject, n), want[i])
		}
	}
	check.That(t, Of("jobs.mail.u17", 64) == Of("tasks.mail.u17", 64) && Of("jobs.a", 1) == 0,
		"the first token counts, or a stream without partitions has a second one")
}

// TestPartitionsAreEven wants each partition of many keys within 5 % of its share.
func TestPartitionsAreEven(t *testing.T) {
	t.Parallel()
	const keys, n = 100_000, 4
	var counts [n]int
	for i := range keys {
		counts[Of(fmt.Sprintf("jobs.mail.user-%d", i), n)]++
	}
	for p, count := range counts {
		check.That(t, count >= keys/n*95/100 && count <= keys/n*105/100, "partition %d has %d of %d keys", p, count, keys)
	}
}

// The first partition of a partition is known by its name, and a stream whose metadata say what its name does not stands for itself.
func TestFirst(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"KV_x-3": "KV_x", "KV_x": "KV_x"} {
		cfg := Division{Partitions: 4, State: Settled}.In(jetstream.StreamConfig{Name: name})
		check.Require(t, Is(cfg), "%s is no partition", name)
		check.Same(t, "the first of "+name, First(cfg), want)
	}
	check.Same(t, "the first of an undivided stream", First(jetstream.StreamConfig{Name: "JOBS-3"}), "JOBS-3")
}
