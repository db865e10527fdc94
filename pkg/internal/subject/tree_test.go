package subject_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/internal/subject"
)

// A tree finds a pattern exactly where one matches.
func TestTreeFindsWhatMatches(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	name := func(tokens ...string) string {
		parts := make([]string, 1+random.IntN(4))
		for i := range parts {
			parts[i] = tokens[random.IntN(len(tokens))]
		}
		return strings.Join(parts, ".")
	}
	matched := 0
	for range 2000 {
		var tree subject.Tree[string]
		var patterns []string
		for range random.IntN(6) {
			pattern := name("a", "b", "*")
			if random.IntN(3) == 0 {
				pattern += ".>"
			}
			tree.Add(pattern, pattern)
			patterns = append(patterns, pattern)
		}
		to := name("a", "b", "c", "")
		found, ok := tree.Find(to)
		want := false
		for _, pattern := range patterns {
			want = want || subject.Matches(pattern, to)
		}
		if ok != want || ok && !subject.Matches(found, to) {
			t.Fatalf("seed %d: of %q, %q falls under %q: %v, want %v", seed, patterns, to, found, ok, want)
		}
		if ok {
			matched++
		}
	}
	if matched < 200 {
		t.Errorf("seed %d: only %d subjects fell under a pattern", seed, matched)
	}
}

// The handlers of a worker cost each job the same, however many there are.
func BenchmarkTree(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("%d patterns", n), func(b *testing.B) {
			var tree subject.Tree[int]
			for i := range n {
				tree.Add(fmt.Sprintf("jobs.kind%d.>", i), i)
			}
			to := fmt.Sprintf("jobs.kind%d.one.two", n-1)
			b.ReportAllocs()
			for b.Loop() {
				if at, ok := tree.Find(to); !ok || at != n-1 {
					b.Fatal(at, ok)
				}
			}
		})
	}
}
