package catalog

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"slices"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// maxCandidates bounds the venues that a search returns.
const maxCandidates = 50

// The values of agreements, about as the matcher weighs them. They only order candidates; the matcher judges them.
const (
	overlapWorth = 2.2
	partWorth    = 2.2
	exactWorth   = 3.4
	phoneWorth   = 3.8
	addressWorth = 3.3
	cityWorth    = 0.5
	nearWorth    = 3.2 // at the same spot, half as much at 200 m
	farWorth     = -4  // in another quarter
	sameSpot     = 200.0
	otherQuarter = 1500.0
)

// hit is a venue with the worth of its agreements.
type hit struct {
	at     int32
	words  uint64  // a bit for each word of the form in hand that agrees
	common float32 // the weights of the words of the form in hand that agree
	there  float32 // the weights of the words of the venue's name that agree with them
	joined float32 // the likeness of the form in hand and the name, each as one word
	names  float32 // the worth of the best form
	other  float32
	score  float64
}

// tally adds up the hits of one search. Later searches use it again.
type tally struct {
	hits  []hit
	hitOf []int32 // by venue: 1 + the index in hits, or 0
	seen  []bool  // by word, in alike
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

// Search returns the venues likeliest to be the place, the best first, at most maxCandidates. They have a word of the name that is
// alike, the telephone, the house number with the street, or the neighbourhood. None, with a nil error, means that no venue has any of
// these. Search looks at all venues that do. It makes no request and takes a few milliseconds at most, so it does not look at its
// context.
//
// The venues share memory with the catalogue: do not change the data that they point to.
func (c *Catalog) Search(_ context.Context, place match.Place) ([]provider.Venue, error) {
	p := match.Prepare(place)
	forms, others := p.Forms(), p.Keys()
	if place.Location != nil {
		for i := range 9 { // the cell of the place and those around it
			others = append(others, cellKey(*place.Location, float64(i/3-1), float64(i%3-1)))
		}
	}
	if len(forms)+len(others) == 0 {
		return nil, &provider.Error{
			Detail: "the place has no name, telephone, address or location to search by", Kind: provider.KindUnsupported, Provider: c.name,
		}
	}
	t, _ := c.tallies.Get().(*tally)
	defer c.tallies.Put(t)
	defer t.reset()
	for i := range forms {
		c.index.collect(t, &forms[i])
	}
	c.index.collectOthers(t, others)
	return c.best(t.hits, p), nil
}

// index finds venues by the words of their names and by other keys. It is built once and then only read.
type index struct {
	cities []string
	keyed  map[int][]uint64   // by class: hashed keys with their words, sorted
	least  []float32          // by venue: the weight of the shortest form
	others map[string][]int32 // venues by keys that are no words
	seed   maphash.Seed
	spots  []match.Point // by venue
	words  []word
}

// hash returns the hash of a key in the upper half. A word is kept in the lower half. Keys with one hash only cost a comparison.
func (x *index) hash(key string) uint64 { return maphash.String(x.seed, key) &^ math.MaxUint32 }

// word is a word of names, with the venues whose name has it or is it.
type word struct {
	match.Word

	in    []part
	whole []int32
}

// part is a word of the name of a venue, with its weight there.
type part struct {
	at     int32
	weight float32
}

// likeness is how likely a word of the index is a given one.
type likeness struct {
	word  int32
	alike float32
}

// alike returns the words that may be a given one, the likeliest first.
func (x *index) alike(t *tally, w *match.Word) (list []likeness) {
	for class, stored := range x.keyed {
		for _, key := range w.Asked(class) {
			hash := x.hash(key)
			at, _ := slices.BinarySearch(stored, hash)
			for ; at < len(stored) && stored[at]&^math.MaxUint32 == hash; at++ {
				if id := int32(stored[at]); !t.seen[id] {
					t.seen[id] = true
					list = append(list, likeness{word: id})
				}
			}
		}
	}
	for i := range list {
		t.seen[list[i].word] = false
		list[i].alike = float32(w.Likeness(&x.words[list[i].word].Word))
	}
	list = slices.DeleteFunc(list, func(l likeness) bool { return l.alike == 0 })
	slices.SortFunc(list, func(a, b likeness) int { return cmp.Or(cmp.Compare(b.alike, a.alike), cmp.Compare(a.word, b.word)) })
	return list
}

// collect tallies the venues whose names have words that are alike to those of a form.
func (x *index) collect(t *tally, f *match.Form) {
	var list []likeness
	agree := func(w *match.Word, as uint64) {
		list = x.alike(t, w)
		for _, l := range list {
			for _, p := range x.words[l.word].in {
				if h := t.hit(p.at); h.words&as == 0 { // The first word that is alike is the likeliest
					h.words |= as
					h.common += float32(w.Weight) * l.alike
					h.there += p.weight * l.alike
				}
			}
		}
	}
	for i := range f.Pairs {
		agree(&f.Pairs[i], 3<<i)
	}
	for i := range f.Words {
		agree(&f.Words[i], 1<<i)
	}
	for i := range f.Whole {
		if !f.Whole[i].Alone { // else it has just been looked up
			list = x.alike(t, &f.Whole[i])
		}
		for _, l := range list {
			for _, at := range x.words[l.word].whole {
				h := t.hit(at)
				h.joined = max(h.joined, l.alike)
			}
		}
	}
	for i := range t.hits {
		h := &t.hits[i]
		asked, stored := float32(f.Weight), x.least[h.at]
		common, there := min(h.common, asked), min(h.there, stored)
		overlap := max((common+there)/(asked+stored), 0.95*h.joined)
		contained := max(common/asked, there/stored, h.joined)
		h.names = max(h.names, overlapWorth*overlap+partWorth*contained+exactWorth*max(0, (overlap-0.8)/0.2))
		h.words, h.common, h.there, h.joined = 0, 0, 0, 0
	}
}

// collectOthers tallies the venues that share keys that are no words. A number with a word that many streets have says less.
func (x *index) collectOthers(t *tally, keys []string) {
	for _, key := range keys {
		list := x.others[key]
		rarity := 1 - math.Log(float64(len(list)+1))/math.Log(float64(len(x.least)+2))
		worth := map[byte]float64{'a': addressWorth * rarity, 'p': phoneWorth}[key[0]]
		for _, at := range list {
			h := t.hit(at)
			h.other = max(h.other, float32(worth))
		}
	}
}

// best returns the venues of the hits with the highest scores, of equal hits the first in the file.
func (c *Catalog) best(hits []hit, p *match.Prepared) []provider.Venue {
	better := func(a, b hit) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.at, b.at)) }
	list := make([]hit, 0, maxCandidates+1)
	city, here := p.City(), spotOf(p.Place.Location)
	for _, h := range hits {
		h.score = float64(h.names+h.other) + nearness(here, c.index.spots[h.at])
		if city != "" && city == c.index.cities[h.at] {
			h.score += cityWorth
		}
		if len(list) < maxCandidates || better(list[maxCandidates-1], h) > 0 {
			at, _ := slices.BinarySearchFunc(list, h, better)
			list = slices.Insert(list, at, h)
			list = list[:min(len(list), maxCandidates)]
		}
	}
	venues := make([]provider.Venue, len(list))
	for i, h := range list {
		venues[i] = c.venues[h.at]
	}
	return venues
}

// spotOf returns a point, NaN when it is not known: a zero is an unset field.
func spotOf(p *match.Point) match.Point {
	if p == nil || p.Lat == 0 || p.Lng == 0 {
		return match.Point{Lat: math.NaN()}
	}
	return *p
}

const metresPerDegree = 111_195

// nearness returns the value of the distance of two spots, 0 when one is not known, or by mistake in another place.
func nearness(a, b match.Point) float64 {
	lng := math.Abs(a.Lng - b.Lng)
	// The distance on a flat map is exact enough to order candidates.
	d := metresPerDegree * math.Hypot(a.Lat-b.Lat, min(lng, 360-lng)*math.Cos(a.Lat*math.Pi/180))
	switch {
	case d <= otherQuarter:
		return nearWorth * sameSpot / (sameSpot + d)
	case math.IsNaN(d) || d > 2*otherQuarter && match.Mirrored(a, b):
		return 0
	}
	return farWorth - d/1e9 // the nearest first
}

// cellSize is the edge of a geographic cell in degrees: 550 m from south to north.
const cellSize = 0.005

// cellKey is the key of the cell of a point, or of one so many cells to the north and east.
func cellKey(p match.Point, north, east float64) string {
	return fmt.Sprint("g", math.Floor(p.Lat/cellSize)+north, " ", math.Floor(p.Lng/cellSize)+east)
}

// newIndex takes every venue apart, which costs some tens of microseconds each.
func newIndex(venues []provider.Venue) *index {
	x := &index{
		cities: make([]string, len(venues)), keyed: make(map[int][]uint64), least: make([]float32, len(venues)),
		others: make(map[string][]int32), seed: maphash.MakeSeed(), spots: make([]match.Point, len(venues)),
	}
	ids := make(map[string]int32) // of words
	for i := range venues {
		at := int32(i)
		p := match.Prepare(venues[i].Place)
		for _, f := range p.Forms() {
			if weight := float32(f.Weight); x.least[at] == 0 || weight < x.least[at] {
				x.least[at] = weight
			}
			for _, w := range slices.Concat(f.Words, f.Pairs, f.Whole) {
				word := x.word(ids, w)
				if word.in = append(word.in, part{at, float32(w.Weight)}); w.Class < 0 || w.Alone {
					word.whole = append(word.whole, at)
				}
			}
		}
		others := p.Keys()
		if p.Place.Location != nil {
			others = append(others, cellKey(*p.Place.Location, 0, 0))
		}
		for _, key := range others {
			x.others[key] = append(x.others[key], at)
		}
		x.cities[i], x.spots[i] = p.City(), spotOf(p.Place.Location)
	}
	for class, list := range x.keyed {
		slices.Sort(list)
		x.keyed[class] = slices.Clip(slices.Compact(list))
	}
	return x
}

// word returns a word of the index, which it adds when it is new.
func (x *index) word(ids map[string]int32, w match.Word) *word {
	id, ok := ids[w.ID()]
	if !ok {
		id = int32(len(x.words))
		ids[w.ID()] = id
		x.words = append(x.words, word{Word: w})
		for _, key := range w.Stored() {
			x.keyed[w.Class] = append(x.keyed[w.Class], x.hash(key)|uint64(id))
		}
	}
	return &x.words[id]
}
