package match

import (
	"math"
)

// Best looks for the place among candidates. It compares with each and takes the likeliest when its score reaches
// FoundScore and no rival comes near. Candidates that are evidently the same venue as the best are no rivals, so a
// catalogue that lists a venue twice still answers. Of equal candidates the first is taken.
func (p *Prepared) Best(candidates []*Prepared) Decision {
	if len(candidates) == 0 {
		return Decision{Outcome: NotFound, Index: -1, Rival: -1, Margin: 1, Evidence: Evidence{Model: ModelVersion, Features: nil}}
	}
	odds := make([]float64, len(candidates))
	var winner vector
	best := -1
	for i, c := range candidates {
		v := observe(p, c)
		odds[i] = v.logOdds()
		if best < 0 || odds[i] > odds[best] {
			best, winner = i, v
		}
	}
	d := Decision{Index: best, Rival: -1, Margin: 1, Evidence: winner.explain()}
	d.Score = d.Evidence.Score
	if d.Score >= NotFoundScore {
		d.rival(candidates, odds)
	}
	switch {
	case d.Score < NotFoundScore && !winner.reached():
		d.Outcome = NotFound
	case d.Score < FoundScore || d.Margin < FoundMargin:
		d.Outcome = Ambiguous
	default:
		d.Outcome = Found
	}
	return d
}

// reached reports whether a telephone number leads to both places while their names, in different scripts, cannot be told to be
// others': one may translate the other, or be a brand that is said otherwise.
func (v *vector) reached() bool {
	return v[phoneSame] == 1 && v[nameCross]+v[nameUnknown] > 0 && v[nameKindsDiffer] == 0 && v[nameNumbersDiffer] == 0 &&
		v[cityDiffers] == 0 && v[geoFar] == 0 && v[geoQuarter] == 0 && v[addressOther] < 0.9
}

// rival finds the likeliest other venue and the margin to it. Only candidates near enough to matter are compared with
// the best.
func (d *Decision) rival(candidates []*Prepared, odds []float64) {
	for i, o := range odds {
		if i == d.Index || d.Rival >= 0 && o <= odds[d.Rival] || margin(odds[d.Index], o) > 0.999 {
			continue
		}
		if sameVenue(candidates[d.Index], candidates[i]) {
			continue
		}
		d.Rival = i
		d.Margin = round(margin(odds[d.Index], o))
	}
}

// margin is (a-b)/(a+b) for odds whose logarithms are given.
func margin(a, b float64) float64 { return math.Tanh((a - b) / 2) }

// sameVenue reports whether two candidates are evidently one: the score shows it, and the address, the telephone or the
// location shows it too.
func sameVenue(a, b *Prepared) bool {
	v := observe(a, b)
	placed := v[addressSame] > 0.9 || v[phoneSame] > 0 || v[geoSpot] > 0
	return placed && v[addressOther] < 0.5 && v[addressNumberDiffers] == 0 && v[branchDiffers] == 0 && v.score() >= 0.95
}

// Contradict reports whether two descriptions cannot be of one place as far as both say something: their names are not one name
// in two spellings, or an address, a city, a telephone number or a location of one is another than that of the other. A field
// that only one has counts for nothing. It is symmetric.
func Contradict(a, b *Prepared) bool {
	v := observe(a, b)
	for _, f := range []feature{
		addressOther, addressNumberDiffers, branchDiffers, cityDiffers, geoFar, geoFarSameAddress, geoQuarter, phoneDiffers,
	} {
		if v[f] > 0.5 {
			return true
		}
	}
	if v[nameExact] == 1 {
		return false
	}
	names := vector{citySame: 1, strangers: v[strangers]}
	copy(names[:nameAlone], v[:nameAlone])
	return v[nameUnknown] == 1 || names.score() < 0.5
}
