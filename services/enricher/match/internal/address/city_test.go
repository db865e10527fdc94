package address_test

import (
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/address"
)

// citiesAre returns the verdict about two cities, as the tables have it.
func citiesAre(same, known bool) string {
	switch {
	case same:
		return "same"
	case known:
		return "differs"
	}
	return "unknown"
}

func TestCompareCities(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/city.tsv") {
		a, b := address.ParseCity(row[1]), address.ParseCity(row[2])
		got, back := citiesAre(address.CompareCities(&a, &b, nil, nil)), citiesAre(address.CompareCities(&b, &a, nil, nil))
		check.That(t, got == row[0] && back == row[0], "%q and %q: %s and %s, want %s", row[1], row[2], got, back, row[0])
	}
}

// TestCityInTheAddress checks that a city that only the other's address names is the same, and that none is made up.
func TestCityInTheAddress(t *testing.T) {
	t.Parallel()
	none, haifa := address.ParseCity(""), address.ParseCity("Haifa")
	words := strings.Fields("herzl 5 haifa israel")
	check.Same(t, "in the address", citiesAre(address.CompareCities(&none, &haifa, words, nil)), "same")
	check.Same(t, "nowhere", citiesAre(address.CompareCities(&none, &haifa, strings.Fields("herzl 5"), nil)), "unknown")
	other := address.ParseCity("Acre")
	check.Same(t, "a suburb whose address names the city", citiesAre(address.CompareCities(&other, &haifa, words, nil)), "same")
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
					same, _ := address.CompareCities(&a, &b, nil, nil)
					check.That(t, i != j || same, "%q and %q differ", x, y)
					check.That(t, i == j || !same || joined(one, other), "%q is %q", x, y)
				}
			}
		}
	}
}

// joined reports whether two names are those of Tel Aviv and Jaffa, which are one city.
func joined(x, y []string) bool {
	return x[0] == "Jaffa" && y[0] == "Tel Aviv" || x[0] == "Tel Aviv" && y[0] == "Jaffa"
}
