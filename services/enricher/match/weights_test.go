package match

import (
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// TestSigns checks that what a feature is called is what it does.
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
			if weights[order[i-1]] <= weights[order[i]] {
				t.Errorf("%s weighs %v, %s %v", featureNames[order[i-1]], weights[order[i-1]], featureNames[order[i]], weights[order[i]])
			}
		}
	}
	check.That(t, !(weights[nameAlone] > weights[cityDiffers]),
		"leaving out a city that differs would help: %v against %v", weights[nameAlone], weights[cityDiffers])
	sum := base + weights[addressSame] + weights[phoneSame] + weights[citySame] + weights[geoSpot] + weights[strangers] + weights[nameConflict] + weights[nameCommon]
	check.That(t, !(sum > 0), "two names that share nothing are more likely one venue than not: %v", sum)
}
