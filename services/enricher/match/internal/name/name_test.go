package name_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/name"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func compare(a, b string) name.Agreement {
	p, q := name.Parse(a, nil, nil), name.Parse(b, nil, nil)
	return name.Compare(&p, &q, nil, nil)
}

// TestSameName lists ways of writing one name: all telling words agree and nothing is left on both sides.
func TestSameName(t *testing.T) {
	t.Parallel()
	for _, pair := range check.Rows(t, "testdata/same.tsv") {
		g := compare(pair[0], pair[1])
		check.That(t, g.Comparable && g.Containment >= 0.84 && g.Conflict <= 0.3 && (g.Exact >= 0.2 || g.Joined >= 0.85),
			"%q and %q: %+v", pair[0], pair[1], g)
	}
}

// TestOtherName lists names that look alike and are not.
func TestOtherName(t *testing.T) {
	t.Parallel()
	for _, pair := range check.Rows(t, "testdata/others.tsv") {
		g := compare(pair[0], pair[1])
		check.That(t, g.Exact <= 0 && g.Conflict >= 0.5, "%q and %q: %+v", pair[0], pair[1], g)
	}
}

func TestObservations(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b    string
		feature string
		got     func(name.Agreement) float64
		want    float64
	}{
		{"Pier 23", "Pier 39", "numbers differ", func(g name.Agreement) float64 { return g.NumbersDiffer }, 1},
		{"Pier 39", "Pier 39", "numbers same", func(g name.Agreement) float64 { return g.NumbersSame }, 1},
		{"McDonald's #1234", "McDonald's", "numbers differ", func(g name.Agreement) float64 { return g.NumbersDiffer }, 0},
		{"Ritz Cafe", "Ritz Dining Room", "kinds differ", func(g name.Agreement) float64 { return g.KindsDiffer }, 1},
		{"Ritz Cafe", "Ritz", "kinds differ", func(g name.Agreement) float64 { return g.KindsDiffer }, 0},
		{"Ritz Café", "קפה ריץ", "kinds differ", func(g name.Agreement) float64 { return g.KindsDiffer }, 0},
		{"Dishoom - Shoreditch", "Dishoom - Carnaby", "branches differ", func(g name.Agreement) float64 { return g.BranchDiffer }, 1},
		{"Dishoom - Shoreditch", "Dishoom", "branches differ", func(g name.Agreement) float64 { return g.BranchDiffer }, 0},
		{"Dishoom - Shoreditch", "Dishoom (Shoreditch)", "branch same", func(g name.Agreement) float64 { return g.BranchSame }, 1},
		{"Golden Pizza", "Golden Burger", "only common words", func(g name.Agreement) float64 { return g.Common }, 1},
		{"Ginger Pizza", "Ginger Burger", "only common words", func(g name.Agreement) float64 { return g.Common }, 0},
		{"ג'ירף", "Giraffe", "two scripts", func(g name.Agreement) float64 { return g.Cross }, 1},
		{"Giraffe", "Giraffe", "two scripts", func(g name.Agreement) float64 { return g.Cross }, 0},
		{"KFC", "Kentucky Fried Chicken", "conflict", func(g name.Agreement) float64 { return g.Conflict }, 0},
	} {
		for _, g := range []name.Agreement{compare(test.a, test.b), compare(test.b, test.a)} {
			got := test.got(g)
			check.That(t, got == test.want, "%q and %q: %s %v, want %v", test.a, test.b, test.feature, got, test.want)
		}
	}
}

func TestIncomparable(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"鼎泰豐", "Din Tai Fung"}, {"", "Spago"}, {"", ""}, {"!!!", "Spago"}} {
		g := compare(pair[0], pair[1])
		check.That(t, !g.Comparable, "%q and %q: %+v", pair[0], pair[1], g)
	}
	g := compare("鼎泰豐 Din Tai Fung", "Din Tai Fung")
	check.That(t, g.Comparable && g.Exact == 1, "a bilingual name: %+v", g)
}

// TestLocalWords checks that words of the venue's own address count for little.
func TestLocalWords(t *testing.T) {
	t.Parallel()
	local := []string{"las", "vegas"}
	a, b := name.Parse("Spago Las Vegas", nil, local), name.Parse("Spago", nil, local)
	g := name.Compare(&a, &b, local, local)
	check.That(t, g.Exact == 1 && !(g.Overlap < 0.7), "own city: %+v", g)
	c := name.Parse("Patina Las Vegas", nil, local)
	g = name.Compare(&a, &c, local, local)
	check.That(t, g.Common == 1 && !(g.Conflict < 0.9), "only the city agrees: %+v", g)
}

func TestAliases(t *testing.T) {
	t.Parallel()
	a, b := name.Parse("Ocean Blue", []string{"Captain Jack", "קפטן ג'ק"}, nil), name.Parse("Captain Jack", nil, nil)
	check.Equal(t, name.Compare(&a, &b, nil, nil).Exact, 1, "exact")
}

// TestUntold tells names that may be translations of each other from names that are two.
func TestUntold(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want float64
	}{
		{"The Magician", "הקוסם", 1},
		{"The Fisherman", "Рыбак", 1},
		{"Pizza Roma", "פיצה נאפולי", 1},
		{"The Magician", "Spago", 0},
		{"House of Pancakes", "בית הפנקייק", 0},
		{"Taizu", "טאיזו", 0},
		{"Magician Cafe", "מאפיית הקוסם", 0},
		{"Magician Sushi", "פיצה הקוסם", 0},
		{"寿司大", "Sushi Dai", 0},
	} {
		for _, pair := range [][2]string{{test.a, test.b}, {test.b, test.a}} {
			g := compare(pair[0], pair[1])
			check.That(t, g.Untold == test.want, "%q and %q: %v, want %v: %+v", pair[0], pair[1], g.Untold, test.want, g)
		}
	}
}
