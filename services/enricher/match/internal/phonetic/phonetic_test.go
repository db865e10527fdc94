package phonetic_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/phonetic"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func row(word string) (phonetic.Row, text.Script) {
	w := text.Words(text.Fold(word))
	last := w[len(w)-1]
	return phonetic.NewRow(phonetic.Of(last.Raw, last.Script)), last.Script
}

func similarity(a, b string) float64 {
	p, s := row(a)
	q, z := row(b)
	return phonetic.Similarity(p, q, phonetic.VowelsOf(s, z))
}

func TestSimilarity(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b      string
		low, high float64
	}{
		{"ג'ירף", "giraffe", 0.9, 1},
		{"טאיזו", "taizu", 0.95, 1},
		{"מוזס", "moses", 0.9, 1},
		{"מקדונלד'ס", "mcdonalds", 0.9, 1},
		{"צ'ילי", "chili", 0.95, 1},
		{"יפו", "jaffa", 0.8, 1},
		{"ממפיס", "memphis", 0.95, 1},
		{"שווארמה", "shawarma", 0.95, 1},
		{"حسن", "hassan", 0.95, 1},
		{"شكري", "shukri", 0.95, 1},
		{"пушкинъ", "pushkin", 0.95, 1},
		{"шоколадница", "shokoladnitsa", 0.95, 1},
		{"μπαϊρακτάρης", "bairaktaris", 0.9, 1},
		{"τζιτζικας", "tzitzikas", 0.9, 1},
		{"dizengoff", "דיזנגוף", 0.95, 1},
		{"philippe", "filipe", 0.9, 1},
		{"הרצל", "herzl", 0.95, 1},
		{"מרץ", "marz", 0.95, 1},
		{"жешув", "rzeszow", 0.78, 1},
		{"כנאפה", "knafeh", 0.9, 1},
		{"книга", "kniga", 0.9, 1},
		{"מגנוס", "magnus", 0.9, 1},
		{"ניוקי", "gnocchi", 0.9, 1},
		{"גליקו", "gliko", 0.9, 1},
		{"אדגר", "edgar", 0.9, 1},
		{"באדג'ט", "budget", 0.85, 1},
		{"عبدالله", "abdullah", 0.9, 1},
		{"лайм", "lime", 0.95, 1}, // a last e, and the vowel before it
		{"сабвей", "subway", 0.95, 1},
		{"хаус", "house", 0.95, 1},
		{"вьет", "viet", 0.95, 1},
		{"кфс", "kfc", 0.95, 1}, // without vowels, c is a letter that looks so
		{"жан", "jean", 0.95, 1},
		{"жак", "jacques", 0.95, 1},
		{"райффайзен", "raiffeisen", 0.95, 1},
		{"فايف", "five", 0.95, 1},
		{"сезар", "caesar", 0.95, 1},
		{"стейшн", "station", 0.8, 1},
		{"אייסברג", "iceberg", 0.9, 1},
		{"شيك", "shake", 0.95, 1},
		{"ديبو", "depot", 0.95, 1}, // French, or as it is said
		{"קרן", "koren", 0, 0.95},  // Hebrew writes most of o and u
		{"אברהם", "ibrahim", 0, 0.9},
		{"أحمد", "hamid", 0, 0.93}, // a first alef is always said
		{"גליל", "galili", 0, 0.9}, // so is what is written at an end
		{"النهار", "alnahr", 0, 0.93},
		{"سلمان", "sulaiman", 0, 0.93},
		{"רולינג", "reeling", 0, 0.93}, // an o or u is written where it is said
		{"мома", "mama", 0, 0.94},
		{"пиканто", "piccante", 0, 0.92},
		{"פפה'ס", "pizza", 0, 0.75},
		{"קפה", "sushi", 0, 0.3},
		{"מוזס", "benedict", 0, 0.4},
		{"בני", "taizu", 0, 0.5},
		{"пушкинъ", "starbucks", 0, 0.5},
	} {
		got := similarity(test.a, test.b)
		check.That(t, !(got < test.low) && !(got > test.high), "%s and %s: %.3f, want %.2f to %.2f", test.a, test.b, got, test.low, test.high)
		x, y := similarity(test.a, test.b), similarity(test.b, test.a)
		check.That(t, x == y, "%s and %s: %v one way, %v the other", test.a, test.b, x, y)
	}
}

// TestAtLeast checks that giving up early never changes the answer.
func TestAtLeast(t *testing.T) {
	t.Parallel()
	words := []string{"giraffe", "ג'ירף", "taizu", "moses", "מוזס", "пушкин", "starbucks", "سمك", "a", "אא", "yaya", "wow", "tchotchke", "μπαρ", "aeiou", "strengths"}
	for _, a := range words {
		for _, b := range words {
			p, s := row(a)
			q, z := row(b)
			written := phonetic.VowelsOf(s, z)
			full := phonetic.Similarity(p, q, written)
			for _, least := range []float64{0.3, 0.5, 0.78, 0.92} {
				want := full
				if want < least {
					want = 0
				}
				check.Same(t, fmt.Sprintf("AtLeast(%s, %s, %v)", a, b, least), phonetic.AtLeast(p, q, written, least), want)
			}
		}
	}
}

func TestNothingToHear(t *testing.T) {
	t.Parallel()
	got := phonetic.Of("寿司", text.Other)
	check.That(t, got == nil, "a script without a table sounds %v", got)
	check.Same(t, "silence is alike", phonetic.Similarity(phonetic.NewRow(nil), phonetic.NewRow(nil), phonetic.LongVowels), 0)
	if got := phonetic.Skeletons(phonetic.Of("aeio", text.Latin)); got != nil {
		t.Errorf("vowels have skeletons %q", got)
	}
}

// TestSkeletonsMeet checks that candidates are found across scripts by an equal skeleton.
func TestSkeletonsMeet(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"ג'ירף", "giraffe"}, {"טאיזו", "taizu"}, {"חסן", "hassan"}, {"пушкин", "pushkin"}, {"מוזס", "moses"}, {"דיזנגוף", "dizengoff"}, {"בנדיקט", "benedict"}} {
		p, _ := row(pair[0])
		q, _ := row(pair[1])
		met := false
		for _, a := range phonetic.Skeletons(p.Sounds) {
			for _, b := range phonetic.Skeletons(q.Sounds) {
				met = met || a == b
			}
		}
		if !met {
			t.Errorf("%s has %q, %s has %q", pair[0], phonetic.Skeletons(p.Sounds), pair[1], phonetic.Skeletons(q.Sounds))
		}
	}
}

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
