package catalog

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// maxScan bounds the entries that are read for the keys of one search. The rarest keys come first, and all entries of
// the first key are read.
const maxScan = 50_000

// maxCandidates bounds the venues that a search returns.
const maxCandidates = 50

// The values of agreements. Names that agree completely have the value namesWorth. The values only order candidates;
// the matcher judges them.
const (
	namesWorth   = 10
	phoneWorth   = 10
	addressWorth = 6
	nearWorth    = 5 // at the same spot, half as much at 200 m
	cityWorth    = 1
	farWorth     = -4 // in another region
	sameSpot     = 200.0
	otherRegion  = 50_000.0
)

// hit is a venue with the worth of its agreements.
type hit struct {
	at    int32
	names float32 // the weights of the names' common keys
	other float32
}

// tally adds up the hits of one search. Later searches use it again.
type tally struct {
	hits  []hit
	hitOf []int32 // by venue: 1 + the index in hits, or 0
}

func (t *tally) hit(at int32) *hit {
	if t.hitOf[at] == 0 {
		t.hits = append(t.hits, hit{at: at})
		t.hitOf[at] = int32(len(t.hits))
	}
	return &t.hits[t.hitOf[at]-1]
}

func (t *tally) reset() {
	for _, h := range t.hits {
		t.hitOf[h.at] = 0
	}
	t.hits = t.hits[:0]
}

// Search returns the venues likeliest to be the place, the best first, at most maxCandidates. They share a word or sound of
// the name, the telephone, the house number with the street, or the neighbourhood. None, with a nil error, means that no
// venue shares any of these. Search makes no request and takes a few milliseconds at most, so it does not look at its context.
//
// The venues share memory with the catalogue: do not change the data that they point to.
func (c *Catalog) Search(_ context.Context, place match.Place) ([]provider.Venue, error) {
	k := keysOf(match.Prepare(place))
	if len(k.names)+len(k.others) == 0 && place.Location == nil {
		return nil, &provider.Error{
			Detail: "the place has no name, telephone, address or location to search by", Kind: provider.KindUnsupported, Provider: c.name,
		}
	}
	t, _ := c.tallies.Get().(*tally)
	defer c.tallies.Put(t)
	defer t.reset()
	querySum := c.index.collect(t, k)
	c.index.collectNear(t, place.Location)
	city := strings.Join(wordsOf(place.City), " ")
	return c.best(t.hits, place.Location, func(h hit) float64 {
		score := float64(h.other)
		if union := querySum + c.index.nameSums[h.at] - h.names; union > 0 {
			score += namesWorth * float64(h.names/union)
		}
		if city != "" && city == c.index.cities[h.at] {
			score += cityWorth
		}
		return score
	}), nil
}

// index finds venues by their keys. It is built once and then only read.
type index struct {
	cells    map[cell][]int32
	cities   []string  // folded, by venue
	nameSums []float32 // the weights of all name keys of a venue
	postings map[string][]int32
	size     int
}

// collect tallies the venues that share keys, and returns the weight of the place's
// own names.
func (x *index) collect(t *tally, k keys) (querySum float32) {
	type lookup struct {
		key  string
		list []int32
	}
	keys := slices.Concat(k.names, k.others)
	lookups := make([]lookup, 0, len(keys))
	for _, key := range keys {
		lookups = append(lookups, lookup{key, x.postings[key]})
	}
	for _, key := range k.names {
		querySum += x.weight(key)
	}
	slices.SortStableFunc(lookups, func(a, b lookup) int { return cmp.Compare(len(a.list), len(b.list)) })
	left := maxScan
	most := float32(math.Log(float64(x.size + 1)))
	for _, l := range lookups {
		if left < len(l.list) && left < maxScan {
			break
		}
		left -= len(l.list)
		weight := x.weight(l.key)
		for _, at := range l.list {
			h := t.hit(at)
			switch l.key[0] {
			case 'p':
				h.other = max(h.other, phoneWorth)
			case 'a':
				h.other = max(h.other, addressWorth*weight/max(most, 1))
			default:
				h.names += weight
			}
		}
	}
	return querySum
}

// collectNear tallies the venues in the cell of a point and those around it.
func (x *index) collectNear(t *tally, to *match.Point) {
	if to == nil {
		return
	}
	middle := cellOf(*to)
	for lat := middle.lat - 1; lat <= middle.lat+1; lat++ {
		for lng := middle.lng - 1; lng <= middle.lng+1; lng++ {
			for _, at := range x.cells[cell{lat, lng}] {
				t.hit(at)
			}
		}
	}
}

const metresPerDegree = 111_195

// nearness returns the value of the distance of two points, 0 when one is unknown.
func nearness(a, b *match.Point) float64 {
	if a == nil || b == nil {
		return 0
	}
	// The distance on a flat map is exact enough to order candidates.
	lng := math.Abs(a.Lng - b.Lng)
	lng = min(lng, 360-lng) * math.Cos((a.Lat+b.Lat)/2*math.Pi/180)
	d := metresPerDegree * math.Hypot(a.Lat-b.Lat, lng)
	if d > otherRegion {
		return farWorth
	}
	return nearWorth * sameSpot / (sameSpot + d)
}

// best returns the venues of the hits with the highest scores, of equal hits the first in the file. It measures the distance only where
// that decides.
func (c *Catalog) best(hits []hit, to *match.Point, score func(hit) float64) []provider.Venue {
	type scored struct {
		at    int32
		score float64
	}
	better := func(a, b scored) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.at, b.at)) }
	list := make([]scored, 0, maxCandidates+1)
	for _, h := range hits {
		s := scored{h.at, score(h)}
		if len(list) == maxCandidates && list[maxCandidates-1].score > s.score+nearWorth {
			continue
		}
		s.score += nearness(to, c.venues[h.at].Location)
		if len(list) == maxCandidates && better(list[maxCandidates-1], s) < 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(list, s, better)
		list = slices.Insert(list, at, s)
		list = list[:min(len(list), maxCandidates)]
	}
	venues := make([]provider.Venue, len(list))
	for i, s := range list {
		venues[i] = c.venues[s.at]
	}
	return venues
}

// cellSize is the edge of a geographic cell in degrees: 550 m from south to north.
const cellSize = 0.005

// cell is a square of the map.
type cell struct{ lat, lng int32 }

func cellOf(p match.Point) cell {
	return cell{int32(math.Floor(p.Lat / cellSize)), int32(math.Floor(p.Lng / cellSize))}
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
	if key[0] != 't' {
		w *= 0.4
	}
	return w
}

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
	for _, skeleton := range p.Skeletons {
		k.names = append(k.names, "k"+skeleton)
		for i := range skeleton {
			if len(skeleton) > 1 && len(skeleton) <= maxMisheard {
				shorter := slices.Compact([]byte(skeleton[:i] + skeleton[i+1:])) // a skeleton has no class twice in a row
				k.names = append(k.names, "k"+string(shorter))
			}
			if i+gramLength <= len(skeleton) {
				k.names = append(k.names, "k"+skeleton[i:i+gramLength])
			}
		}
	}
	slices.Sort(k.names)
	k.names = slices.Compact(k.names)
	k.others = addressKeys(p.Place.Address)
	for _, phone := range p.PhoneKeys {
		k.others = append(k.others, "p"+phone)
	}
	return k
}

// A word or name is also found with one of its consonants left out, up to maxMisheard: two spellings that differ in one consonant share
// such a key. Of two longer ones, a part of gramLength is the same.
const (
	maxMisheard = 7
	gramLength  = 4
)

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
