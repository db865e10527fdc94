package address_test

import (
	"os"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/address"
)

// crossing is two addresses in different scripts and what a person who reads both states of their streets.
type crossing struct{ verdict, a, b string }

func crossings(t *testing.T) []crossing {
	t.Helper()
	raw, err := os.ReadFile("testdata/scripts.tsv")
	check.OK(t, err)
	var out []crossing
	for line := range strings.Lines(string(raw)) {
		if f := strings.Split(strings.TrimSpace(line), "\t"); len(f) == 3 && !strings.HasPrefix(line, "#") {
			out = append(out, crossing{verdict: f[0], a: f[1], b: f[2]})
		}
	}
	return out
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
	for _, c := range crossings(t) {
		count[c.verdict]++
		a, b := address.Parse(c.a, nil), address.Parse(c.b, nil)
		g, h := address.Compare(&a, &b), address.Compare(&b, &a)
		got := verdict(g)
		check.That(t, got == c.verdict && g.Heard && g.Number == address.NumberSame, "%q and %q: %s, want %s: %+v", c.a, c.b, got, c.verdict, g)
		check.That(t, g == h, "%q and %q: %+v one way, %+v the other", c.a, c.b, g, h)
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
	all := crossings(t)
	parsed := make([]address.Address, len(all))
	for i, c := range all {
		parsed[i] = address.Parse(c.b, nil)
	}
	met, tried := 0, 0
	for _, c := range all {
		if c.verdict != "same" {
			continue
		}
		a, own := address.Parse(c.a, nil), address.Parse(c.b, nil)
		for j := range all {
			if g := address.Compare(&own, &parsed[j]); g.Street > 0.3 {
				continue // the same street, or one of two words
			}
			tried++
			if g := address.Compare(&a, &parsed[j]); verdict(g) == "same" {
				met++
				t.Logf("%q and %q: %+v", c.a, all[j].b, g)
			}
		}
	}
	check.That(t, met*200 <= tried && tried >= 5000, "%d of %d streets meet another", met, tried)
}
