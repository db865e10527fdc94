package phonetic_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/phonetic"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
)

// alphabets are the letters of which random words are made.
var alphabets = map[text.Script][]rune{
	text.Latin: []rune("abcdefghijklmnopqrstuvwxyz'"), text.Cyrillic: []rune("абвгдежзийклмнопрстуфхцчшщъыьэюя"),
	text.Greek: []rune("αβγδεζηθικλμνξοπρστυφχψω"), text.Hebrew: []rune("אבגדהוזחטיכלמנסעפצקרשת'"), text.Arabic: []rune("ابتثجحخدذرزسشصضطظعغفقكلمنهوي"),
	text.Georgian: []rune("აბგდევზთიკლმნოპჟრსტუფქღყშჩცძწჭხჯჰ"), text.Armenian: []rune("աբգդեզէըթժիլխծկհձղճմյնշոչպջռսվտրցւփքօֆ"),
}

func randomRow(r *rand.Rand) (phonetic.Row, string, text.Script) {
	script := text.Latin + text.Script(r.IntN(len(alphabets)))
	letters := alphabets[script]
	word := make([]rune, 1+r.IntN(9))
	for i := range word {
		word[i] = letters[r.IntN(len(letters))]
	}
	return phonetic.NewRow(phonetic.Of(string(word), script)), string(word), script
}

// TestRowsOfRandomWords holds what every comparison has to: bounds, symmetry, likeness to itself, and that giving up
// early changes nothing.
func TestRowsOfRandomWords(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	for range 20_000 {
		a, wordA, scriptA := randomRow(r)
		b, wordB, scriptB := randomRow(r)
		written := phonetic.VowelsOf(scriptA, scriptB)
		s := phonetic.Similarity(a, b, written)
		if s < 0 || s > 1 || s != phonetic.Similarity(b, a, written) {
			t.Fatalf("%s and %s: %v, and %v", wordA, wordB, s, phonetic.Similarity(b, a, written))
		}
		self := phonetic.Similarity(a, a, written)
		check.Require(t, len(a.Sounds) == 0 || self == 1, "%s is %v like itself", wordA, self)
		got := phonetic.AtLeast(a, b, written, 0.7)
		check.Require(t, (got == 0 || got == s) && (got != 0 || !(s >= 0.7)), "%s and %s: %v, at least 0.7 is %v", wordA, wordB, s, got)
		c, _, _ := randomRow(r)
		full, some := phonetic.Compound(a, b, c, written, 0.01), phonetic.Compound(a, b, c, written, 0.5)
		check.Require(t, (!(full >= 0.5) || some == full) && (!(full < 0.5) || some == 0),
			"%s and two words: %v, at least 0.5 is %v", wordA, full, some)
		check.Require(t, a.Weight <= len(a.Sounds) && len(phonetic.Skeletons(a.Sounds)) <= 4,
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
		got := phonetic.Compound(a, b, c, phonetic.VowelsOf(s, s), 0.78)
		check.That(t, (got >= 0.78) == test.same && (got == 0 || !(got < 0.78)), "%s and %s %s: %v", test.word, test.first, test.second, got)
	}
}

// TestReadApart checks letters that only some languages read together.
func TestReadApart(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{"herzl", "הרצל"},
		{"knafeh", "כנאפה"},
		{"magnus", "магнус"},
		{"anglia", "англия"},
		{"edgar", "эдгар"},
		{"tami's", "תמי"},
		{"schnitzel", "שניצל"},
		{"kitsch", "китч"},
		{"tchotchke", "צ'וצ'קה"},
		{"mcdonald's", "מקדונלד'ס"},
	} {
		if got := similarity(pair[0], pair[1]); got < 0.85 {
			t.Errorf("%s and %s: %.3f", pair[0], pair[1], got)
		}
	}
}
