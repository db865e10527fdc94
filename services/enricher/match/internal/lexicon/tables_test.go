package lexicon

import (
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
)

// TestOneMeaningEach checks that no word of a table stands in two of its lines: the later would win in silence.
func TestOneMeaningEach(t *testing.T) {
	t.Parallel()
	for name, table := range map[string]string{"names": namesText, "addresses": addressesText} {
		lastOf := map[string]int{}
		n := 0
		for heading, words := range lines(table) {
			n++
			for _, w := range words {
				k := heading + ": " + key(w)
				before, ok := lastOf[k]
				check.That(t, !ok || before == n || shared[key(w)], "%s: %q stands in the lines %d and %d", name, k, before, n)
				lastOf[k] = n
			}
		}
	}
}

// shared are words of two meanings in one table. The later is the more usual.
var shared = map[string]bool{"an": true, "as": true, "ter": true}

// TestWordsCanBeFound checks that every word of the tables is one that a folded text can contain.
func TestWordsCanBeFound(t *testing.T) {
	t.Parallel()
	look := func(table, w string) {
		check.That(t, text.Fold(w) == w && !strings.ContainsAny(w, " .-'") && w != "", "%s: no text contains %q", table, w)
	}
	for w := range names() {
		look("names", w)
	}
	for w := range addresses() {
		look("addresses", w)
	}
	for w := range streetNames() {
		look("street names", w)
	}
	for _, table := range []map[string]string{numbers(), ordinals(), cities()} {
		for w := range table {
			look("numbers and cities", w)
		}
	}
}

// TestRoman reads every numeral below forty and nothing else.
func TestRoman(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for n := 1; n < 40; n++ {
		numeral := roman(n)
		got, ok := Roman(numeral)
		check.That(t, !seen[got] && ok != (numeral == "i"), "%s is %s, %v", numeral, got, ok)
		seen[got] = true
	}
	for _, w := range []string{"", "i", "iiii", "vv", "ic", "vix", "iix", "xxxx", "xl", "mix", "vin", "xxxxxxxx"} {
		got, ok := Roman(w)
		check.That(t, !ok, "%q is %s", w, got)
	}
}

func TestStreetName(t *testing.T) {
	t.Parallel()
	for meaning, words := range map[string]string{
		"independence": "עצמאות העצמאות استقلال независимости", "king": "המלך ملك rey король", "peace": "השלום שלום мира ειρηνησ",
		"university": "جامعه πανεπιστημιου", "prophets": "נביאים הנביאים", "red": "красная rouge",
	} {
		for w := range strings.FieldsSeq(meaning + " " + words) {
			check.Equal(t, StreetName(text.Fold(w)), meaning, fmt.Sprintf("%s means", w))
		}
	}
	for _, w := range []string{"", "dizengoff", "הרצל", "herzl", "din", "арбат", "ה"} {
		check.Equal(t, StreetName(w), "", fmt.Sprintf("%q means", w))
	}
}

func TestBrandNumbers(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/brands.tsv") {
		for _, number := range row[1:] {
			digits := strings.Map(func(r rune) rune {
				if unicode.IsDigit(r) {
					return r
				}
				return -1
			}, number)
			if got := BrandNumber(digits); got != (row[0] == "brand") {
				t.Errorf("%s: %q\t%v", row[0], row[1:], got)
			}
		}
	}
}
