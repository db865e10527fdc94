package match_test

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
)

// seen is a pair that shows a feature, and a pair that nearly does.
type seen struct {
	feature    string
	a, b       match.Place
	low, high  float64
	notA, notB match.Place
}

func named(a, b string) (p, q match.Place) { return match.Place{Name: a}, match.Place{Name: b} }

// names makes a row about names alone.
func names(feature, a, b string, low float64, notA, notB string) seen {
	s := seen{feature: feature, low: low, high: 1}
	s.a, s.b = named(a, b)
	s.notA, s.notB = named(notA, notB)
	return s
}

// addresses makes a row about addresses of one name.
func addresses(feature, a, b string, low, high float64, notA, notB string) seen {
	s := seen{feature: feature, low: low, high: high}
	for p, address := range map[*match.Place]string{&s.a: a, &s.b: b, &s.notA: notA, &s.notB: notB} {
		*p = match.Place{Name: "Spago", Address: address}
	}
	return s
}

// apart makes a row about one name at two places that are metres apart.
func apart(feature string, metres, notMetres float64) seen {
	const metre = 1 / 111195.0
	p := match.Place{Name: "Spago", Location: at(32, 34)}
	return seen{
		feature: feature, low: 1, high: 1,
		a: p, b: match.Place{Name: "Spago", Location: at(32+metres*metre, 34)},
		notA: p, notB: match.Place{Name: "Spago", Location: at(32+notMetres*metre, 34)},
	}
}

func with(p match.Place, change func(*match.Place)) match.Place {
	change(&p)
	return p
}

func features() []seen {
	spago := match.Place{Name: "Spago"}
	phone := func(n string) match.Place { return match.Place{Name: "Spago", Phone: n} }
	city := func(n string) match.Place { return match.Place{Name: "Spago", City: n} }
	home := match.Place{Name: "Spago", City: "Haifa", Address: "Allenby 5", Location: at(32, 34)}
	far := with(home, func(p *match.Place) { p.Location = at(32.5, 34) })
	magician := match.Place{Name: "הקוסם", Phone: "03-522-5005", Address: "הרצל 12"}
	translated := match.Place{Name: "The Sorcerer", Phone: "+972 3 522 5005", Address: "12 Herzl St"}
	return []seen{
		names("name.exact", "The Palm", "Palm Restaurant", 1, "Palm Beach", "Palm"),
		names("name.exact", "ג'ירף", "Giraffe", 0.5, "ג'ירף", "Jaffa"),
		names("name.overlap", "Blue Moon", "Blue Moon Cantina", 0.6, "Spago", "Patina"),
		names("name.contained", "Campanile", "Campanile Bistro Bar", 0.99, "Spago", "Patina"),
		names("name.joined", "Mc Donalds", "McDonald's", 0.9, "Spago", "Citrus"),
		names("name.conflict", "Golden Dragon", "Golden Garden", 0.5, "Golden Dragon", "Golden Dragon Wok"),
		names("name.common", "Sushi Bar", "Sushi House", 1, "Sushi Samba", "Samba Sushi"),
		names("name.cross", "טאיזו", "Taizu", 1, "Taizu", "Taizu"),
		names("name.short", "בני", "Benny", 0.3, "בנדיקט", "Benedict"),
		names("name.numbers_same", "Pier 39", "Pier 39 Grill", 1, "Pier 39", "Pier"),
		names("name.numbers_differ", "Pier 39", "Pier 41", 1, "Pier 39", "Pier"),
		names("name.unknown", "寿司大", "Sushi Dai", 1, "寿司大", "寿司大"),
		names("name.kinds_differ", "Ritz Cafe", "Ritz Bakery", 1, "Ritz Cafe", "Ritz"),
		{feature: "name.alone", low: 1, high: 1, a: spago, b: city("Haifa"), notA: city("Haifa"), notB: city("Haifa")},
		names("name.stranger", "Spago", "Patina", 0.99, "Spago", "Spago Bar"),
		names("branch.same", "Aroma - Dizengoff", "Aroma | Dizengoff", 1, "Aroma - Dizengoff", "Aroma"),
		names("branch.differs", "Aroma - Dizengoff", "Aroma | Rabin", 1, "Aroma - Dizengoff", "Aroma"),
		addresses("address.same", "Main St 5", "5 Main Street", 1, 1, "Main St 5", "5 Elm Street"),
		addresses("address.same", "הרצל 5", "5 Herzl St", 1, 1, "הרצל 5", "5 Allenby St"),
		addresses("address.street", "Main St", "5 Main Street", 1, 1, "Main St 5", "5 Main Street"),
		addresses("address.number_near", "Main St 5", "7 Main Street", 1, 1, "Main St 5", "50 Main Street"),
		addresses("address.number_differs", "Main St 5", "50 Main Street", 1, 1, "Main St 5", "7 Main Street"),
		addresses("address.number_differs", "忠孝東路5號", "50 Zhongxiao Rd", 0.5, 0.5, "忠孝東路5號", "7 Zhongxiao Rd"),
		addresses("address.other", "Main St 5", "5 Elm St", 1, 1, "Main St 5", "Main Str. 5"),
		addresses("address.other", "הרצל 5", "5 Allenby St", 0.4, 0.4, "הירקון 5", "5 HaYarden St"),
		addresses("address.other", "הרצל 5", "50 Allenby St", 1, 1, "הירקון 5", "50 HaYarden St"),
		addresses("address.other", "הרצל", "Allenby St", 0.7, 0.7, "הרצל", "Herzl St"),
		addresses("address.opposite", "155 E 55th St", "155 W 55th St", 1, 1, "155 E 55th St", "155 55th St"),
		addresses("address.number_only", "忠孝東路5號", "5 Zhongxiao Rd", 1, 1, "忠孝東路5號", "忠孝東路5號"),
		{feature: "phone.same", low: 1, high: 1, a: phone("212-555-1234"), b: phone("+1 212 555 1234"), notA: phone("212-555-1234"), notB: spago},
		{feature: "phone.local", low: 1, high: 1, a: phone("212-555-1234"), b: phone("555-1234"), notA: phone("212-555-1234"), notB: phone("556-1234")},
		{feature: "phone.differs", low: 1, high: 1, a: phone("212-555-1234"), b: phone("212-555-1235"), notA: phone("212-555-1234"), notB: phone("n/a")},
		apart("geo.60m", 59, 61),
		apart("geo.150m", 61, 151),
		apart("geo.500m", 151, 149),
		apart("geo.1500m", 501, 1501),
		apart("geo.far", 1501, 1499),
		{feature: "geo.far_same_address", low: 1, high: 1, a: home, b: far, notA: home, notB: with(far, func(p *match.Place) { p.City = "Acre" })},
		{feature: "city.same", low: 1, high: 1, a: city("חיפה"), b: city("Haifa"), notA: city("Haifa"), notB: spago},
		{feature: "city.differs", low: 1, high: 1, a: city("Haifa"), b: city("Acre"), notA: city("Haifa"), notB: city("台北")},
		{
			feature: "name.translated", low: 0.9, high: 1, a: magician, b: translated,
			notA: magician, notB: with(translated, func(p *match.Place) { p.Phone = "" }),
		},
	}
}

// TestFeatures shows each feature in a pair, and a like pair without it.
func TestFeatures(t *testing.T) {
	t.Parallel()
	left := map[string]bool{}
	for _, name := range match.FeatureNames() {
		left[name] = true
	}
	for _, s := range features() {
		delete(left, s.feature)
		e := match.Compare(s.a, s.b)
		if got := observed(e, s.feature); got < s.low-1e-3 || got > s.high+1e-3 {
			t.Errorf("%s of %+v and %+v is %v, want %v to %v: %s", s.feature, s.a, s.b, got, s.low, s.high, e)
		}
		e = match.Compare(s.notA, s.notB)
		got := observed(e, s.feature)
		check.That(t, !(got > 0) || !(got >= s.low), "%s of %+v and %+v is %v, want none: %s", s.feature, s.notA, s.notB, got, e)
	}
	check.That(t, len(left) == 0, "no pair shows %v", left)
}

// TestOneOfAKind checks that a field is never observed to agree and to disagree at once.
func TestOneOfAKind(t *testing.T) {
	t.Parallel()
	kinds := [][]string{
		{"phone.same", "phone.local", "phone.differs"},
		{"city.same", "city.differs"},
		{"geo.60m", "geo.150m", "geo.500m", "geo.1500m", "geo.far", "geo.far_same_address"},
		{"address.same", "address.street", "address.number_near", "address.number_differs", "address.number_only"},
		{"name.numbers_same", "name.numbers_differ"},
		{"branch.same", "branch.differs"},
	}
	r := newRandom(t)
	for range rounds {
		a, b := r.place(), r.place()
		e := match.Compare(a, b)
		for _, kind := range kinds {
			n := 0
			for _, name := range kind {
				if observed(e, name) > 0 {
					n++
				}
			}
			check.Require(t, n <= 1, "%+v\n%+v\n%d of %v: %s", a, b, n, kind, e)
		}
		same, other := observed(e, "address.same"), observed(e, "address.other")
		check.Require(t, !(same+other > 1.001), "%+v\n%+v\nan address is %v the same and %v another", a, b, same, other)
	}
}
