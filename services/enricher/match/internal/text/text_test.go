package text_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFold(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, want string }{
		{"", ""},
		{"  Café   CENTRAL ", "cafe central"},
		{"Weißer Löwe", "weisser lowe"},
		{"Ærø Łódź İstanbul ısı", "aero lodz istanbul isi"},
		{"ＳＵＳＨＩ　１２", "sushi 12"},
		{"שָׁלוֹם", "שלומ"},
		{"ירושלים", "ירושלימ"},
		{"ג׳ירף", "ג'ירפ"},
		{"צה״ל", "צה\"ל"},
		{"מَطــعم", "מطعم"},
		{"أحمد إبراهيم آل", "احمد ابراهيم ال"},
		{"مطعمة", "مطعمه"},
		{"کباب", "كباب"},
		{"١٢٣ ۴۵ १२", "123 45 12"},
		{"Ο ΘΑΝΆΣΗΣ Μπαϊρακτάρης", "ο θανασησ μπαιρακταρησ"},
		{"Ёлки Йод", "елки иод"},
		{"\u202babc\u202c\u200f d\u00ade", "abc de"},
		{"L’Entrecôte – Paris", "l'entrecote - paris"},
		{"が カﾞ", "が ガ"},
		{"한국", "한국"},
		{"ไทยน้ำ", "ไทยน้ํา"},
		{"a\\b\tc\nd", "a b c d"},
		{"\xff\xfeabc", "abc"},
	} {
		got := text.Fold(test.in)
		check.That(t, got == test.want, "Fold(%q) = %q, want %q", test.in, got, test.want)
	}
}

// TestFoldIsBounded checks that a long field costs no more than a short one.
func TestFoldIsBounded(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"a", "é", "ß", "銀", "שָׁ", "ﷺ"} {
		got := text.Fold(strings.Repeat(s, 100_000))
		check.That(t, len(got) <= 40*text.MaxBytes && utf8.ValidString(got), "%q: %d bytes", s, len(got))
	}
}

func TestFoldTwice(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"Café İÇ", "שָׁלוֹם ג׳", "Ο ΘΑΝΆΣΗΣ", "が한국", "½ ﬁ ㎏"} {
		once := text.Fold(s)
		twice := text.Fold(once)
		check.That(t, twice == once, "%q becomes %q, then %q", s, once, twice)
	}
}

func TestWords(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		in   string
		want []string
	}{
		{"", nil},
		{"l'orangerie", []string{"l", "orangerie"}},
		{"l ' orangerie", []string{"l", "orangerie"}},
		{"o'neill's", []string{"oneills"}},
		{"morton 's", []string{"mortons"}},
		{"dell'arte", []string{"dell", "arte"}},
		{"bel-air", []string{"bel", "air"}},
		{"p.f. chang", []string{"pf", "chang"}},
		{"t.g.i. friday's", []string{"tgi", "fridays"}},
		{"ג'ירפ צה\"ל", []string{"גירפ", "צהל"}},
		{"\"quoted\"", []string{"quoted"}},
		{"البيك", []string{"ال", "بيك"}},
		{"الف", []string{"الف"}},
		{"鼎泰豐 101", []string{"鼎", "泰", "豐", "101"}},
		{"salah ad-din", []string{"salah", "al", "din"}},
		{"ash-sharif as-salam", []string{"al", "sharif", "al", "salam"}},
		{"ed debevic", []string{"ed", "debevic"}},
		{"an-dan at-home as-", []string{"an", "dan", "at", "home", "as"}},
		{"'''", nil},
	} {
		var got []string
		for _, w := range text.Words(test.in) {
			got = append(got, w.Text)
		}
		diff := cmp.Diff(test.want, got)
		check.That(t, diff == "", "Words(%q): %s", test.in, diff)
	}
}

func TestScripts(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]text.Script{
		"abc": text.Latin, "пирог": text.Cyrillic, "ουζο": text.Greek, "חומוס": text.Hebrew, "حمص": text.Arabic, "寿": text.Other, "123": text.None,
	} {
		check.Equal(t, text.Words(text.Fold(word))[0].Script, want, fmt.Sprintf("%s is in script", word))
		check.That(t, want.Abjad() == (want == text.Hebrew || want == text.Arabic) && want.Sounded() != (want == text.Other || want == text.None),
			"script %d: abjad %v, sounded %v", want, want.Abjad(), want.Sounded())
	}
}

func FuzzWords(f *testing.F) {
	for _, s := range []string{"l'orangerie", "ג'ירף\"", "الـبيك", "鼎泰豐", "\u0301\u0301", strings.Repeat("é", 400)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		folded := text.Fold(s)
		check.Require(t, utf8.ValidString(folded), "%q is not valid", folded)
		for _, w := range text.Words(folded) {
			check.Require(t, w.Text != "" && utf8.ValidString(w.Text) && !strings.ContainsAny(w.Text, " '\""), "word %q of %q", w.Text, s)
		}
	})
}

// TestDigitsOfAllScripts checks that each run of ten decimal digits of Unicode folds to zero to nine.
func TestDigitsOfAllScripts(t *testing.T) {
	t.Parallel()
	want, last, runs := '0', rune(0), 0
	for r := rune(0x80); r <= unicode.MaxRune; r++ {
		if !unicode.Is(unicode.Nd, r) {
			continue
		}
		if r != last+1 {
			want = '0'
			runs++
		}
		got := text.Fold(string(r))
		check.That(t, got == string(want), "%U folds to %q, want %q", r, got, want)
		last, want = r, want+1
		if want > '9' {
			want = '0'
		}
	}
	check.That(t, runs >= 40, "only %d scripts have digits", runs)
}
