package city_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/city"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCompare(t *testing.T) {
	t.Parallel()
	verdicts := map[string]city.Agreement{"differs": city.Differs, "same": city.Same, "unknown": city.Unknown}
	for _, row := range check.Rows(t, "testdata/compare.tsv") {
		want, a, b := verdicts[row[0]], city.Parse(row[1]), city.Parse(row[2])
		got, back := city.Compare(&a, &b, nil, nil), city.Compare(&b, &a, nil, nil)
		check.That(t, got == want && back == want, "%q and %q: %d and %d, want %s", row[1], row[2], got, back, row[0])
	}
}

// TestCityInTheAddress checks that a city that only the other's address names is the same, and that none is made up.
func TestCityInTheAddress(t *testing.T) {
	t.Parallel()
	none, haifa := city.Parse(""), city.Parse("Haifa")
	address := strings.Fields("herzl 5 haifa israel")
	check.Same(t, "in the address", city.Compare(&none, &haifa, address, nil), city.Same)
	check.Same(t, "nowhere", city.Compare(&none, &haifa, strings.Fields("herzl 5"), nil), city.Unknown)
	other := city.Parse("Acre")
	check.Same(t, "a suburb whose address names the city", city.Compare(&other, &haifa, address, nil), city.Same)
}

// TestAliases compares every name of a city with every other of it, and with those of all other cities.
func TestAliases(t *testing.T) {
	t.Parallel()
	names := check.Rows(t, "testdata/names.tsv")
	for i, one := range names {
		for j, other := range names {
			for _, x := range one {
				for _, y := range other {
					a, b := city.Parse(x), city.Parse(y)
					got := city.Compare(&a, &b, nil, nil)
					check.That(t, i != j || got == city.Same, "%q and %q: %d", x, y, got)
					check.That(t, i == j || got != city.Same || joined(one, other), "%q is %q", x, y)
				}
			}
		}
	}
}

// joined reports whether two names are those of Tel Aviv and Jaffa, which are one city.
func joined(x, y []string) bool {
	return x[0] == "Jaffa" && y[0] == "Tel Aviv" || x[0] == "Tel Aviv" && y[0] == "Jaffa"
}
