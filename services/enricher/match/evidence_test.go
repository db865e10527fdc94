package match_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
)

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
		raw, err := json.Marshal(e)
		check.OK(t, err)
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
