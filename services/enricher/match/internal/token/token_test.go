package token_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
	"github.com/expediter-io/expediter/services/enricher/match/internal/token"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func tokens(s string) []token.Token {
	var out []token.Token
	for _, w := range text.Words(text.Fold(s)) {
		out = append(out, token.New(w, ""))
	}
	return out
}

func TestSimilarity(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b      string
		low, high float64
	}{
		{"spago", "spago", 1, 1},
		{"morton", "mortons", 0.9, 0.99},
		{"cheesecake", "cheeseckae", 0.8, 0.95},
		{"hassan", "hasan", 0.8, 0.95},
		{"deli", "delicatessen", 0, 0},
		{"chin", "chan", 0, 0.9},
		{"joe", "moe", 0, 0},
		{"21", "22", 0, 0},
		{"b12", "b13", 0, 0},
		{"j", "john", 0.2, 0.4},
		{"hummus", "houmous", 0.75, 1},
		{"חסן", "hassan", 0.9, 1},
		{"חסן", "benedict", 0, 0},
		{"寿", "su", 0, 0},
		{"寿", "寿", 1, 1},
	} {
		a, b := tokens(test.a)[0], tokens(test.b)[0]
		x, y := token.Similarity(&a, &b), token.Similarity(&b, &a)
		check.That(t, !(x < test.low) && !(x > test.high) && x == y,
			"%s and %s: %.3f and %.3f, want %.2f to %.2f", test.a, test.b, x, y, test.low, test.high)
	}
}

func TestAlign(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want []int8 // partner of each word of a
	}{
		{"bel air hotel", "hotel bel air", []int8{1, 2, 0}},
		{"steakhouse", "steak house", []int8{0}},
		{"steak house", "steakhouse", []int8{0, 0}},
		{"blue moon", "blue door", []int8{0, -1}},
		{"hasan hassan", "hassan", []int8{-1, 0}},
		{"roma", "", []int8{-1}},
	} {
		al := token.Align(tokens(test.a), tokens(test.b))
		for i, want := range test.want {
			check.That(t, al.PartnerA[i] == want, "%q and %q: word %d has partner %d, want %d", test.a, test.b, i, al.PartnerA[i], want)
		}
	}
}

func TestComparable(t *testing.T) {
	t.Parallel()
	if token.Comparable(text.Latin, text.Other) || !token.Comparable(text.Latin, text.Hebrew) || !token.Comparable(text.Other, text.Other) || !token.Comparable(text.None, text.Other) {
		t.Error("which scripts can be compared has changed")
	}
}

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
