package match_test

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

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
	f, err := os.Open("testdata/decisions.jsonl")
	check.OK(t, err)
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

func brands(t *testing.T) []brand {
	t.Helper()
	raw, err := os.ReadFile("testdata/brands.tsv")
	check.OK(t, err)
	var out []brand
	for line := range strings.Lines(string(raw)) {
		if foreign, latin, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			out = append(out, brand{foreign: foreign, latin: latin})
		}
	}
	return out
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
			score := query.Score(l)
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
