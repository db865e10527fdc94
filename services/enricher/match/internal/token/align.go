package token

import (
	"strings"

	"github.com/expediter-io/expediter/services/enricher/match/internal/phonetic"
)

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
