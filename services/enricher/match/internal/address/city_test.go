package address_test

import (
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/address"
)

func TestCompareCities(t *testing.T) {
	t.Parallel()
	verdicts := map[string]address.CityAgreement{"differs": address.CityDiffers, "same": address.CitySame, "unknown": address.CityUnknown}
	for _, row := range check.Rows(t, "testdata/city.tsv") {
		want, a, b := verdicts[row[0]], address.ParseCity(row[1]), address.ParseCity(row[2])
		got, back := address.CompareCities(&a, &b, nil, nil), address.CompareCities(&b, &a, nil, nil)
		check.That(t, got == want && back == want, "%q and %q: %d and %d, want %s", row[1], row[2], got, back, row[0])
	}
}

// TestCityInTheAddress checks that a city that only the other's address names is the same, and that none is made up.
func TestCityInTheAddress(t *testing.T) {
	t.Parallel()
	none, haifa := address.ParseCity(""), address.ParseCity("Haifa")
	words := strings.Fields("herzl 5 haifa israel")
	check.Same(t, "in the address", address.CompareCities(&none, &haifa, words, nil), address.CitySame)
	check.Same(t, "nowhere", address.CompareCities(&none, &haifa, strings.Fields("herzl 5"), nil), address.CityUnknown)
	other := address.ParseCity("Acre")
	check.Same(t, "a suburb whose address names the city", address.CompareCities(&other, &haifa, words, nil), address.CitySame)
}

// TestAliasesOfCities compares every name of a city with every other of it, and with those of all other cities.
func TestAliasesOfCities(t *testing.T) {
	t.Parallel()
	names := check.Rows(t, "testdata/cities.tsv")
	for i, one := range names {
		for j, other := range names {
			for _, x := range one {
				for _, y := range other {
					a, b := address.ParseCity(x), address.ParseCity(y)
					got := address.CompareCities(&a, &b, nil, nil)
					check.That(t, i != j || got == address.CitySame, "%q and %q: %d", x, y, got)
					check.That(t, i == j || got != address.CitySame || joined(one, other), "%q is %q", x, y)
				}
			}
		}
	}
}

// joined reports whether two names are those of Tel Aviv and Jaffa, which are one city.
func joined(x, y []string) bool {
	return x[0] == "Jaffa" && y[0] == "Tel Aviv" || x[0] == "Tel Aviv" && y[0] == "Jaffa"
}
