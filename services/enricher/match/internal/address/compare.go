package address

import (
	"github.com/expediter-io/expediter/services/enricher/match/internal/lexicon"
	"github.com/expediter-io/expediter/services/enricher/match/internal/phonetic"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
	"github.com/expediter-io/expediter/services/enricher/match/internal/token"
)

// Agreement is how two addresses compare.
type Agreement struct {
	// Comparable is false when either address is missing.
	Comparable bool
	// Street is the likeness of the street names in [0,1], negative when they cannot be compared, or when it cannot be
	// heard whether two names in different scripts are one.
	Street float64
	// Number reports how the house numbers compare.
	Number NumberAgreement
	// Heard is true when the street names are in different scripts: what they say is then known less surely.
	Heard bool
	// Opposite is true when the streets are named after opposite quarters of the compass.
	Opposite bool
}

// NumberAgreement is how two house numbers compare.
type NumberAgreement uint8

// The ways in which house numbers compare.
const (
	NumberUnknown NumberAgreement = iota
	NumberSame
	NumberNear // at most four apart: the next door or another entrance
	NumberDiffers
)

// alsoWorth is what finding a street among crossing streets and buildings counts for.
const alsoWorth = 0.85

// Compare compares two addresses. It does not allocate.
func Compare(a, b *Address) Agreement {
	if !a.Present() || !b.Present() {
		return Agreement{Street: -1}
	}
	g := Agreement{Comparable: true, Street: -1, Number: compareNumbers(a.Numbers, b.Numbers), Opposite: opposite(a.Direction, b.Direction)}
	if len(a.Street) == 0 || len(b.Street) == 0 || !token.Comparable(a.Script, b.Script) {
		return g
	}
	g.Heard = a.Script != b.Script && a.Script != text.None && b.Script != text.None
	like := likeness(a.Street, b.Street)
	if like < alsoWorth {
		like = max(like, alsoWorth*likeness(a.Street, b.Also), alsoWorth*likeness(a.Also, b.Street))
	}
	if g.Heard {
		like = heard(a, b, like)
	}
	g.Street = like
	return g
}

// The likeness in sound of the names of two streets from which they are one, and below which they are two. Between, a
// letter may have been read wrongly or a part of the name translated.
const (
	soundsSame  = 0.82
	soundsOther = 0.59
	leastHeard  = 3 // consonants that make a likeness in sound, or the lack of it, no accident
)

// heard decides for two names in different scripts, whose words are like by as much: they are one street, two, or, when
// the answer is negative, it cannot be told.
func heard(a, b *Address, like float64) float64 {
	if like >= alsoWorth {
		return like
	}
	written := phonetic.VowelsOf(a.Script, b.Script)
	whole := phonetic.Similarity(a.Row, b.Row, written)
	short := min(a.Row.Weight, b.Row.Weight) < leastHeard
	if whole >= soundsSame && !short {
		return max(like, whole)
	}
	if like > 0 { // the words that agree say nothing about the others
		whole = closest(a.Street, b.Street, written)
	}
	if like > otherLike || whole > soundsOther || short && whole > soundsOther/2 {
		return -1
	}
	return like
}

// closest returns how like in sound the words are that have no partner, at best.
func closest(a, b []token.Token, written phonetic.Vowels) float64 {
	al := token.Align(a, b)
	best := 0.0
	for i := range a {
		for j := range b {
			if al.PartnerA[i] < 0 && al.PartnerB[j] < 0 {
				best = max(best, phonetic.Similarity(a[i].Row, b[j].Row, written))
			}
		}
	}
	return best
}

// otherLike is the likeness of the words of two names that share one of two words: "King George" and "King David".
const otherLike = 0.55

// likeness weighs the words of two street names that agree against the shorter name, and a little against the longer.
func likeness(a, b []token.Token) float64 {
	if len(a) == 0 || len(b) == 0 {
		return 0
	}
	al := token.Align(a, b)
	totalA, commonA := tally(a, &al.LikenessA)
	totalB, commonB := tally(b, &al.LikenessB)
	if totalA == 0 || totalB == 0 {
		return 0
	}
	contained := max(commonA/totalA, commonB/totalB)
	overlap := (commonA + commonB) / (totalA + totalB)
	return 0.75*contained + 0.25*overlap
}

func tally(words []token.Token, like *[token.Limit]float64) (total, common float64) {
	for i := range words {
		w := 1.0
		if known, ok := lexicon.Address(words[i].Text); ok && known.Part == lexicon.Building {
			w = 0.4
		} else if len(words[i].Runes) == 1 {
			w = 0.6
		}
		total += w
		common += w * like[i]
	}
	return total, common
}

func compareNumbers(a, b []Number) NumberAgreement {
	if len(a) == 0 || len(b) == 0 {
		return NumberUnknown
	}
	best := NumberDiffers
	for _, n := range a {
		for _, m := range b {
			switch {
			case n.Low <= m.High && m.Low <= n.High:
				return NumberSame
			case n.Low-m.High <= 4 && m.Low-n.High <= 4:
				best = NumberNear
			}
		}
	}
	return best
}
