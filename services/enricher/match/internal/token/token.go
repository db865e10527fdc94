// Package token compares single words: equal, in one concept, misspelt, abbreviated, or alike in sound.
package token

import (
	"slices"
	"strings"

	"github.com/expediter-io/expediter/services/enricher/match/internal/phonetic"
	"github.com/expediter-io/expediter/services/enricher/match/internal/similar"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
)

// Token is a word with all that comparing it needs.
type Token struct {
	// Text is the folded word.
	Text string
	// Concept is shared by words of one meaning, "#" and the value for numbers; empty when the word has none in the tables.
	Concept string
	Runes   []rune
	Script  text.Script
	Row     phonetic.Row
	// Spelled is the row of the names of the letters, of a short Latin word: "TBC" is said "tee bee cee".
	Spelled phonetic.Row
	digits  bool
}

// New prepares a word. Concept may be empty.
func New(w text.Word, concept string) Token {
	t := Token{Text: w.Text, Concept: concept, Runes: []rune(w.Text), Script: w.Script}
	for _, r := range t.Runes {
		if r >= '0' && r <= '9' {
			t.digits = true
		}
	}
	if w.Script.Sounded() {
		t.Row = phonetic.NewRow(phonetic.Of(w.Raw, w.Script))
	}
	if n := len(t.Runes); w.Script == text.Latin && n >= 2 && n <= 4 {
		t.Spelled = phonetic.NewRow(phonetic.Spelled(t.Text))
	}
	return t
}

// numeral reports whether the word is a number in letters, whose concept is "#" and its value.
func (t *Token) numeral() bool { return t.Concept != "" && t.Concept[0] == '#' }

// The least likeness that counts, and the worth of each kind of likeness relative to equality.
const (
	plural     = 0.95
	leastEdit  = 0.74
	leastSound = 0.78
	leastShort = 0.92 // of a word with hardly a consonant
	soundWorth = 0.9  // within one script, where the spelling could have been the same
	initial    = 0.6
	prefix     = 0.8
)

// Similarity returns how likely two words are one word, in [0,1]; zero when they are alike by accident only. It is
// symmetric and does not allocate.
func Similarity(a, b *Token) float64 {
	if a.Text == b.Text || a.Concept != "" && a.Concept == b.Concept {
		return 1
	}
	if a.digits || b.digits || a.numeral() && b.numeral() {
		return 0
	}
	if a.Script != b.Script {
		return sound(a, b, phonetic.VowelsOf(a.Script, b.Script))
	}
	if len(a.Runes) > len(b.Runes) {
		a, b = b, a
	}
	if s := spelling(a.Runes, b.Runes); s > 0 {
		return s
	}
	if a.Runes[0] != b.Runes[0] && len(a.Runes) < 5 {
		return 0
	}
	return soundWorth * sound(a, b, phonetic.VowelsOf(a.Script, a.Script))
}

// spelling compares two words of one script, the shorter first.
func spelling(a, b []rune) float64 {
	n, m := len(a), len(b)
	if n == 1 {
		if m > 1 && a[0] == b[0] {
			return initial * 0.5
		}
		return 0
	}
	starts := n > 2 && m > n && slices.Equal(b[:n], a)
	if starts && m == n+1 && b[n] == 's' {
		return plural
	}
	limit := 0
	switch {
	case n >= 9:
		limit = 2
	case n >= 4:
		limit = 1
	}
	if limit > 0 {
		if d := similar.Edits(a, b, limit); d <= limit {
			if s := 1 - float64(d)/float64(m)*1.1; s >= leastEdit {
				return s
			}
		}
	}
	if starts && n >= 4 && m-n <= n+2 {
		return prefix * float64(n+2) / float64(m+2)
	}
	return 0
}

// sound compares two words by sound. A word with hardly a consonant has to sound exactly alike.
func sound(a, b *Token, written phonetic.Vowels) float64 {
	if !a.Script.Sounded() || !b.Script.Sounded() {
		return 0
	}
	least := leastSound
	if min(a.Row.Weight, b.Row.Weight) < 2 {
		least = leastShort
	}
	alike := phonetic.AtLeast(a.Row, b.Row, written, least)
	if a.Script == b.Script {
		return alike
	}
	return max(alike, phonetic.AtLeast(a.Spelled, b.Row, written, leastShort), phonetic.AtLeast(a.Row, b.Spelled, written, leastShort))
}

// Comparable reports whether words of two scripts can be compared at all.
func Comparable(a, b text.Script) bool {
	return a == b || a == text.None || b == text.None || a.Sounded() && b.Sounded()
}

// Limit is the number of words of a text that take part in an alignment.
const Limit = 16

// Alignment reports which words of two texts are one word.
type Alignment struct {
	// PartnerA gives for each word of the first text its partner in the second, or -1; PartnerB the reverse.
	PartnerA, PartnerB [Limit]int8
	// Likeness is the similarity of each word of the first text and its partner.
	LikenessA, LikenessB [Limit]float64
}

// Align pairs the words of two texts, the most alike first, each at most once; two neighbouring words may together be one
// word of the other text ("steak house" and "steakhouse"). At most Limit words of each text are read. It does not allocate.
func Align(a, b []Token) Alignment {
	a, b = a[:min(len(a), Limit)], b[:min(len(b), Limit)]
	var al Alignment
	for i := range al.PartnerA {
		al.PartnerA[i], al.PartnerB[i] = -1, -1
	}
	exact(&al, a, b)
	compounds(a, b, &al.PartnerA, &al.PartnerB, &al.LikenessA, &al.LikenessB)
	compounds(b, a, &al.PartnerB, &al.PartnerA, &al.LikenessB, &al.LikenessA)
	fuzzy(&al, a, b)
	return al
}

func (al *Alignment) pair(i, j int, s float64) {
	al.PartnerA[i], al.PartnerB[j] = int8(j), int8(i) //nolint:gosec // both are below Limit
	al.LikenessA[i], al.LikenessB[j] = s, s
}

func exact(al *Alignment, a, b []Token) {
	for i := range a {
		for j := range b {
			if al.PartnerB[j] < 0 && a[i].Text == b[j].Text {
				al.pair(i, j, 1)
				break
			}
		}
	}
}

// compounds pairs one free word of a with two free neighbours of b.
func compounds(a, b []Token, partnerA, partnerB *[Limit]int8, likeA, likeB *[Limit]float64) {
	for i := range a {
		if partnerA[i] >= 0 {
			continue
		}
		for j := range len(b) - 1 {
			if partnerB[j] >= 0 || partnerB[j+1] >= 0 {
				continue
			}
			if s := compound(&a[i], &b[j], &b[j+1]); s > 0 {
				partnerA[i], partnerB[j], partnerB[j+1] = int8(j), int8(i), int8(i)
				likeA[i], likeB[j], likeB[j+1] = s, s, s
				break
			}
		}
	}
}

// compound returns how likely a word is two others written as one: letter by letter in one script, by sound in two.
func compound(a, b, c *Token) float64 {
	if a.Script == b.Script {
		rest, ok := strings.CutPrefix(a.Text, b.Text)
		if ok && rest == c.Text {
			return 1
		}
		return 0
	}
	if !a.Script.Sounded() || !b.Script.Sounded() || b.Script != c.Script || a.Row.Weight < leastCompound {
		return 0
	}
	least := leastSound
	if a.Row.Weight == leastCompound {
		least = leastShort
	}
	return phonetic.Compound(a.Row, b.Row, c.Row, phonetic.VowelsOf(a.Script, b.Script), least)
}

// leastCompound is the number of consonants below which a compound by sound is an accident.
const leastCompound = 3

// fuzzy pairs the free words that are alike, the best pair first, so that the order of the texts does not matter.
func fuzzy(al *Alignment, a, b []Token) {
	var likeness [Limit][Limit]float64
	found := 0
	for i := range a {
		if al.PartnerA[i] >= 0 {
			continue
		}
		for j := range b {
			if al.PartnerB[j] >= 0 {
				continue
			}
			likeness[i][j] = Similarity(&a[i], &b[j])
			if likeness[i][j] > 0 {
				found++
			}
		}
	}
	for found > 0 {
		best, x, y := 0.0, -1, -1
		for i := range a {
			for j := range b {
				if al.PartnerA[i] < 0 && al.PartnerB[j] < 0 && likeness[i][j] > best {
					best, x, y = likeness[i][j], i, j
				}
			}
		}
		if x < 0 {
			return
		}
		al.pair(x, y, best)
		found--
	}
}
