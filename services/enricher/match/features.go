package match

import (
	_ "embed" // the weights
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/services/enricher/match/internal/address"
	"github.com/expediter-io/expediter/services/enricher/match/internal/name"
)

// feature is the number of a feature of a pair of places. The value of a feature is in [0,1], and 0 when it was not
// observed, so that a missing field adds nothing.
type feature int

const (
	nameExact feature = iota
	nameOverlap
	nameContained
	nameJoined
	nameConflict
	nameCommon
	nameCross
	nameShort
	nameNumbersSame
	nameNumbersDiffer
	nameUnknown
	nameKindsDiffer
	nameAlone
	branchSame
	branchDiffers
	addressSame
	addressStreet
	addressNumberNear
	addressNumberDiffers
	addressOther
	addressOpposite
	addressNumberOnly
	phoneSame
	phoneLocal
	phoneDiffers
	phoneBrand
	geoSpot
	geoDoor
	geoBlock
	geoQuarter
	geoFar
	geoFarSameAddress
	citySame
	cityDiffers
	strangers
	nameTranslated
	nameFoodsDiffer
	addressTypesDiffer
	addressPartial
	nameRivals
	doubt
	features
)

// noFeature says that nothing was observed.
const noFeature feature = -1

// featureNames are the names under which evidence is kept. They are part of the stored form.
var featureNames = [features]string{
	"name.exact", "name.overlap", "name.contained", "name.joined", "name.conflict", "name.common", "name.cross", "name.short",
	"name.numbers_same", "name.numbers_differ", "name.unknown", "name.kinds_differ", "name.alone",
	"branch.same", "branch.differs",
	"address.same", "address.street", "address.number_near", "address.number_differs", "address.other", "address.opposite",
	"address.number_only",
	"phone.same", "phone.local", "phone.differs", "phone.brand",
	"geo.60m", "geo.150m", "geo.500m", "geo.1500m", "geo.far", "geo.far_same_address",
	"city.same", "city.differs",
	"name.stranger", "name.translated", "name.foods_differ", "address.types_differ", "address.partial", "name.rivals", "doubt",
}

// vector has the values of the features of a pair.
type vector [features]float64

// The bands of distance in metres.
const (
	spot    = 60
	door    = 150
	block   = 500
	quarter = 1500
)

// otherTown is the factor for an equal street and house number when the cities differ and no telephone number shows
// that one is a suburb of the other: there is more than one Main Street. A small house number counts for a quarter of that, as each
// Main Street has it, and a street without a number for half.
const (
	otherTown   = 0.5
	smallNumber = 50
	largeNumber = 200
)

// Two street names are one from the first likeness on, and two below the second.
const (
	sameStreet  = 0.74
	otherStreet = 0.5
)

// observe compares two places. It is symmetric, because it orders them first.
func observe(a, b *Prepared) vector {
	if a.after(b) {
		a, b = b, a
	}
	var v vector
	names := name.Compare(&a.name, &b.name, a.local, b.local)
	v.names(names)
	places := address.Compare(&a.address, &b.address)
	v.addresses(places)
	if f := comparePhones(a.phones, b.phones); f != noFeature {
		v[f] = 1
	}
	if same, known := address.CompareCities(&a.city, &b.city, a.address.Words, b.address.Words); same {
		v[citySame] = 1
	} else if known {
		v[cityDiffers] = 1
	}
	if a.Place.Location.usable() && b.Place.Location.usable() {
		v.distance(*a.Place.Location, *b.Place.Location)
	}
	v.cross(names.Untold, otherTown*max(0.25, ramp(float64(places.HouseNumber), smallNumber, largeNumber)))
	v.doubt()
	return v
}

// mostDoubtful is the greatest log-odds of a pair that must not be found: a score of 0.7.
const mostDoubtful = 0.85

// doubt keeps a pair below FoundScore whose differences are those of two venues, however much agrees: two venues in one house,
// two branches with the number of their chain, the same house number in two streets with one name. Only a telephone number of the
// place shows that a source mistook the street.
func (v *vector) doubt() {
	elsewhere := max(v[cityDiffers], v[addressOther], v[addressNumberDiffers]) > 0.5
	otherStreet := max(v[addressOpposite], v[addressTypesDiffer]) > 0 && v[phoneSame] == 0
	if v[nameFoodsDiffer] > 0 || v[nameNumbersDiffer] > 0 || v[nameRivals] > 0 || v[phoneBrand] == 1 && elsewhere || otherStreet {
		v[doubt] = max(0, (v.logOdds()-mostDoubtful)/-weights[doubt])
	}
}

func (v *vector) names(g name.Agreement) {
	if !g.Comparable {
		v[nameUnknown] = 1
		return
	}
	v[nameExact] = g.Exact
	v[nameOverlap] = g.Overlap
	v[nameContained] = g.Containment
	v[nameJoined] = ramp(g.Joined, 0.7, 1)
	v[nameConflict] = g.Conflict
	v[nameCommon] = g.Common
	v[nameCross] = g.Cross
	v[nameShort] = g.Short
	v[nameNumbersSame] = g.NumbersSame
	v[nameNumbersDiffer] = g.NumbersDiffer
	v[nameKindsDiffer] = g.KindsDiffer
	v[nameFoodsDiffer] = g.FoodsDiffer
	v[nameRivals] = g.Rivals
	v[branchSame] = g.BranchSame
	v[branchDiffers] = g.BranchDiffer
}

func (v *vector) addresses(g address.Agreement) {
	if !g.Comparable {
		return
	}
	if g.Street < 0 {
		v.numberAlone(g.Number)
		return
	}
	same := ramp(g.Street, otherStreet, sameStreet)
	v[addressOther] = 1 - same
	if g.Heard {
		v[addressOther] *= otherByEar(g.Number)
	}
	if g.Opposite {
		v[addressOpposite] = same
	}
	if g.TypesDiffer {
		v[addressTypesDiffer] = same
	}
	v[addressPartial] = g.Partial * same
	switch g.Number {
	case address.NumberSame:
		v[addressSame] = same
	case address.NumberNear:
		v[addressNumberNear] = same
	case address.NumberDiffers:
		v[addressNumberDiffers] = same
	case address.NumberUnknown:
		v[addressStreet] = same
	}
}

// numberAlone observes the house numbers of streets that cannot be compared. They weigh little, because the numbers of
// one venue in two sources differ more often when its street is written in two ways.
func (v *vector) numberAlone(n address.NumberAgreement) {
	switch n {
	case address.NumberSame:
		v[addressNumberOnly] = 1
	case address.NumberDiffers:
		v[addressNumberDiffers] = 0.5
	case address.NumberUnknown, address.NumberNear:
	}
}

// otherByEar returns the weight of a difference in sound between street names in two scripts, relative to a difference in
// spelling in one script: one name may translate the other. Where the house numbers differ too, it hardly does. Where
// they are equal, about as many streets are translated as share a number by chance; the small weight that is left is
// caution.
func otherByEar(n address.NumberAgreement) float64 {
	return [...]float64{address.NumberUnknown: 0.7, address.NumberSame: 0.4, address.NumberNear: 0.7, address.NumberDiffers: 1}[n]
}

func (v *vector) distance(a, b Point) {
	d := metres(a, b)
	switch {
	case d <= spot:
		v[geoSpot] = 1
	case d <= door:
		v[geoDoor] = 1
	case d <= block:
		v[geoBlock] = 1
	case d <= quarter:
		v[geoQuarter] = 1
	case d > 2*quarter && Mirrored(a, b): // one source made a mistake
	case v[addressSame] > 0.9 && v[cityDiffers] == 0:
		v[geoFarSameAddress] = 1
	default:
		v[geoFar] = 1
	}
}

// cross makes the observations that need several fields. A name without other evidence may belong to any venue. Names
// that have nothing in common belong to two venues, whatever else agrees: the venues of a hotel or a food court, or a
// former tenant, share telephone and address.
func (v *vector) cross(untold, town float64) {
	if v[cityDiffers] == 1 && v[phoneSame] == 0 {
		v[addressSame] *= town
		v[addressPartial] *= town
		v[addressStreet] *= otherTown / 2
	}
	alone := true
	for i := addressSame; i <= cityDiffers; i++ {
		alone = alone && (v[i] == 0 || i == phoneBrand)
	}
	if alone {
		v[nameAlone] = 1
	}
	if v[nameUnknown] == 1 {
		return
	}
	v[strangers] = 1 - ramp(max(v[nameOverlap], v[nameContained]*0.8, v[nameJoined]), 0.15, 0.45)
	v[nameTranslated] = untold * v[strangers] * v.placed()
}

// placed returns how well the address or the position agrees where the telephone does, 0 where it does not. Address and
// position are the same evidence. Having both adds so little that names with nothing in common stay undecided, neither
// refused nor found.
func (v *vector) placed() float64 {
	if v[phoneSame] == 0 {
		return 0
	}
	return max(v[addressSame], v[geoSpot]) - 0.6*min(v[addressSame], v[geoSpot])
}

// ramp is 0 up to low, 1 from high, and straight between.
func ramp(x, low, high float64) float64 {
	return max(0, min(1, (x-low)/(high-low)))
}

// earthRadius is the mean radius of the earth in metres.
const earthRadius = 6371008.8

// usable reports whether a point is on the earth. A zero means an unset field.
func (p *Point) usable() bool {
	return p != nil && math.Abs(p.Lat) <= 90 && math.Abs(p.Lng) <= 180 && p.Lat != 0 && p.Lng != 0
}

// Mirrored reports whether two points are neighbours but for a lost sign or for latitude and longitude in the wrong order.
func Mirrored(a, b Point) bool {
	near := func(x, y float64) bool { return math.Abs(math.Abs(x)-math.Abs(y)) < mirroredDegrees }
	return near(a.Lat, b.Lat) && near(a.Lng, b.Lng) || near(a.Lat, b.Lng) && near(a.Lng, b.Lat)
}

// mirroredDegrees is about as far as a quarter of a town.
const mirroredDegrees = quarter / 111_195.0

// metres returns the great-circle distance of two points by the haversine formula.
func metres(a, b Point) float64 {
	const degree = math.Pi / 180
	sinLat := math.Sin((b.Lat - a.Lat) * degree / 2)
	sinLng := math.Sin((b.Lng - a.Lng) * degree / 2)
	h := sinLat*sinLat + math.Cos(a.Lat*degree)*math.Cos(b.Lat*degree)*sinLng*sinLng
	return 2 * earthRadius * math.Asin(math.Sqrt(min(1, h)))
}

//go:embed weights.tsv
var weightsText string

// base is the log-odds of a pair without observations. weights has the number that each feature, when fully observed, adds to it.
var base, weights = parseWeights(weightsText)

// parseWeights panics on a mistake in the text, which is a part of the program.
func parseWeights(text string) (base float64, weights [features]float64) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		feature, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
		weight, err := strconv.ParseFloat(value, 64)
		i := slices.Index(featureNames[:], feature)
		switch {
		case err == nil && feature == "base":
			base = weight
		case err == nil && i >= 0:
			weights[i] = weight
		default:
			panic("match: weights.tsv: want the name of a feature and a number: " + line)
		}
	}
	return base, weights
}
