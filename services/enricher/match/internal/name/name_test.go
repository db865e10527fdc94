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
