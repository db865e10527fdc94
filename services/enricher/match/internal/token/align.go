package token

import (
	"math/bits"

	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
)

// The costs of an alignment. A consonant that has no partner costs one.
const (
	costConsonant  = 1.0
	costGlide      = 0.35 // y, w: half vowels
	costNear       = 0.35 // p for f, s for z
	costSilent     = 0.1
	costVowel      = 0.25 // between scripts that write vowels
	costUnwritten  = 0.03 // a vowel beside a script that does not write it
	costSeldom     = 0.06 // a vowel that the script leaves out less often than others
	costVowels     = 0.15 // one vowel for one that sounds much like it
	costOther      = 0.4  // one vowel for any other
	costMater      = 0.3  // a vowel sign of a script that leaves most vowels out
	costRound      = 0.35 // the sign of o and u, which is seldom written without the sound
	costUnround    = 0.16 // an o or u beside a script that writes most of them, without a sign
	costWrongMater = 0.25 // a vowel sign beside a vowel that it does not stand for
	costEdge       = 0.2  // more for a vowel at either end of a word, which every script writes
	costEnd        = 0.35 // a vowel at the end of a word beside a script that writes few
	costInitial    = 0.25 // more when the first sound differs
)

// near lists the phonemes that are heard or written for one another.
var near = func() (table [32]Sound) {
	pairs := [][2]Sound{
		{pP, pB},
		{pP, pF},
		{pB, pV},
		{pF, pV},
		{pV, pW},
		{pT, pD},
		{pK, pG},
		{pK, pKh},
		{pKh, pH},
		{pG, pGh},
		{pGh, pKh},
		{pG, pH},
		{pS, pZ},
		{pS, pSh},
		{pS, pTs},
		{pZ, pTs},
		{pZ, pZh},
		{pZh, pJ},
		{pZh, pSh},
		{pSh, pCh},
		{pTs, pCh},
		{pJ, pCh},
		{pJ, pG},
		{pJ, pY},
		{pM, pN},
	}
	for i := range table {
		for _, p := range pairs {
			if p[0] == 1<<i {
				table[i] |= p[1]
			}
			if p[1] == 1<<i {
				table[i] |= p[0]
			}
		}
	}
	return table
}()

// mater reports whether a sound is written by a vowel sign that stands for some vowels only.
func (s Sound) mater() bool { return s&sign != 0 }

// nearVowel returns the vowels that are heard or written in place of the vowels of a sound.
func nearVowel(s Sound) (out Sound) {
	for _, p := range [][2]Sound{{pA, pO | pU}, {pE, pI}, {pI, pE}, {pO, pU | pA}, {pU, pO | pA}} {
		if s&p[0] != 0 {
			out |= p[1]
		}
	}
	return out
}

func around(s Sound) Sound {
	var out Sound
	for ; s != 0; s &= s - 1 {
		out |= near[bits.TrailingZeros32(uint32(s))]
	}
	return out
}

// Row is a word ready to be aligned.
type Row struct {
	// Sounds are the sounds of the word.
	Sounds []Sound
	// Weight is the number of consonants that are heard.
	Weight int
	// Vowels is the number of vowels that are heard.
	Vowels int
	near   []Sound
	reach  Sound // every phoneme that has a partner here at less than full cost
}

// NewRow prepares sounds for SoundSimilarity.
func NewRow(sounds []Sound) Row {
	if len(sounds) > MaxSounds {
		sounds = sounds[:MaxSounds]
	}
	r := Row{Sounds: sounds, Weight: Weight(sounds), near: make([]Sound, len(sounds))}
	for i, s := range sounds {
		r.near[i] = around(s & phonemes)
		r.reach |= s&phonemes | r.near[i]
		if s&silent == 0 && s&vowels != 0 {
			r.Vowels++
		}
	}
	return r
}

// AtLeast returns the SoundSimilarity of two words, or zero when it is below least, which is above zero. It is faster than
// SoundSimilarity, because consonants without a partner decide most pairs.
func AtLeast(a, b Row, written Vowels, least float64) float64 {
	allowed := (1 - least) * max(float64(max(a.Weight, b.Weight)), 0.3*float64(max(len(a.Sounds), len(b.Sounds))), 1)
	if float64(a.lonely(b.reach)) > allowed || float64(b.lonely(a.reach)) > allowed {
		return 0
	}
	if s := SoundSimilarity(a, b, written); s >= least {
		return s
	}
	return 0
}

// lonely returns the number of consonants that have no partner in any alignment.
func (r *Row) lonely(reach Sound) int {
	n := 0
	for _, s := range r.Sounds {
		if s&(silent|vowels) == 0 && s&^glides != 0 && s&reach == 0 {
			n++
		}
	}
	return n
}

// Vowels names the vowels that both scripts of a pair write.
type Vowels uint8

// The sets of vowels that both scripts of a pair can write.
const (
	// AllVowels means that both scripts write all vowels.
	AllVowels Vowels = iota
	// RoundVowels means that one script writes only o and u, and other vowels at the end of a word: Hebrew.
	RoundVowels
	// LongVowels means that one script writes only long vowels: Arabic.
	LongVowels
)

// VowelsOf returns the vowels that both scripts write.
func VowelsOf(a, b text.Script) Vowels {
	switch {
	case a == text.Arabic || b == text.Arabic:
		return LongVowels
	case a == text.Hebrew || b == text.Hebrew:
		return RoundVowels
	}
	return AllVowels
}

// SoundSimilarity returns how alike two words sound, in [0,1]: one less the cost of the best alignment per heard consonant.
// written has the vowels that both scripts write. It is symmetric and does not allocate.
func SoundSimilarity(a, b Row, written Vowels) float64 {
	if len(a.Sounds) == 0 || len(b.Sounds) == 0 {
		return 0
	}
	var rows [2][MaxSounds + 1]float64
	var gaps [MaxSounds]float64
	last, row := &rows[0], &rows[1]
	for j, s := range b.Sounds {
		gaps[j] = alone(s, written, j == 0, j == len(b.Sounds)-1)
		last[j+1] = last[j] + gaps[j]
	}
	for i, s := range a.Sounds {
		gap := alone(s, written, i == 0, i == len(a.Sounds)-1)
		row[0] = last[0] + gap
		for j, t := range b.Sounds {
			together := last[j] + pair(s, t, a.near[i], written)
			if i == 0 && j == 0 && together > costVowels {
				together += costInitial
			}
			row[j+1] = min(together, last[j+1]+gap, row[j]+gaps[j])
		}
		last, row = row, last
	}
	// A row without consonants needs a weight above zero.
	weight := max(float64(max(a.Weight, b.Weight)), 0.3*float64(max(len(a.Sounds), len(b.Sounds))), 1)
	return max(0, 1-last[len(b.Sounds)]/weight)
}

// Compound returns the similarity in sound of a word and two words spoken as one, or zero when it is below least. It
// does not allocate.
func Compound(a, b, c Row, written Vowels, least float64) float64 {
	weight := b.Weight + c.Weight
	if len(b.Sounds) == 0 || len(c.Sounds) == 0 || a.Weight-weight > 1 || weight-a.Weight > 1 {
		return 0
	}
	var joined [MaxSounds]Sound
	n := copy(joined[:], b.Sounds)
	n += copy(joined[n:], c.Sounds)
	return AtLeast(a, Row{Sounds: joined[:n], Weight: weight, reach: b.reach | c.reach}, written, least)
}

// cost returns the cost of a vowel without a partner.
func (v Vowels) cost() float64 {
	if v == AllVowels {
		return costVowel
	}
	return costUnwritten
}

// often returns the vowels that the script writes more often than others, though not always: i in Hebrew, o and u in
// Arabic.
func (v Vowels) often() Sound {
	return [...]Sound{AllVowels: 0, RoundVowels: pI, LongVowels: pO | pU}[v]
}

// alone returns the cost of a sound without a partner.
func alone(s Sound, written Vowels, first, last bool) float64 {
	switch {
	case written != AllVowels && s.mater():
		cost := costMater
		if s&(pO|pU) != 0 {
			cost = costRound
		}
		if last {
			cost += costEdge
		}
		return cost
	case s&silent != 0:
		return min(costSilent, written.cost())
	case s&vowels != 0:
		return loneVowel(s, written, first, last)
	case s&^glides == 0:
		return costGlide
	}
	return costConsonant
}

// loneVowel returns the cost of a vowel without a partner.
func loneVowel(s Sound, written Vowels, first, last bool) float64 {
	vowel := written.cost()
	switch {
	case written != AllVowels && last && s&pE == 0:
		return costEnd
	case first || last && s&pE == 0:
		return vowel + costEdge
	case last: // an e that is often not said
		return min(costSilent, vowel)
	case written == RoundVowels && s.round():
		return costUnround
	case s&^written.often() == 0:
		return costSeldom
	}
	return vowel
}

// round reports whether a sound is an o or u and nothing else.
func (s Sound) round() bool { return s&(pO|pU) != 0 && s&^(pO|pU) == 0 }

// pair returns the cost of two sounds side by side.
func pair(s, t, nearS Sound, written Vowels) float64 {
	switch {
	case s&t&phonemes != 0:
		return 0
	case s&vowels != 0 && t&vowels != 0:
		return pairOfVowels(s, t, written)
	case nearS&t != 0:
		return costNear
	}
	return costConsonant * 1.2
}

// pairOfVowels returns the cost of two different vowels side by side.
func pairOfVowels(s, t Sound, written Vowels) float64 {
	switch {
	case written != AllVowels && (s.mater() || t.mater()):
		sign := s.mater() && s&(pO|pU) != 0 || t.mater() && t&(pO|pU) != 0
		if sign || (s|t)&pI != 0 && (s.round() || t.round()) { // an o or u would have its own sign
			return costRound
		}
		return costWrongMater
	case nearVowel(s)&t != 0:
		return min(costVowels, written.cost())
	}
	return costOther
}

// classes lists, in the order in which they are tried, the classes of phonemes that scripts confuse, each with a
// letter for the class.
var classes = []struct {
	letter byte
	set    Sound
}{
	{'b', pP | pB | pF | pV},
	{'k', pK | pG | pKh | pGh},
	{'s', pS | pZ | pSh | pZh | pTs | pCh | pJ},
	{'t', pT | pD},
	{'n', pM | pN},
	{'l', pL},
	{'r', pR},
}

// maxSkeletons bounds the readings of one word, because every ambiguous letter doubles them.
const maxSkeletons = 4

// Skeletons returns the consonant classes of a word in each plausible reading, the plainest first, for finding
// candidates across scripts. Vowels, h, y and w are left out, and sounds that may be silent in one reading. A short skeleton shows little:
// use it to look, not to decide.
func Skeletons(row []Sound) []string {
	if len(row) == 0 {
		return nil
	}
	out := []string{""}
	for _, s := range row {
		if s&vowels != 0 {
			continue
		}
		var read [3]byte
		n := 0
		if s&silent != 0 {
			n++ // read[0] adds nothing
		}
		for _, c := range classes {
			if s&c.set != 0 && n < len(read) {
				read[n] = c.letter
				n++
			}
		}
		if n == 1 && s&silent == 0 && s&(pH|glides) != 0 { // het is h as often as kh, and h is left out
			n++
		}
		out = extend(out, read[:n])
	}
	return out
}

// extend adds each reading of a sound to each skeleton, as far as the bound allows. Zero is a reading that adds nothing.
func extend(skeletons []string, letters []byte) []string {
	if len(letters) == 0 {
		return skeletons
	}
	if len(letters)*len(skeletons) > maxSkeletons {
		letters = letters[:1]
	}
	out := make([]string, 0, len(letters)*len(skeletons))
	for _, l := range letters {
		for _, s := range skeletons {
			if l == 0 || s != "" && s[len(s)-1] == l {
				out = append(out, s)
				continue
			}
			out = append(out, s+string(l))
		}
	}
	return out
}
