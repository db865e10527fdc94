package token_test

import (
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
