package subject_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCheckPattern(t *testing.T) {
	t.Parallel()

	for pattern, want := range map[string]error{
		"a": nil, "a.b": nil, "*": nil, ">": nil, "a.*.c": nil, "a.>": nil, "a.*.>": nil,
		"": subject.ErrEmptyToken, "a.": subject.ErrEmptyToken, ".a": subject.ErrEmptyToken, "a..b": subject.ErrEmptyToken,
		"a b": subject.ErrSpace, "a\t": subject.ErrSpace, "a\x00": subject.ErrSpace, "a\x7f": subject.ErrSpace, "a.\xff": subject.ErrSpace,
		"a*": subject.ErrWildcard, "a.>.b": subject.ErrWildcard, ">a": subject.ErrWildcard, "**": subject.ErrWildcard,
	} {
		check.ErrorIs(t, subject.CheckPattern(pattern), want, pattern)
	}

	for _, bad := range []string{"*", ">", "a.*", "a*b"} {
		check.ErrorIs(t, subject.CheckLiteral(bad), subject.ErrWildcard, "literal", bad)
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		pattern, subject string
		want             bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a", "a.b", false},
		{"a.b", "a", false},
		{"a.*", "a.b", true},
		{"a.*", "a", false},
		{"a.*", "a.b.c", false},
		{"*.b", "a.b", true},
		{"a.>", "a", false},
		{"a.>", "a.b", true},
		{"a.>", "a.b.c", true},
		{">", "a", true},
		{">", "", false},
		{"*", "", false},
	} {
		got := subject.Matches(test.pattern, test.subject)
		check.That(t, got == test.want, "%q matches %q: %t, want %t", test.pattern, test.subject, got, test.want)
	}
}

// FuzzOverlap holds Overlap against Matches: two patterns overlap when a subject that is
// made from one, with its wildcards filled in, falls under the other.
func FuzzOverlap(f *testing.F) {
	f.Add("a.*", "*.b", "a.b")
	f.Add("a.>", "a.b.c", "a.b.c")
	f.Add("*", "a.>", "a")

	f.Fuzz(func(t *testing.T, a, b, literal string) {
		if subject.CheckPattern(a) != nil || subject.CheckPattern(b) != nil || subject.CheckLiteral(literal) != nil {
			t.Skip()
		}

		overlap := subject.Overlap(a, b)
		check.That(t, overlap == subject.Overlap(b, a), "%q and %q: the order matters", a, b)

		check.That(t, !subject.Matches(a, literal) || !subject.Matches(b, literal) || overlap,
			"%q falls under %q and %q, which do not overlap", literal, a, b)

		same := strings.NewReplacer("*", "x", ">", "x").Replace(a)
		check.That(t, subject.Matches(a, same), "%q does not fall under %q", same, a)
	})
}

func TestCovers(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		pattern, other string
		want           bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a", "a.b", false},
		{"a.b", "a", false},
		{"a", "*", false},
		{"a", ">", false},
		{"*", "a", true},
		{"*", "*", true},
		{"*", ">", false},
		{"*", "a.b", false},
		{"*.b", "a.*", false},
		{"a.*", "a.b", true},
		{">", "a", true},
		{">", "a.b", true},
		{">", "*", true},
		{">", ">", true},
		{"a.>", "a", false},
		{"a.>", "a.b.c", true},
		{"a.>", "a.*", true},
		{"a.>", "a.>", true},
		{"a.>", ">", false},
		{"a.*.c", "a.>", false},
		{"a.*.>", "a.b.>", true},
	} {
		got := subject.Covers(test.pattern, test.other)
		check.That(t, got == test.want, "%q covers %q: %t, want %t", test.pattern, test.other, got, test.want)
	}
}

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
		check.Require(t, ok == want && (!ok || subject.Matches(found, to)),
			"seed %d: of %q, %q falls under %q: %v, want %v", seed, patterns, to, found, ok, want)
		if ok {
			matched++
		}
	}
	check.That(t, matched >= 200, "seed %d: only %d subjects fell under a pattern", seed, matched)
}
