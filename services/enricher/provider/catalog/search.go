package catalog

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// maxScan bounds the entries that are read for the keys of one search. The rarest keys come first, and all entries of
// the first key are read.
const maxScan = 150_000

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
		t.hitOf[at] = int32(len(t.hits)) //nolint:gosec // At most one for each venue.
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
	return c.best(t.hits, func(h hit) float64 {
		score := float64(h.other)
		if union := querySum + c.index.nameSums[h.at] - h.names; union > 0 {
			score += namesWorth * float64(h.names/union)
		}
		if city != "" && city == c.index.cities[h.at] {
			score += cityWorth
		}
		return score + nearness(place.Location, c.venues[h.at].Location)
	}), nil
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

// nearness returns the value of the distance of two points, 0 when one is unknown.
func nearness(a, b *match.Point) float64 {
	if a == nil || b == nil {
		return 0
	}
	d := metres(*a, *b)
	if d > otherRegion {
		return farWorth
	}
	return nearWorth * sameSpot / (sameSpot + d)
}

// metres returns the distance of two points on a flat map, which is exact enough to order candidates.
func metres(a, b match.Point) float64 {
	const perDegree = 111_195
	lng := math.Remainder(a.Lng-b.Lng, 360) * math.Cos((a.Lat+b.Lat)/2*math.Pi/180)
	return perDegree * math.Hypot(a.Lat-b.Lat, lng)
}

// best returns the venues of the hits with the highest scores, of equal hits the first in the file.
func (c *Catalog) best(hits []hit, score func(hit) float64) []provider.Venue {
	type scored struct {
		at    int32
		score float64
	}
	better := func(a, b scored) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.at, b.at)) }
	list := make([]scored, 0, maxCandidates+1)
	for _, h := range hits {
		s := scored{h.at, score(h)}
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
