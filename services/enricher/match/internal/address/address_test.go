package address_test

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/address"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func words(a address.Address) string {
	var out []string
	for _, t := range a.Street {
		out = append(out, t.Text)
	}
	return strings.Join(out, " ")
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/parse.tsv") {
		a := address.Parse(row[0], nil)
		got := ""
		for _, n := range a.Numbers {
			got += fmt.Sprintf("%d-%d", n.Low, n.High)
		}
		check.That(t, words(a) == row[1] && got == row[2], "%q is %s in %q, want %s in %q", row[0], got, words(a), row[2], row[1])
	}
}

// numberVerdicts are the verdicts about house numbers, as the tables have them.
var numberVerdicts = map[string]address.NumberAgreement{
	"differs": address.NumberDiffers, "near": address.NumberNear, "same": address.NumberSame, "unknown": address.NumberUnknown,
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/compare.tsv") {
		number, opposite := strings.CutSuffix(row[1], " opposite")
		a, b := address.Parse(row[2], nil), address.Parse(row[3], nil)
		for range 2 {
			g := address.Compare(&a, &b)
			check.That(t, g.Comparable && verdict(g) == row[0] && g.Number == numberVerdicts[number] && g.Opposite == opposite,
				"%q and %q: %+v, want %s, %s", row[2], row[3], g, row[0], row[1])
			a, b = b, a
		}
	}
}

func TestNothingToCompare(t *testing.T) {
	t.Parallel()
	full := address.Parse("123 Main St", nil)
	for _, s := range []string{"", ",,,", "#5", "Suite 200"} {
		a := address.Parse(s, nil)
		g := address.Compare(&a, &full)
		check.That(t, !g.Comparable || !(g.Street >= 0.5), "%q compares: %+v", s, g)
	}
}

// TestCityIsNoStreet checks that the city's name does not make two streets one.
func TestCityIsNoStreet(t *testing.T) {
	t.Parallel()
	city := []string{"tel", "aviv"}
	a, b := address.Parse("Dizengoff 99 Tel Aviv", city), address.Parse("Allenby 99 Tel Aviv", city)
	g := address.Compare(&a, &b)
	check.That(t, !(g.Street > 0.3), "streets are %v alike", g.Street)
	if c := address.Parse("Tel Aviv", city); c.Present() {
		t.Errorf("the city is a street: %q", words(c))
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"12-14 Main St., Suite 200", "#-/0-0/0", "1-", "銀座4-2-15", "999999999999-1", "ул. д. 5", "1/2/3", "a-1-b"} {
		f.Add(s, "tel aviv")
	}
	f.Fuzz(func(t *testing.T, s, city string) {
		a, b := address.Parse(s, strings.Fields(city)), address.Parse(city, nil)
		g, h := address.Compare(&a, &b), address.Compare(&b, &a)
		check.Require(t, g.Comparable == h.Comparable && g.Number == h.Number && !(g.Street > 1) && len(a.Street) <= 16, "%+v %+v", g, h)
	})
}

// TestHouseNumbers reads house numbers as they are written in many countries.
func TestHouseNumbers(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/numbers.tsv") {
		got := ""
		for _, n := range address.Parse(row[0], nil).Numbers {
			got += fmt.Sprintf("%d-%d of %d", n.Low, n.High, n.Digits)
		}
		check.That(t, got == row[1], "%q has the numbers %s, want %s", row[0], got, row[1])
	}
}

// TestHouseRanges compares house numbers of one street.
func TestHouseRanges(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/ranges.tsv") {
		a, b := address.Parse(row[1]+" Main St", nil), address.Parse("Main Street "+row[2], nil)
		for range 2 {
			g := address.Compare(&a, &b)
			check.That(t, g.Number == numberVerdicts[row[0]] && !(g.Street < 0.99), "%q and %q: %+v, want %s", row[1], row[2], g, row[0])
			a, b = b, a
		}
	}
}

// TestStreetsOfOneScript compares streets whose names have something in common.
func TestStreetsOfOneScript(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/streets.tsv") {
		a, b := address.Parse(row[1], nil), address.Parse(row[2], nil)
		g := address.Compare(&a, &b)
		check.That(t, !g.Heard && (verdict(g) == "same") == (row[0] == "same"), "%q and %q: %+v, want %s", row[1], row[2], g, row[0])
	}
}

func verdict(g address.Agreement) string {
	switch {
	case g.Street < 0:
		return "unsure"
	case g.Street >= 0.74:
		return "same"
	case g.Street <= 0.5:
		return "other"
	}
	return "between"
}

// TestStreetsAcrossScripts compares streets in Hebrew, Arabic, Cyrillic and Greek letters with Latin ones.
func TestStreetsAcrossScripts(t *testing.T) {
	t.Parallel()
	count := map[string]int{}
	for _, row := range check.Rows(t, "testdata/scripts.tsv") { // verdicts of a person who reads both
		count[row[0]]++
		a, b := address.Parse(row[1], nil), address.Parse(row[2], nil)
		g, h := address.Compare(&a, &b), address.Compare(&b, &a)
		check.That(t, verdict(g) == row[0] && g.Heard && g.Number == address.NumberSame && g == h, "%q: %+v and back %+v", row, g, h)
	}
	check.That(t, count["same"] >= 40 && count["other"] >= 30, "the table has %v", count)
}

// TestNumeralsAreNotHeard checks that a Roman numeral does not sound like its letters.
func TestNumeralsAreNotHeard(t *testing.T) {
	t.Parallel()
	a, b := address.Parse("דרך יפו 5", nil), address.Parse("Paulus VI St 5", nil)
	g := address.Compare(&a, &b)
	check.That(t, verdict(g) != "same", "%+v", g)
}

// TestStreetsDoNotMeet compares each street of the table with the Latin form of every other one of another name: if
// more than a few sounded alike, branches of a chain would be linked.
func TestStreetsDoNotMeet(t *testing.T) {
	t.Parallel()
	all := check.Rows(t, "testdata/scripts.tsv")
	parsed := make([]address.Address, len(all))
	for i, row := range all {
		parsed[i] = address.Parse(row[2], nil)
	}
	met, tried := 0, 0
	for _, row := range all {
		if row[0] != "same" {
			continue
		}
		a, own := address.Parse(row[1], nil), address.Parse(row[2], nil)
		for j := range all {
			if g := address.Compare(&own, &parsed[j]); g.Street > 0.3 {
				continue // the same street, or one of two words
			}
			tried++
			if g := address.Compare(&a, &parsed[j]); verdict(g) == "same" {
				met++
				t.Logf("%q and %q: %+v", row[1], all[j][2], g)
			}
		}
	}
	check.That(t, met*200 <= tried && tried >= 5000, "%d of %d streets meet another", met, tried)
}

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
	check.Equal(t, citiesAre(address.CompareCities(&none, &haifa, words, nil)), "same", "in the address")
	check.Equal(t, citiesAre(address.CompareCities(&none, &haifa, strings.Fields("herzl 5"), nil)), "unknown", "nowhere")
	other := address.ParseCity("Acre")
	check.Equal(t, citiesAre(address.CompareCities(&other, &haifa, words, nil)), "same", "a suburb whose address names the city")
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
