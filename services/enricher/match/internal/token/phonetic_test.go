package token_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
	"github.com/expediter-io/expediter/services/enricher/match/internal/token"
)

func row(word string) (token.Row, text.Script) {
	w := text.Words(text.Fold(word))
	last := w[len(w)-1]
	return token.NewRow(token.Of(last.Raw, last.Script)), last.Script
}

func similarity(a, b string) float64 {
	p, s := row(a)
	q, z := row(b)
	return token.SoundSimilarity(p, q, token.VowelsOf(s, z))
}

func TestSoundSimilarity(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/similar.tsv") {
		low, high := check.Must(strconv.ParseFloat(row[2], 64))(t), check.Must(strconv.ParseFloat(row[3], 64))(t)
		got, back := similarity(row[0], row[1]), similarity(row[1], row[0])
		check.That(t, got >= low && got <= high && back == got, "%s and %s: %.3f and %.3f, want %s to %s", row[0], row[1], got, back, row[2],
			row[3])
	}
}

func TestNothingToHear(t *testing.T) {
	t.Parallel()
	got := token.Of("寿司", text.Other)
	check.That(t, got == nil, "a script without a table sounds %v", got)
	check.Equal(t, token.SoundSimilarity(token.NewRow(nil), token.NewRow(nil), token.LongVowels), 0, "silence is alike")
	skeletons := token.Skeletons(token.Of("aeio", text.Latin))
	check.That(t, len(skeletons) == 1 && skeletons[0] == "", "vowels have skeletons %q", skeletons)
}

// alphabets are the letters of which random words are made.
var alphabets = map[text.Script][]rune{
	text.Latin: []rune("abcdefghijklmnopqrstuvwxyz'"), text.Cyrillic: []rune("абвгдежзийклмнопрстуфхцчшщъыьэюя"),
	text.Greek: []rune("αβγδεζηθικλμνξοπρστυφχψω"), text.Hebrew: []rune("אבגדהוזחטיכלמנסעפצקרשת'"), text.Arabic: []rune("ابتثجحخدذرزسشصضطظعغفقكلمنهوي"),
	text.Georgian: []rune("აბგდევზთიკლმნოპჟრსტუფქღყშჩცძწჭხჯჰ"), text.Armenian: []rune("աբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆ"),
}

func randomRow(r *rand.Rand) (token.Row, string, text.Script) {
	script := text.Latin + text.Script(r.IntN(len(alphabets)))
	letters := alphabets[script]
	word := make([]rune, 1+r.IntN(9))
	for i := range word {
		word[i] = letters[r.IntN(len(letters))]
	}
	return token.NewRow(token.Of(string(word), script)), string(word), script
}

// TestRowsOfRandomWords checks the properties of every comparison: bounds, symmetry, likeness to itself, and that
// giving up early changes nothing.
func TestRowsOfRandomWords(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	for range 20_000 {
		a, wordA, scriptA := randomRow(r)
		b, wordB, scriptB := randomRow(r)
		written := token.VowelsOf(scriptA, scriptB)
		s := token.SoundSimilarity(a, b, written)
		if s < 0 || s > 1 || s != token.SoundSimilarity(b, a, written) {
			t.Fatalf("%s and %s: %v, and %v", wordA, wordB, s, token.SoundSimilarity(b, a, written))
		}
		self := token.SoundSimilarity(a, a, written)
		check.Require(t, len(a.Sounds) == 0 || self == 1, "%s is %v like itself", wordA, self)
		got := token.AtLeast(a, b, written, 0.7)
		check.Require(t, (got == 0 || got == s) && (got != 0 || !(s >= 0.7)), "%s and %s: %v, at least 0.7 is %v", wordA, wordB, s, got)
		c, _, _ := randomRow(r)
		full, some := token.Compound(a, b, c, written, 0.01), token.Compound(a, b, c, written, 0.5)
		check.Require(t, (!(full >= 0.5) || some == full) && (!(full < 0.5) || some == 0),
			"%s and two words: %v, at least 0.5 is %v", wordA, full, some)
		check.Require(t, a.Weight <= len(a.Sounds) && len(token.Skeletons(a.Sounds)) <= 4,
			"%s weighs %d of %d sounds", wordA, a.Weight, len(a.Sounds))
	}
}

// TestCompound compares a word with two that are it when said together.
func TestCompound(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		word, first, second string
		same                bool
	}{
		{"בנימינה", "binya", "mina", true},
		{"סטרבקס", "star", "bucks", true},
		{"мясорубка", "myaso", "rubka", true},
		{"סטרבקס", "burger", "king", false},
		{"סטרבקס", "star", "light", false},
		{"א", "star", "bucks", false},
	} {
		a, s := row(test.word)
		b, _ := row(test.first)
		c, _ := row(test.second)
		got := token.Compound(a, b, c, token.VowelsOf(s, s), 0.78)
		check.That(t, (got >= 0.78) == test.same && (got == 0 || !(got < 0.78)), "%s and %s %s: %v", test.word, test.first, test.second, got)
	}
}
