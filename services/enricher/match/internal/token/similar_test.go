package token_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/token"
)

// TestJaroWinkler holds the values that Winkler published, and runes of more than one byte.
func TestJaroWinkler(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want float64
	}{
		{"MARTHA", "MARHTA", 0.961},
		{"DWAYNE", "DUANE", 0.840},
		{"DIXON", "DICKSONX", 0.813},
		{"DIXON", "DIXON", 1},
		{"ABC", "XYZ", 0},
		{"", "", 0},
		{"", "A", 0},
		{"A", "A", 1},
		{"שלום", "שלומ", 0.883},
		{"ロシア", "ロシヤ", 0.822},
	} {
		got := token.JaroWinkler([]rune(test.a), []rune(test.b))
		check.That(t, !(math.Abs(got-test.want) > 0.001), "JaroWinkler(%q, %q) = %.4f, want %.3f", test.a, test.b, got, test.want)
	}
}

func TestEdits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b        string
		limit, want int
	}{
		{"kitten", "sitting", 5, 3},
		{"kitten", "sitting", 2, 3},
		{"cheesecake", "cheeseckae", 2, 1},
		{"abc", "abc", 0, 0},
		{"abc", "abd", 0, 1},
		{"", "abc", 5, 3},
		{"abcdefgh", "a", 2, 3},
		{"שווארמה", "שוארמה", 2, 1},
	} {
		got := token.Edits([]rune(test.a), []rune(test.b), test.limit)
		check.That(t, got == test.want, "Edits(%q, %q, %d) = %d, want %d", test.a, test.b, test.limit, got, test.want)
	}
}

// TestEditsAgainstThePlainTable compares with the textbook recursion on random strings.
func TestEditsAgainstThePlainTable(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 7))
	word := func() []rune {
		w := make([]rune, r.IntN(7))
		for i := range w {
			w[i] = rune('a' + r.IntN(3))
		}
		return w
	}
	for range 2000 {
		a, b := word(), word()
		want := plain(a, b)
		got := token.Edits(a, b, 10)
		check.Require(t, got == want, "Edits(%q, %q) = %d, want %d", string(a), string(b), got, want)
		got = token.Edits(a, b, 1)
		check.Require(t, got == min(want, 2), "Edits(%q, %q, 1) = %d, want %d", string(a), string(b), got, min(want, 2))
		x, y := token.JaroWinkler(a, b), token.JaroWinkler(b, a)
		check.Require(t, !(math.Abs(x-y) > 1e-12) && !(x < 0) && !(x > 1), "JaroWinkler(%q, %q) = %v and %v", string(a), string(b), x, y)
	}
}

// plain is the optimal string alignment distance by its definition.
func plain(a, b []rune) int {
	if len(a) == 0 || len(b) == 0 {
		return len(a) + len(b)
	}
	cost := 1
	if a[len(a)-1] == b[len(b)-1] {
		cost = 0
	}
	best := min(plain(a[:len(a)-1], b)+1, plain(a, b[:len(b)-1])+1, plain(a[:len(a)-1], b[:len(b)-1])+cost)
	if len(a) > 1 && len(b) > 1 && a[len(a)-1] == b[len(b)-2] && a[len(a)-2] == b[len(b)-1] {
		best = min(best, plain(a[:len(a)-2], b[:len(b)-2])+1)
	}
	return best
}
