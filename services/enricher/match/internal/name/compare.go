package name

import (
	"slices"

	"github.com/expediter-io/expediter/services/enricher/match/internal/lexicon"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
	"github.com/expediter-io/expediter/services/enricher/match/internal/token"
)

// Agreement is the result of comparing two names, each number in [0,1].
type Agreement struct {
	// Comparable reports whether a script of one name can be compared with a script of the other.
	Comparable bool
	// Exact is 1 when all words but articles and kinds of place are the same.
	Exact float64
	// Overlap is the weight of the common words among all words.
	Overlap float64
	// Containment is the weight of the common words among the words of the name that is better covered.
	Containment float64
	// Joined compares the telling words written as one: Jaro-Winkler in one script, by sound in two.
	Joined float64
	// Conflict is the weight of the words that only one name has: the smaller of the two names' weights.
	Conflict float64
	// Common is 1 when only common or local words agree.
	Common float64
	// Cross is 1 when the names are in different scripts. Short is then larger, the fewer sounds there were to compare.
	Cross, Short float64
	// Untold is 1 when the names are in different scripts and each has words left over that are in no table. They sound
	// unlike, but one name may translate the other.
	Untold float64
	// NumbersSame and NumbersDiffer are 1 when both names have numbers that agree, or that do not.
	NumbersSame, NumbersDiffer float64
	// KindsDiffer is 1 when each name has a word for a kind of place that the other lacks: a cafe, a dining room.
	KindsDiffer float64
	// FoodsDiffer is positive, and mostly 1, when a name has a dish, a cuisine or an adjective that the other lacks, and the other has
	// such a word or a distinctive one instead: two kitchens in one house.
	FoodsDiffer float64
	// Rivals is 1 when each name has a word that the other lacks: a distinctive one and another such or a kind of place ("Raffles
	// Grill" and "Raffles Courtyard"), or two kinds of place while no dish is common to both ("Ritz Cafe" and "Ritz Restaurant"),
	// but not two words for a restaurant ("Trattoria Rossi" and "Ristorante Rossi").
	Rivals float64
	// BranchSame and BranchDiffer are 1 when both names name a branch.
	BranchSame, BranchDiffer float64
}

// merit ranks the ways in which two names can be read.
func (g Agreement) merit() float64 {
	return g.Exact + g.Overlap + 0.5*g.Containment + 0.7*g.Joined - 0.5*g.Conflict - 0.3*g.Common - 0.2*g.Short - 0.01*g.Cross
}

// Compare returns the agreement of the two forms that agree best. LocalA and localB are the words of the addresses and
// cities. It does not allocate.
func Compare(a, b *Name, localA, localB []string) Agreement {
	var best Agreement
	for i := range a.Variants {
		for j := range b.Variants {
			v, w := &a.Variants[i], &b.Variants[j]
			if !token.Comparable(v.Script, w.Script) {
				continue
			}
			g := compare(v, w, localA, localB)
			if !best.Comparable || g.merit() > best.merit() {
				best = g
			}
		}
	}
	return best
}

func compare(a, b *Variant, localA, localB []string) Agreement {
	al := token.Align(a.Tokens, b.Tokens)
	sa := tally(a, &al.PartnerA, &al.LikenessA, b, localB)
	sb := tally(b, &al.PartnerB, &al.LikenessB, a, localA)
	g := Agreement{Comparable: true}
	if total := sa.total + sb.total; total > 0 {
		g.Overlap = (sa.common + sb.common) / total
		g.Containment = max(ratio(sa.common, sa.total), ratio(sb.common, sb.total))
	}
	g.Conflict = min(1, sa.left, sb.left)
	if sa.telling == 0 || sb.telling == 0 {
		g.Common = 1
	}
	if sa.kinds > 0 && sb.kinds > 0 {
		g.KindsDiffer = 1
	}
	g.FoodsDiffer = min(1, min(sa.dishes, sb.dishes)+min(sa.unknownLeft, sb.foodLeft)+min(sa.foodLeft, sb.unknownLeft))
	g.Rivals = sa.rivals(&sb)
	g.join(a, b, sa.unknownLeft+sb.unknownLeft+sa.foodLeft+sb.foodLeft == 0)
	if g.KindsDiffer == 1 && !sa.served && sa.rooms+sb.rooms > 0 { // also when the rest of both names is written as one word
		g.Rivals = 1
	}
	g.Untold = g.untold(&sa, &sb)
	if acronym(a, b) || acronym(b, a) {
		g.Overlap, g.Containment = max(g.Overlap, acronymOverlap), max(g.Containment, acronymContained)
		g.Conflict, g.Common, g.FoodsDiffer, g.Rivals = 0, 0, 0, 0
	}
	g.NumbersSame, g.NumbersDiffer = numbers(a, b)
	if sa.qualifiers > 0 && sb.qualifiers > 0 {
		g.BranchDiffer = 1
	} else if sa.branch > 0 || sb.branch > 0 {
		g.BranchSame = 1
	}
	return g
}

// The least likeness of two names, each written as one word, that outweighs the comparison of their words: "Mc
// Donalds", "McDonald's".
const (
	joinedSpelling = 0.96
	joinedSound    = 0.88
	joinedShort    = 0.95 // with two consonants
	joinedLetters  = 6
	heard          = 4 // consonants from which a likeness in sound is no accident
	misheard       = 8 // consonants that agree, to make up for one that does not
)

// join compares the names as if each were written as one word. nothingLeft reports whether all distinctive words have
// a partner.
func (g *Agreement) join(a, b *Variant, nothingLeft bool) {
	var rescued bool
	if a.Script != b.Script && a.Script != text.None && b.Script != text.None {
		g.Cross = 1
		rescued = g.hear(a, b)
	} else {
		g.Joined = token.JaroWinkler(a.Joined, b.Joined)
		if a.telling && b.telling && slices.Equal(a.Joined, b.Joined) || nothingLeft && g.Overlap > 0.9 {
			g.Exact = 1
		}
		rescued = g.Joined >= joinedSpelling && min(len(a.Joined), len(b.Joined)) >= joinedLetters
	}
	if g.Overlap > 0.97 { // the same words in another order
		g.Joined = 1
	}
	if g.FoodsDiffer > 0 {
		g.Exact = 0
		return
	}
	if rescued {
		g.Overlap = max(g.Overlap, 0.95*g.Joined)
		g.Containment = max(g.Containment, g.Joined)
		g.Conflict = min(g.Conflict, 0.2)
		g.Common, g.Rivals = 0, 0
	}
	if g.Cross > 0 && g.Common == 0 {
		g.Exact = clamp((min(g.Overlap, g.Joined)-0.86)/0.12) * clamp((heard*(1-g.Short)-1.5)/2)
	}
}

// hear compares names in two scripts. It reports whether they sound so alike that this outweighs the comparison of
// their words.
func (g *Agreement) hear(a, b *Variant) (alike bool) {
	written := token.VowelsOf(a.Script, b.Script)
	g.Joined = max(token.SoundSimilarity(a.Row, b.Row, written), token.SoundSimilarity(a.Whole, b.Whole, written))
	weight := heardOf(&a.Row, &b.Row, written)
	if a.opens() != b.opens() {
		if s := token.SoundSimilarity(a.Said, b.Said, written); s > g.Joined {
			g.Joined, weight = s, heardOf(&a.Said, &b.Said, written)
		}
	}
	if g.Overlap > 0.9 { // common words that agree count too
		weight = (weight + heardOf(&a.Whole, &b.Whole, written)) / 2
	}
	alike = g.Joined >= joinedShort && weight >= 2
	if likeness := max(g.Joined, g.Containment); likeness > 0.6 { // else nothing was heard, wrongly or not
		weight *= 1 - misheard*max(0, 1-slack-likeness)
	}
	g.Short = clamp(1 - weight/heard)
	return alike || g.Joined >= joinedSound && weight >= 3
}

// heardOf returns the number of sounds of the shorter of two rows: each consonant counts one, and each vowel a half
// where vowels are written.
func heardOf(a, b *token.Row, written token.Vowels) float64 {
	heard := float64(min(a.Weight, b.Weight))
	if written == token.AllVowels {
		heard += float64(min(a.Vowels, b.Vowels)) / 2
	}
	return heard
}

func clamp(x float64) float64 { return max(0, min(1, x)) }

// stretch is the additional weight of a difference in sound between names, compared with streets, which have a number
// and a town beside the name.
const stretch = 0.8

// slack is the difference in sound that two spellings of one word can have.
const slack = 0.02

// sums are the totals of one side of an alignment.
type sums struct {
	total, common, left float64
	telling             float64 // weight of distinctive words that agree
	unknownLeft         float64 // weight of distinctive words that do not
	dishes              float64 // words for what is served left over
	foodLeft            float64 // weight of dishes and common adjectives that do not
	kinds, rooms        int     // words for a kind of place left over, and those of them for another kind than a restaurant
	named               bool    // has a distinctive word left over that is neither a number nor may name a branch
	served              bool    // has a word for what is served that agrees
	qualifiers, branch  int     // qualifying words left over, and qualifying words found on the other side
}

func tally(v *Variant, partner *[token.Limit]int8, like *[token.Limit]float64, other *Variant, otherLocal []string) sums {
	var s sums
	for i := range v.Words {
		if partner[i] >= 0 {
			alike := like[i]
			if v.Tokens[i].Script != other.Tokens[partner[i]].Script {
				alike -= stretch * max(0, 1-slack-alike)
			}
			s.agrees(&v.Words[i], &other.Words[partner[i]], alike)
		} else {
			s.lacks(&v.Words[i], v.Tokens[i].Concept, slices.Contains(otherLocal, v.Tokens[i].Text), v.telling)
		}
	}
	return s
}

// untold returns 1 when words that are in no table are left over in two scripts, and no kind of place or food contradicts.
func (g *Agreement) untold(a, b *sums) float64 {
	if g.Cross > 0 && g.Conflict > 0 && min(a.unknownLeft, b.unknownLeft) > 0 && g.KindsDiffer == 0 && min(a.foodLeft, b.foodLeft) == 0 {
		return 1
	}
	return 0
}

// rivals returns 1 when each side has a word left over, one of them a distinctive word and the other such a word or a kind of place.
func (s *sums) rivals(o *sums) float64 {
	if s.named && (o.named || o.kinds > 0) || o.named && s.kinds > 0 {
		return 1
	}
	return 0
}

// agrees counts a word with its partner.
func (s *sums) agrees(w, partner *Word, like float64) {
	s.total += w.Weight
	s.common += w.Weight * like
	if (w.Kind == lexicon.Distinctive || partner.Kind == lexicon.Distinctive) && !w.Local && !partner.Local {
		s.telling += w.Weight * like
	}
	s.served = s.served || w.Kind == lexicon.Food || w.Kind == lexicon.Kitchen
	if w.Qualifier && partner.Qualifier {
		s.branch++
	}
}

// lacks counts a word, and its concept, without a partner. there reports whether the other venue's address or city has the word, telling
// whether the name has words beside the place.
func (s *sums) lacks(w *Word, concept string, there, telling bool) {
	if there && w.Qualifier {
		s.branch++
	}
	weight := w.Weight
	local := (w.Local || there) && telling // else the name is the place alone
	if local {
		weight = min(weight, localWorth)
	}
	s.total += weight
	if local || w.Kind == lexicon.Stop {
		return
	}
	s.left += weight
	switch w.Kind {
	case lexicon.Distinctive:
		s.unknownLeft += weight
		s.named = s.named || !w.Qualifier && w.Number == ""
		if w.Qualifier {
			s.qualifiers++
		}
	case lexicon.Food:
		s.foodLeft += weight
		s.dishes++
	case lexicon.Kitchen:
		s.dishes++
		s.kinds++
		s.rooms++
	case lexicon.Venue:
		s.kinds++
		if !lexicon.Restaurant(concept) {
			s.rooms++
		}
	case lexicon.Stop:
	}
}

// The likeness of a name that is the initials of the other.
const (
	acronymOverlap   = 0.7
	acronymContained = 0.9
)

// acronym reports whether a is one word of at least three letters, the initials of b with or without its stop words.
func acronym(a, b *Variant) bool {
	n := len(a.Joined)
	return n >= 3 && n <= 5 && len(b.Tokens) >= n && (initials(a, b, true) || initials(a, b, false))
}

func initials(a, b *Variant, skip bool) bool {
	i, n := 0, len(a.Joined)
	for j := range b.Tokens {
		if skip && b.Words[j].Kind == lexicon.Stop {
			continue
		}
		if i == n || b.Tokens[j].Runes[0] != a.Joined[i] {
			return false
		}
		i++
	}
	return i == n
}

// numbers compares the numbers written as digits.
func numbers(a, b *Variant) (same, differ float64) {
	numbered := func(w Word) bool { return w.Number != "" }
	if !slices.ContainsFunc(a.Words, numbered) || !slices.ContainsFunc(b.Words, numbered) {
		return 0, 0
	}
	for _, w := range a.Words {
		if numbered(w) && slices.ContainsFunc(b.Words, func(other Word) bool { return other.Number == w.Number }) {
			return 1, 0
		}
	}
	return 0, 1
}

func ratio(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}
