// Package token compares single words: equal, in one concept, misspelt, abbreviated, or alike in sound, across the Latin, Cyrillic,
// Greek, Hebrew, Arabic, Georgian and Armenian scripts.
//
// For its sound a word becomes a row of sounds. A sound is a set of phonemes, because most letters stand for several (Hebrew bet is b
// or v, Latin ch is tsh, kh, sh or k), with a mark when the letter is often silent or a mere vowel sign. Two rows are
// aligned by an edit distance: sets with a common phoneme cost nothing, neighbours (p and f, s and z) cost a part, and
// vowels cost next to nothing when one of the scripts leaves them out. Digraphs are read before any vowel is dropped.
package token

import (
	"slices"
	"strings"

	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
)

// Token is a word with all that comparing it needs.
type Token struct {
	// Text is the folded word.
	Text string
	// Concept is the same for words of one meaning. It is "#" and the value for a number, and empty for a word that is
	// not in the tables.
	Concept string
	Runes   []rune
	Script  text.Script
	Row     Row
	// Spelled has the sounds of the names of the letters of a short Latin word: "TBC" is spoken "tee bee cee".
	Spelled Row
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
		t.Row = NewRow(Of(w.Raw, w.Script))
	}
	if n := len(t.Runes); w.Script == text.Latin && n >= 2 && n <= 4 {
		t.Spelled = NewRow(Spelled(t.Text))
	}
	return t
}

// numeral reports whether the word is a number in letters, whose concept is "#" and its value.
func (t *Token) numeral() bool { return t.Concept != "" && t.Concept[0] == '#' }

// The least likeness that counts, and the value of each kind of likeness relative to equality.
const (
	plural     = 0.95
	leastEdit  = 0.74
	leastSound = 0.78
	leastShort = 0.92 // for a word of few consonants
	soundWorth = 0.9  // for words of one script, which could have been spelled the same
	byInitial  = 0.6
	prefix     = 0.8
)

// Similarity returns how likely two words are one word, in [0,1]. It is zero for a likeness that may be an accident.
// It is symmetric and does not allocate.
func Similarity(a, b *Token) float64 {
	if a.Text == b.Text || a.Concept != "" && a.Concept == b.Concept {
		return 1
	}
	if a.digits || b.digits || a.numeral() && b.numeral() {
		return 0
	}
	if a.Script != b.Script {
		return sound(a, b, VowelsOf(a.Script, b.Script))
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
	return soundWorth * sound(a, b, VowelsOf(a.Script, a.Script))
}

// spelling compares two words of one script, the shorter first.
func spelling(a, b []rune) float64 {
	n, m := len(a), len(b)
	if n == 1 {
		if m > 1 && a[0] == b[0] {
			return byInitial * 0.5
		}
		return 0
	}
	starts := n > 2 && m > n && slices.Equal(b[:n], a)
	if m == n+1 && variant(a, b) {
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
		if d := Edits(a, b, limit); d <= limit {
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

// variant reports whether the longer of two words has one rune more that does not change it: an s at its end, the e of a vowel that
// another spelling writes as one letter ("broed", "brød"), or the Hebrew or Arabic "and" before it.
func variant(a, b []rune) bool {
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	switch {
	case !slices.Equal(a[i:], b[i+1:]):
		return false
	case b[i] == 'e':
		return i > 0 && strings.ContainsRune("aou", b[i-1])
	}
	return len(a) > 2 && (i == len(a) && b[i] == 's' || i == 0 && strings.ContainsRune("וو", b[i]))
}

// sound compares two words by sound. A word of few consonants has to sound exactly alike.
func sound(a, b *Token, written Vowels) float64 {
	if !a.Script.Sounded() || !b.Script.Sounded() {
		return 0
	}
	least := leastSound
	if min(a.Row.Weight, b.Row.Weight) < 2 {
		least = leastShort
	}
	alike := AtLeast(a.Row, b.Row, written, least)
	if a.Script == b.Script {
		return alike
	}
	return max(alike, AtLeast(a.Spelled, b.Row, written, leastShort), AtLeast(a.Row, b.Spelled, written, leastShort))
}

// Comparable reports whether words of two scripts can be compared at all.
func Comparable(a, b text.Script) bool {
	return a == b || a == text.None || b == text.None || a.Sounded() && b.Sounded()
}

// Limit is the number of words of a text that take part in an alignment.
const Limit = 16

// Alignment reports which words of two texts are one word.
type Alignment struct {
	// PartnerA has, for each word of the first text, the index of its partner in the second, or -1. PartnerB has the
	// reverse.
	PartnerA, PartnerB [Limit]int8
	// LikenessA and LikenessB have the similarity of each word of the text and its partner.
	LikenessA, LikenessB [Limit]float64
}

// Align pairs the words of two texts, the most alike first, each at most once. Two neighbouring words may together be one
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
	al.PartnerA[i], al.PartnerB[j] = int8(j), int8(i)
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

// compound returns how likely a word is two other words written as one. It compares letters in one script, and sounds
// in two.
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
	return Compound(a.Row, b.Row, c.Row, VowelsOf(a.Script, b.Script), least)
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

// Longest is the number of runes of each string that JaroWinkler and Edits look at.
const Longest = 64

// JaroWinkler returns the Jaro-Winkler similarity of two strings in [0,1]: 1 for equal strings, 0 when they share no rune
// in reach. Prefix scale 0.1, at most four runes of prefix, as in Winkler 1990. It does not allocate.
func JaroWinkler(a, b []rune) float64 {
	a, b = a[:min(len(a), Longest)], b[:min(len(b), Longest)]
	if len(a) == 0 || len(b) == 0 {
		return 0
	}
	jaro := jaro(a, b)
	prefix := 0
	for prefix < 4 && prefix < len(a) && prefix < len(b) && a[prefix] == b[prefix] {
		prefix++
	}
	return jaro + 0.1*float64(prefix)*(1-jaro)
}

func jaro(a, b []rune) float64 {
	reach := max(max(len(a), len(b))/2-1, 0)
	var takenA, takenB uint64 // one bit a rune
	matches := 0
	for i, r := range a {
		for j := max(0, i-reach); j <= min(len(b)-1, i+reach); j++ {
			if b[j] == r && takenB&(1<<j) == 0 {
				takenA |= 1 << i
				takenB |= 1 << j
				matches++
				break
			}
		}
	}
	if matches == 0 {
		return 0
	}
	m := float64(matches)
	half := float64(transposed(a, b, takenA, takenB)) / 2
	return (m/float64(len(a)) + m/float64(len(b)) + (m-half)/m) / 3
}

// transposed counts the matched runes that stand in another order.
func transposed(a, b []rune, takenA, takenB uint64) int {
	n, j := 0, 0
	for i, r := range a {
		if takenA&(1<<i) == 0 {
			continue
		}
		for takenB&(1<<j) == 0 {
			j++
		}
		if r != b[j] {
			n++
		}
		j++
	}
	return n
}

// Edits returns the number of insertions, deletions, substitutions and swaps of neighbours that turn a into b (optimal
// string alignment), or limit+1 when the number is larger than limit. It does not allocate.
func Edits(a, b []rune, limit int) int {
	a, b = a[:min(len(a), Longest)], b[:min(len(b), Longest)]
	if d := len(a) - len(b); d > limit || -d > limit {
		return limit + 1
	}
	a, b = trim(a, b)
	if limit == 1 && max(len(a), len(b)) > 2 { // both ends differ, and more than one swap lies between
		return 2
	}
	var rows [3][Longest + 1]int
	before, last, row := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		best := i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, before[j-2]+1)
			}
			row[j] = d
			best = min(best, d)
		}
		if best > limit {
			return limit + 1
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], limit+1)
}

// trim drops the common prefix and suffix, which need no edit.
func trim(a, b []rune) (restA, restB []rune) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}
