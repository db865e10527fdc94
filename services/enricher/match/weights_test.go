package match

import (
	"math"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// TestSigns checks that each weight has the sign that the name of its feature implies.
func TestSigns(t *testing.T) {
	t.Parallel()
	against := map[feature]bool{
		nameConflict: true, nameCommon: true, nameCross: true, nameShort: true, nameNumbersDiffer: true, nameKindsDiffer: true, nameAlone: true,
		branchDiffers: true, addressNumberNear: true, addressNumberDiffers: true, addressOther: true, addressOpposite: true, phoneDiffers: true,
		geoBlock: true, geoQuarter: true, geoFar: true, geoFarSameAddress: true, cityDiffers: true, strangers: true,
	}
	seen := map[string]bool{}
	for f := range features {
		name := featureNames[f]
		check.That(t, name != "" && strings.ToLower(name) == name && !seen[name], "feature %d is called %q", f, name)
		seen[name] = true
		w := weights[f]
		check.That(t, w != 0 && w < 0 == against[f], "%s weighs %v", name, w)
	}
}

// TestOrder checks that more evidence of a kind weighs more.
func TestOrder(t *testing.T) {
	t.Parallel()
	for _, order := range [][]feature{
		{geoSpot, geoDoor, geoBlock, geoQuarter, geoFar},
		{addressSame, addressStreet, addressNumberNear, addressNumberDiffers, addressOther},
		{addressSame, addressNumberOnly},
		{phoneSame, phoneLocal, phoneDiffers},
		{geoFarSameAddress, geoFar},
	} {
		for i := 1; i < len(order); i++ {
			check.That(t, weights[order[i-1]] > weights[order[i]],
				"%s weighs %v, %s %v", featureNames[order[i-1]], weights[order[i-1]], featureNames[order[i]], weights[order[i]])
		}
	}
	check.That(t, !(weights[nameAlone] > weights[cityDiffers]),
		"leaving out a city that differs would help: %v against %v", weights[nameAlone], weights[cityDiffers])
	sum := base + weights[addressSame] + weights[phoneSame] + weights[citySame] + weights[geoSpot] + weights[strangers] + weights[nameConflict] + weights[nameCommon]
	check.That(t, !(sum > 0), "two names that share nothing are more likely one venue than not: %v", sum)
}

// TestMetres holds distances on a sphere of the mean radius.
func TestMetres(t *testing.T) {
	t.Parallel()
	const quarterCircle = earthRadius * math.Pi / 2
	for _, test := range []struct {
		a, b Point
		want float64
	}{
		{Point{32, 34}, Point{32, 34}, 0},
		{Point{0, 0.5}, Point{0, 1.5}, quarterCircle / 90},
		{Point{60, 0}, Point{60, 1}, 55597},
		{Point{90, 0}, Point{0, 77}, quarterCircle},
		{Point{0, 1}, Point{0, -179}, 2 * quarterCircle},
		{Point{10, 179.5}, Point{10, -179.5}, 109504},
		{Point{32.0853, 34.7818}, Point{31.7683, 35.2137}, 53904}, // Tel Aviv to Jerusalem
	} {
		there, back := Metres(test.a, test.b), Metres(test.b, test.a)
		check.That(t, !(math.Abs(there-test.want) > 1+test.want/1000) && there == back,
			"%v to %v: %.0f m, back %.0f m, want %.0f", test.a, test.b, there, back, test.want)
	}
}

func TestRamp(t *testing.T) {
	t.Parallel()
	for x, want := range map[float64]float64{-1: 0, 0.5: 0, 0.62: 0.5, 0.74: 1, 2: 1} {
		got := ramp(x, otherStreet, sameStreet)
		check.That(t, !(math.Abs(got-want) > 1e-9), "ramp(%v) = %v, want %v", x, got, want)
	}
}
