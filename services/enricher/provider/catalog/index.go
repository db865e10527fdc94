package catalog

import (
	"math"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// cellSize is the edge of a geographic cell in degrees: 550 m from south to north.
const cellSize = 0.005

// cell is a square of the map.
type cell struct{ lat, lng int32 }

func cellOf(p match.Point) cell {
	return cell{int32(math.Floor(p.Lat / cellSize)), int32(math.Floor(p.Lng / cellSize))}
}

// index finds venues by their keys. It is built once and then only read.
type index struct {
	cells    map[cell][]int32
	cities   []string  // folded, by venue
	nameSums []float32 // the weights of all name keys of a venue
	postings map[string][]int32
	size     int
}

// newIndex takes every venue apart, which costs some tens of microseconds each.
func newIndex(venues []provider.Venue) *index {
	x := &index{
		cells:    make(map[cell][]int32),
		cities:   make([]string, len(venues)),
		nameSums: make([]float32, len(venues)),
		postings: make(map[string][]int32),
		size:     len(venues),
	}
	names := make([][]string, len(venues))
	folded := make(map[string]string) // one copy of each city
	for i := range venues {
		at := int32(i)
		k := keysOf(match.Prepare(venues[i].Place))
		names[i] = k.names
		for _, key := range slices.Concat(k.names, k.others) {
			x.postings[key] = append(x.postings[key], at)
		}
		if p := venues[i].Location; p != nil {
			c := cellOf(*p)
			x.cells[c] = append(x.cells[c], at)
		}
		city := strings.Join(wordsOf(venues[i].City), " ")
		if _, ok := folded[city]; !ok {
			folded[city] = city
		}
		x.cities[i] = folded[city]
	}
	for i, list := range names {
		for _, key := range list {
			x.nameSums[i] += x.weight(key)
		}
	}
	return x
}

// weight returns the weight of a key: the logarithm of its rarity, 0 for a key that all venues have. Parts of the
// sound overlap, and count for less than words.
func (x *index) weight(key string) float32 {
	w := float32(math.Log(float64(x.size+1) / float64(len(x.postings[key])+1)))
	if key[0] == 'k' {
		w *= 0.4
	}
	return w
}

// gramLength is the length of the parts of a name's consonants that are keys. Four of eight classes are rare enough,
// and survive a misspelling elsewhere.
const gramLength = 4

// The bounds of the keys of one address.
const (
	maxAddressKeys  = 24
	maxAddressWords = 32
)

// keys are the keys, other than its position, by which a place is found. The keys of each kind start with a letter of
// their own, so that kinds are never mixed up.
type keys struct {
	names  []string // words and parts of the sound of the names
	others []string // a number of the address with each of its words, and the ends of the telephone numbers
}

func keysOf(p *match.Prepared) keys {
	var k keys
	for _, token := range p.Tokens {
		k.names = append(k.names, "t"+token)
	}
	grams := make(map[string]bool)
	for _, skeleton := range p.Skeletons {
		for _, gram := range gramsOf(skeleton) {
			if !grams[gram] {
				grams[gram] = true
				k.names = append(k.names, "k"+gram)
			}
		}
	}
	k.others = addressKeys(p.Place.Address)
	for _, phone := range p.PhoneKeys {
		k.others = append(k.others, "p"+phone)
	}
	return k
}

// gramsOf cuts a skeleton into overlapping parts. A skeleton shorter than a part is one part.
func gramsOf(skeleton string) []string {
	if len(skeleton) <= gramLength {
		return []string{skeleton}
	}
	var grams []string
	for i := range len(skeleton) - gramLength + 1 {
		grams = append(grams, skeleton[i:i+gramLength])
	}
	return grams
}

// addressKeys joins each number of an address with each of its words: "205 e. 49th st." has 205 with 49th, with e and
// with st. The frequency of a pair decides its weight.
func addressKeys(address string) []string {
	words := wordsOf(address)
	words = words[:min(len(words), maxAddressWords)]
	seen := make(map[string]bool)
	var list []string
	for _, number := range words {
		if !strings.ContainsFunc(number, unicode.IsDigit) {
			continue
		}
		for _, word := range words {
			if len(list) == maxAddressKeys {
				return list
			}
			if key := "a" + number + " " + word; word != number && !seen[key] {
				seen[key] = true
				list = append(list, key)
			}
		}
	}
	return list
}

// maxText bounds what wordsOf reads of a text, in bytes.
const maxText = 4096

// wordsOf folds a text to its words of letters and digits, in lower case and without marks.
func wordsOf(text string) []string {
	return strings.FieldsFunc(strings.ToLower(strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Mn, r) {
			return -1
		}
		return r
	}, norm.NFKD.String(text[:min(len(text), maxText)]))), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}
