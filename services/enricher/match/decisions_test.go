package match_test

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
)

// golden is one hand-written decision.
type golden struct {
	A    match.Place   `json:"a"`
	B    match.Place   `json:"b"`
	Want match.Outcome `json:"want"`
	Why  string        `json:"why"`
}

func goldens(t testing.TB) []golden {
	t.Helper()
	f := check.Must(os.Open("testdata/decisions.jsonl"))(t)
	defer f.Close()
	var out []golden
	for s := bufio.NewScanner(f); s.Scan(); {
		var g golden
		err := json.Unmarshal(s.Bytes(), &g)
		check.Require(t, err == nil, "line %d: %v", len(out)+1, err)
		out = append(out, g)
	}
	return out
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	for _, g := range goldens(t) {
		t.Run(g.Why, func(t *testing.T) {
			t.Parallel()
			d := match.Best(g.A, []match.Place{g.B})
			check.That(t, d.Outcome == g.Want, "%q and %q: %s, want %s\n%s", g.A.Name, g.B.Name, d.Outcome, g.Want, d.Evidence)
			check.Same(t, "the other way round", match.Best(g.B, []match.Place{g.A}).Outcome, g.Want)
		})
	}
}

type brand struct{ foreign, latin string }

func brands(t *testing.T) (all []brand) {
	t.Helper()
	for _, row := range check.Rows(t, "testdata/brands.tsv") {
		all = append(all, brand{foreign: row[0], latin: row[1]})
	}
	return all
}

// TestHotelInTwoScripts puts every two brands into one hotel: all agrees but the names. None may be taken for another.
func TestHotelInTwoScripts(t *testing.T) {
	t.Parallel()
	list := brands(t)
	found, tried := 0, 0
	for i, a := range list {
		p := match.Prepare(match.Place{Name: a.foreign, Address: "הרצל 12", City: "חיפה", Phone: "04-8555555", Location: at(32, 34)})
		for j, b := range list {
			if i == j || a.latin == b.latin || a.foreign == b.foreign {
				continue
			}
			tried++
			q := match.Prepare(match.Place{Name: b.latin, Address: "12 Herzl St", City: "Haifa", Phone: "+972 4 8555555", Location: at(32, 34)})
			if d := p.Best([]*match.Prepared{q}); d.Outcome == match.Found {
				found++
				t.Logf("%s is %s: %s", a.foreign, b.latin, d.Evidence)
			}
		}
	}
	check.That(t, found*200 <= tried, "%d of %d were taken for one", found, tried)
}

// TestBrandsAcrossScripts asks for each name among all Latin ones, with the city as the only other evidence.
func TestBrandsAcrossScripts(t *testing.T) {
	t.Parallel()
	list := brands(t)
	latin := make([]*match.Prepared, len(list))
	for i, b := range list {
		latin[i] = match.Prepare(match.Place{Name: b.latin, City: "Haifa"})
	}
	ranked, found := 0, 0
	for i, b := range list {
		query := match.Prepare(match.Place{Name: b.foreign, City: "Haifa"})
		best := query.Best(latin).Index
		if list[best].latin == b.latin {
			ranked++
		} else {
			t.Logf("%s: %s comes before %s", b.foreign, list[best].latin, b.latin)
		}
		for j, l := range latin {
			score := query.Compare(l).Score
			switch {
			case i == j && score >= match.FoundScore:
				found++
			case score >= match.FoundScore && list[j].latin != b.latin:
				t.Errorf("%s was found as %s: %s", b.foreign, list[j].latin, query.Compare(l))
			}
		}
	}
	t.Logf("%d of %d ranked first, %d found by name and city alone", ranked, len(list), found)
	check.That(t, len(list) >= 40 && ranked*100 >= len(list)*95, "%d of %d ranked first", ranked, len(list))
	check.That(t, found*100 >= len(list)*75, "only %d of %d found by name and city", found, len(list))
}

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

// venuesOf are the second places of the pairs.
func venuesOf(all []golden) []*match.Prepared {
	venues := make([]*match.Prepared, len(all))
	for i, g := range all {
		venues[i] = match.Prepare(g.B)
	}
	return venues
}

// TestOrderOfCandidates checks that the answer does not depend on it.
func TestOrderOfCandidates(t *testing.T) {
	t.Parallel()
	all := goldens(t)
	venues := venuesOf(all)
	backwards := slices.Clone(venues)
	slices.Reverse(backwards)
	for _, g := range all {
		place := match.Prepare(g.A)
		x, y := place.Best(venues), place.Best(backwards)
		check.That(t, x.Outcome == y.Outcome && x.Score == y.Score && x.Margin == y.Margin,
			"%q: %s %.3f %.3f forwards, %s %.3f %.3f backwards", g.A.Name, x.Outcome, x.Score, x.Margin, y.Outcome, y.Score, y.Margin)
	}
}

// TestAmongAll asks for each place of a matching pair among the venues of all pairs: a crowd must not hide it.
func TestAmongAll(t *testing.T) {
	t.Parallel()
	all := goldens(t)
	venues := venuesOf(all)
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

func TestEvidenceExplainsTheScore(t *testing.T) {
	t.Parallel()
	for _, g := range goldens(t) {
		e := match.Compare(g.A, g.B)
		sum := e.Base
		for _, f := range e.Features {
			check.That(t, !(f.Value <= 0) && !(f.Value > 1), "%s: %s is %v", g.Why, f.Name, f.Value)
			sum += f.Contribution
		}
		got := 1 / (1 + math.Exp(-sum))
		check.That(t, !(math.Abs(got-e.Score) > 0.001), "%s: the contributions give %.4f, the score is %.4f", g.Why, got, e.Score)
	}
}

func TestEvidenceIsSmall(t *testing.T) {
	t.Parallel()
	for _, g := range goldens(t) {
		e := match.Compare(g.A, g.B)
		raw := check.Must(json.Marshal(e))(t)
		check.That(t, len(raw) <= 1500, "%s: %d bytes: %s", g.Why, len(raw), raw)
		var back match.Evidence
		check.OK(t, json.Unmarshal(raw, &back))
		diff := cmp.Diff(e, back)
		check.That(t, diff == "", "%s: JSON loses something: %s", g.Why, diff)
		line := e.String()
		check.That(t, !strings.Contains(line, "\n") && e.Model == match.ModelVersion, "%s: %q", g.Why, line)
	}
}

// TestMissingFieldIsNoObservation checks that a field that one side lacks leaves no trace.
func TestMissingFieldIsNoObservation(t *testing.T) {
	t.Parallel()
	a := match.Place{Name: "Spago", City: "Haifa"}
	full := match.Place{Name: "Spago", City: "Haifa", Address: "Allenby 5", Phone: "04-8555555", Location: at(32.8, 35)}
	check.Equal(t, match.Compare(a, a), match.Compare(a, full))
}

func TestDistance(t *testing.T) {
	t.Parallel()
	const metre = 1 / 111195.0 // of latitude, in degrees
	for _, test := range []struct {
		metres float64
		want   string
	}{
		{0, "geo.60m"},
		{59, "geo.60m"},
		{61, "geo.150m"},
		{149, "geo.150m"},
		{151, "geo.500m"},
		{501, "geo.1500m"},
		{1499, "geo.1500m"},
		{1501, "geo.far"},
		{5e6, "geo.far"},
	} {
		e := match.Compare(match.Place{Name: "Spago", Location: at(32, 34)}, match.Place{Name: "Spago", Location: at(32+test.metres*metre, 34)})
		check.That(t, observed(e, test.want) != 0, "%v m: %s, want %s", test.metres, e, test.want)
	}
	for _, bad := range []*match.Point{{}, {Lat: 91, Lng: 1}, {Lat: 1, Lng: 181}, {Lat: math.NaN(), Lng: 1}, {Lat: math.Inf(1), Lng: 0}} {
		e := match.Compare(match.Place{Name: "Spago", Location: bad}, match.Place{Name: "Spago", Location: at(32, 34)})
		for _, f := range e.Features {
			if strings.HasPrefix(f.Name, "geo.") {
				t.Errorf("%v was taken for a place: %s", *bad, e)
			}
		}
	}
}

// TestFarIsAVeto checks that nothing but the same address in one city outweighs a distance.
func TestFarIsAVeto(t *testing.T) {
	t.Parallel()
	a := match.Place{Name: "Spago", Phone: "04-8555555", City: "Haifa", Location: at(32.8, 35)}
	b := a
	b.Location = at(32.82, 35)
	d := match.Best(a, []match.Place{b})
	check.That(t, d.Outcome != match.Found, "found 2 km away: %s", d.Evidence)
	a.Address, b.Address = "Allenby 5", "5 Allenby St."
	d = match.Best(a, []match.Place{b})
	check.That(t, d.Outcome == match.Found, "a location that is off outweighs the address: %s", d.Evidence)
	b.City = "Acre"
	d = match.Best(a, []match.Place{b})
	check.That(t, d.Outcome != match.Found, "found in another city: %s", d.Evidence)
}

func observed(e match.Evidence, name string) float64 {
	for _, f := range e.Features {
		if f.Name == name {
			return f.Value
		}
	}
	return 0
}
