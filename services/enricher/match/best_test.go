package match_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func at(lat, lng float64) *match.Point { return &match.Point{Lat: lat, Lng: lng} }

func TestBest(t *testing.T) {
	t.Parallel()
	dizengoff := match.Place{Name: "Aroma | Dizengoff", Address: "Dizengoff 50", City: "Tel Aviv"}
	rabin := match.Place{Name: "Aroma | Rabin Square", Address: "Ibn Gabirol 71", City: "Tel Aviv"}
	bare := match.Place{Name: "Aroma", City: "Tel Aviv"}
	for _, test := range []struct {
		name       string
		query      match.Place
		candidates []match.Place
		outcome    match.Outcome
		index      int
		rival      int
	}{
		{"no candidates", bare, nil, match.NotFound, -1, -1},
		{"the address picks the branch", match.Place{Name: "Aroma Espresso Bar", Address: "Ibn Gabirol St 71", City: "Tel Aviv"}, []match.Place{dizengoff, rabin}, match.Found, 1, -1},
		{"the branch in the name picks it", match.Place{Name: "Aroma Dizengoff", City: "Tel Aviv"}, []match.Place{rabin, dizengoff}, match.Found, 1, -1},
		{"nothing picks a branch", bare, []match.Place{bare, bare}, match.Ambiguous, 0, 1},
		{"one venue listed twice", match.Place{Name: "Aroma", Address: "Dizengoff 50", City: "Tel Aviv"}, []match.Place{dizengoff, dizengoff}, match.Found, 0, -1},
		{
			"the nearer of two branches",
			match.Place{Name: "Giraffe", Location: at(32.0805, 34.7805)},
			[]match.Place{{Name: "Giraffe", Location: at(32.0850, 34.7805)}, {Name: "Giraffe", Location: at(32.0806, 34.7806)}},
			match.Found, 1, -1,
		},
		{
			"two branches at one distance",
			match.Place{Name: "Giraffe", Location: at(32.0805, 34.7805)},
			[]match.Place{{Name: "Giraffe", Location: at(32.0802, 34.7805)}, {Name: "Giraffe", Location: at(32.0808, 34.7805)}},
			match.Ambiguous, 0, 1,
		},
		{"none is it", match.Place{Name: "Taizu", City: "Tel Aviv"}, []match.Place{dizengoff, rabin, {Name: "Miznon", City: "Tel Aviv"}}, match.NotFound, -1, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := match.Best(test.query, test.candidates)
			check.That(t, d.Outcome == test.outcome && (test.index < 0 || d.Index == test.index),
				"%s %d (margin %.2f), want %s %d: %s", d.Outcome, d.Index, d.Margin, test.outcome, test.index, d.Evidence)
			check.That(t, d.Rival == test.rival || test.outcome != match.Ambiguous, "rival %d, want %d", d.Rival, test.rival)
		})
	}
}

// TestOrderOfCandidates checks that the answer does not depend on it.
func TestOrderOfCandidates(t *testing.T) {
	t.Parallel()
	all := goldens(t)
	var venues, backwards []match.Place
	for _, g := range all {
		venues = append(venues, g.B)
		backwards = append([]match.Place{g.B}, backwards...)
	}
	for _, g := range all {
		x, y := match.Best(g.A, venues), match.Best(g.A, backwards)
		check.That(t, x.Outcome == y.Outcome && x.Score == y.Score && x.Margin == y.Margin,
			"%q: %s %.3f %.3f forwards, %s %.3f %.3f backwards", g.A.Name, x.Outcome, x.Score, x.Margin, y.Outcome, y.Score, y.Margin)
	}
}

// TestAmongAll asks for each place of a matching pair among the venues of all pairs: a crowd must not hide it.
func TestAmongAll(t *testing.T) {
	t.Parallel()
	all := goldens(t)
	venues := make([]*match.Prepared, len(all))
	for i, g := range all {
		venues[i] = match.Prepare(g.B)
	}
	right, asked := 0, 0
	for i, g := range all {
		if g.Want != match.Found {
			continue
		}
		asked++
		if d := match.Prepare(g.A).Best(venues); d.Outcome == match.Found && all[d.Index].B.Name == all[i].B.Name {
			right++
		} else {
			t.Logf("%q: %s, %q, rival %d", g.A.Name, d.Outcome, all[d.Index].B.Name, d.Rival)
		}
	}
	check.That(t, right*100 >= asked*90, "%d of %d found among %d", right, asked, len(all))
}
