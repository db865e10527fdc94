package phonetic

import "math/bits"

// The costs of an alignment. A consonant that has no partner costs one.
const (
	costConsonant = 1.0
	costGlide     = 0.35 // y, w: half vowels
	costNear      = 0.35 // p for f, s for z
	costSilent    = 0.1
	costVowel     = 0.25 // between scripts that write vowels
	costUnwritten = 0.03 // a vowel beside a script that does not
	costVowels    = 0.15 // one vowel for another
	costInitial   = 0.25 // more when the first sound differs
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
	// Weight is how many of them are consonants that are heard.
	Weight int
	// Vowels is how many of them are vowels that are heard.
	Vowels int
	near   []Sound
	reach  Sound // every phoneme that has a partner here at less than full cost
}

// NewRow prepares sounds for Similarity.
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

// AtLeast returns Similarity when it is at least least, which is above zero, and zero otherwise. It is quicker, because
// consonants without any partner decide most pairs.
func AtLeast(a, b Row, unwritten bool, least float64) float64 {
	allowed := (1 - least) * max(float64(max(a.Weight, b.Weight)), 0.3*float64(max(len(a.Sounds), len(b.Sounds))), 1)
	if float64(a.lonely(b.reach)) > allowed || float64(b.lonely(a.reach)) > allowed {
		return 0
	}
	if s := Similarity(a, b, unwritten); s >= least {
		return s
	}
	return 0
}

// lonely counts the consonants that cost one whatever they are aligned with.
func (r *Row) lonely(reach Sound) int {
	n := 0
	for _, s := range r.Sounds {
		if s&(silent|vowels) == 0 && s&^glides != 0 && s&reach == 0 {
			n++
		}
	}
	return n
}

// Similarity returns how alike two words sound, in [0,1]: one less the cost of the best alignment per heard consonant.
// Unwritten reports that at least one of the scripts leaves vowels out. It is symmetric and does not allocate.
func Similarity(a, b Row, unwritten bool) float64 {
	if len(a.Sounds) == 0 || len(b.Sounds) == 0 {
		return 0
	}
	return similarity(a, b.Sounds, b.Weight, unwritten)
}

// Compound returns how alike a word sounds to two words said as one when that is at least least, and zero otherwise. It
// does not allocate.
func Compound(a, b, c Row, unwritten bool, least float64) float64 {
	weight := b.Weight + c.Weight
	if len(a.Sounds) == 0 || len(b.Sounds) == 0 || len(c.Sounds) == 0 || a.Weight-weight > 1 || weight-a.Weight > 1 {
		return 0
	}
	sounds := len(b.Sounds) + len(c.Sounds)
	allowed := (1 - least) * max(float64(max(a.Weight, weight)), 0.3*float64(max(len(a.Sounds), sounds)), 1)
	if float64(a.lonely(b.reach|c.reach)) > allowed || float64(b.lonely(a.reach)+c.lonely(a.reach)) > allowed {
		return 0
	}
	var joined [MaxSounds]Sound
	n := copy(joined[:], b.Sounds)
	n += copy(joined[n:], c.Sounds)
	if s := similarity(a, joined[:n], weight, unwritten); s >= least {
		return s
	}
	return 0
}

func similarity(a Row, b []Sound, weightB int, unwritten bool) float64 {
	vowel := costVowel
	if unwritten {
		vowel = costUnwritten
	}
	var rows [2][MaxSounds + 1]float64
	var gaps [MaxSounds]float64
	last, row := &rows[0], &rows[1]
	for j, s := range b {
		gaps[j] = alone(s, vowel)
		last[j+1] = last[j] + gaps[j]
	}
	for i, s := range a.Sounds {
		gap := alone(s, vowel)
		row[0] = last[0] + gap
		for j, t := range b {
			together := last[j] + pair(s, t, a.near[i], vowel)
			if i == 0 && j == 0 && together > costVowels {
				together += costInitial
			}
			row[j+1] = min(together, last[j+1]+gap, row[j]+gaps[j])
		}
		last, row = row, last
	}
	// A row of vowels only still has to weigh something.
	weight := max(float64(max(a.Weight, weightB)), 0.3*float64(max(len(a.Sounds), len(b))), 1)
	return max(0, 1-last[len(b)]/weight)
}

// alone is the cost of a sound without a partner.
func alone(s Sound, vowel float64) float64 {
	switch {
	case s&silent != 0:
		return min(costSilent, vowel)
	case s&vowels != 0:
		return vowel
	case s&^glides == 0:
		return costGlide
	}
	return costConsonant
}

// pair is the cost of two sounds side by side.
func pair(s, t, nearS Sound, vowel float64) float64 {
	switch {
	case s&t&phonemes != 0:
		return 0
	case s&vowels != 0 && t&vowels != 0:
		return min(costVowels, vowel)
	case nearS&t != 0:
		return costNear
	}
	return costConsonant * 1.2
}
