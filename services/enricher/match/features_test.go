package match_test

import (
	"bufio"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

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
		names("name.foods_differ", "Momo Sushi", "Momo Ramen", 1, "Momo Sushi", "Momo"),
		names("name.rivals", "Ritz Grill", "Ritz Courtyard", 1, "Ritz Grill", "Ritz"),
		names("name.rivals", "Ritz Cafe", "Ritz Restaurant", 1, "Ritz Sushi Cafe", "Ritz Sushi Restaurant"),
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
		addresses("address.types_differ", "12 Oak St", "12 Oak Ave", 1, 1, "12 Oak St", "12 Oak Street"),
		addresses("address.partial", "12 Oak St", "12 N Oak St", 1, 1, "12 N Oak St", "12 Oak Street N"),
		addresses("address.number_only", "忠孝東路5號", "5 Zhongxiao Rd", 1, 1, "忠孝東路5號", "忠孝東路5號"),
		{feature: "phone.same", low: 1, high: 1, a: phone("212-555-1234"), b: phone("+1 212 555 1234"), notA: phone("212-555-1234"), notB: spago},
		{feature: "phone.local", low: 1, high: 1, a: phone("212-555-1234"), b: phone("555-1234"), notA: phone("212-555-1234"), notB: phone("556-1234")},
		{feature: "phone.differs", low: 1, high: 1, a: phone("212-555-1234"), b: phone("212-555-1235"), notA: phone("212-555-1234"), notB: phone("n/a")},
		{feature: "phone.brand", low: 1, high: 1, a: phone("1-700-50-60-70"), b: phone("+972 1700 506070"), notA: phone("1-700-50-60-70"), notB: phone("03-5060700")},
		{
			feature: "doubt", low: 0.05, high: 0.3, a: match.Place{Name: "Momo Sushi", City: "Haifa", Phone: "04-8555555", Address: "Main St 5"},
			b:    match.Place{Name: "Momo Ramen", City: "Haifa", Phone: "04-8555555", Address: "Main St 5"},
			notA: match.Place{Name: "Momo Ramen"}, notB: match.Place{Name: "Momo Sushi"},
		},
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
	for _, row := range check.Rows(t, "weights.tsv") {
		left[row[0]] = true
	}
	delete(left, "base")
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

// rounds is how many random places each property is tried on.
const rounds = 1000

// random makes places out of words that collide often.
type random struct{ *rand.Rand }

func newRandom(t testing.TB) random {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return random{rand.New(rand.NewPCG(seed, 1))}
}

func (r random) of(words ...string) string { return words[r.IntN(len(words))] }

func (r random) maybe(s string) string {
	if r.IntN(3) == 0 {
		return ""
	}
	return s
}

func (r random) name() string {
	parts := []string{r.of("Spago", "Blue", "Moon", "Roma", "Dizengoff", "L'Entrecôte", "אבו", "ג'ירף", "Пушкинъ", "البيك", "Θανάσης", "銀座", "21", "Aroma", "St. John")}
	for range r.IntN(4) {
		parts = append(parts, r.of("Cafe", "Pizza", "- Dizengoff", "(Haifa)", "& Sons", "and", "the", "House", "חסן", "מסעדת", "Ресторан", "Hassan", "Burger", "Five", "54", "|", "'s"))
	}
	return strings.Join(parts, " ")
}

func (r random) place() match.Place {
	p := match.Place{
		Name:    r.name(),
		Address: r.maybe(r.of("Dizengoff 50", "50 Dizengoff St.", "דיזנגוף 50", "12-14 Main St, Suite 5", "Hauptstr. 5, 10115 Berlin", "ул. Тверская, д. 12", "at 3rd", "銀座4-2-15", "12 W 55th St", "12 E. 55th Street")),
		City:    r.maybe(r.of("Tel Aviv", "תל אביב", "Haifa", "Berlin", "Москва", "NYC")),
		Phone:   r.maybe(r.of("03-522-5005", "+972 3 522 5005", "212/555-1234", "555-1234", "+7 495 775 51 88", "8 495 775-51-88")),
	}
	if r.IntN(3) == 0 {
		p.Location = at(32+float64(r.IntN(40))/1000, 34)
	}
	if r.IntN(6) == 0 {
		p.Aliases = []string{r.name()}
	}
	return p
}

// TestSymmetry compares random places, and names of words that are equally like each other, so that their order could decide.
func TestSymmetry(t *testing.T) {
	t.Parallel()
	r := newRandom(t)
	tie := func() match.Place {
		var b strings.Builder
		for range 2 + r.IntN(4) {
			b.WriteString(r.of("hasan", "hassan", "hassen", "chason", "hasin", "hasanim", "asan", "hesen", "hasans", "has", "san", "ahsan"))
			b.WriteString(r.of(" ", " ", " - ", " at "))
		}
		return match.Place{Name: b.String(), City: "Lod"}
	}
	for range rounds {
		for _, pair := range [][2]match.Place{{r.place(), r.place()}, {tie(), tie()}} {
			diff := cmp.Diff(match.Compare(pair[0], pair[1]), match.Compare(pair[1], pair[0]))
			check.Require(t, diff == "", "%+v\n%s", pair, diff)
		}
	}
}

// TestSelf checks that a place with a name and any second field is found as itself.
func TestSelf(t *testing.T) {
	t.Parallel()
	r := newRandom(t)
	for range rounds {
		p := r.place()
		if p.City == "" && p.Address == "" && p.Phone == "" && p.Location == nil {
			continue
		}
		d := match.Best(p, []match.Place{p})
		check.Require(t, d.Outcome == match.Found, "%+v: %s %s", p, d.Outcome, d.Evidence)
	}
}

// fields sets a field of two places so that they agree in it, in two spellings.
var fields = map[string]func(p, q *match.Place){
	"telephone": func(p, q *match.Place) { p.Phone, q.Phone = "+972 3 522 5005", "03-5225005" },
	"location":  func(p, q *match.Place) { p.Location, q.Location = at(32, 34), at(32.0001, 34) },
	"address":   func(p, q *match.Place) { p.Address, q.Address = "Herzl 17", "17 Herzl St." },
	"city":      func(p, q *match.Place) { p.City, q.City = "Lod", "Lod" },
}

// TestAgreementNeverHarms adds a field that agrees, and wants that the score does not fall. A telephone number that differs never helps.
func TestAgreementNeverHarms(t *testing.T) {
	t.Parallel()
	var pairs [][2]match.Place
	for _, g := range goldens(t) {
		pairs = append(pairs, [2]match.Place{g.A, g.B})
	}
	for r := newRandom(t); len(pairs) < rounds; {
		pairs = append(pairs, [2]match.Place{r.place(), r.place()})
	}
	for _, pair := range pairs {
		for name, agree := range fields {
			a, b := pair[0], pair[1]
			a.Phone, b.Phone, a.Location, b.Location = "", "", nil, nil
			if name == "address" || name == "city" {
				a.Address, b.Address = "", ""
			}
			if name == "city" {
				a.City, b.City = "", ""
			}
			before := match.Compare(a, b)
			agree(&a, &b)
			after := match.Compare(a, b)
			check.Require(t, after.Score >= before.Score, "%s: %+v\n%+v\n%s\n%s", name, a, b, before, after)
			if name == "city" { // a name without any other evidence is another matter
				a.Phone, b.Phone = "03-522-5005", "04-866-1122"
				less := match.Compare(a, b)
				check.Require(t, less.Score <= after.Score, "telephone: %+v\n%+v\n%s\n%s", a, b, after, less)
			}
		}
	}
}

// TestEvidence: the contributions give the score, and the evidence is small, one line as a text, and whole after JSON.
func TestEvidence(t *testing.T) {
	t.Parallel()
	for _, g := range goldens(t) {
		e := match.Compare(g.A, g.B)
		sum := e.Base
		for _, f := range e.Features {
			check.That(t, f.Value > 0 && f.Value <= 1, "%s: %s is %v", g.Why, f.Name, f.Value)
			sum += f.Contribution
		}
		score := 1 / (1 + math.Exp(-sum))
		check.That(t, math.Abs(score-e.Score) <= 0.001, "%s: the contributions give %.4f, the score is %.4f", g.Why, score, e.Score)
		raw := check.Must(json.Marshal(e))(t)
		check.That(t, len(raw) <= 1500, "%s: %d bytes: %s", g.Why, len(raw), raw)
		var back match.Evidence
		check.OK(t, json.Unmarshal(raw, &back))
		check.Equal(t, back, e, g.Why)
		check.That(t, !strings.Contains(e.String(), "\n") && e.Model == match.ModelVersion, "%s: %q", g.Why, e)
	}
}

// TestRival: the likeliest other venue is named, and the same venue listed twice is none.
func TestRival(t *testing.T) {
	t.Parallel()
	bare, full := match.Place{Name: "Aroma", City: "Tel Aviv"}, match.Place{Name: "Aroma", Address: "Dizengoff 50", City: "Tel Aviv"}
	d := match.Best(bare, []match.Place{bare, bare})
	check.That(t, d.Index == 0 && d.Rival == 1 && d.Margin == 0, "two branches: %+v", d)
	d = match.Best(full, []match.Place{full, full})
	check.That(t, d.Index == 0 && d.Rival == -1 && d.Margin == 1, "one venue twice: %+v", d)
	d = match.Best(bare, nil)
	check.That(t, d.Index == -1 && d.Rival == -1, "no candidates: %+v", d)
}

func TestPointsOffTheEarth(t *testing.T) {
	t.Parallel()
	for _, bad := range []*match.Point{{}, {Lat: 91, Lng: 1}, {Lat: 1, Lng: 181}, {Lat: math.NaN(), Lng: 1}, {Lat: math.Inf(1), Lng: 0}} {
		e := match.Compare(match.Place{Name: "Spago", Location: bad}, match.Place{Name: "Spago", Location: at(32, 34)})
		check.That(t, !strings.Contains(e.String(), "geo."), "%v was taken for a place: %s", *bad, e)
	}
}

func FuzzCompare(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g.A.Name, g.A.Address, g.A.City, g.A.Phone, g.B.Name, g.B.Address)
	}
	long := strings.Repeat("ג'א ", 2500)
	f.Add(long, long, long, long, long, long)
	f.Add("\xff\xfe", "((((", ")))", "+", "''''", "#-/0-0/0")
	f.Add("l'", "0", "ال", "(0)", "'s", "st")
	f.Fuzz(func(t *testing.T, nameA, addressA, city, phone, nameB, addressB string) {
		a := match.Place{Name: nameA, Address: addressA, City: city, Phone: phone, Aliases: []string{nameB}}
		b := match.Place{Name: nameB, Address: addressB, City: nameA, Phone: addressA}
		e := match.Compare(a, b)
		check.Require(t, e.Score >= 0 && e.Score <= 1, "score %v", e.Score)
		diff := cmp.Diff(e, match.Compare(b, a))
		check.Require(t, diff == "", "not symmetric: %s", diff)
		p := match.Prepare(a)
		n := len(p.Keys())
		for _, f := range p.Forms() {
			for _, w := range slices.Concat(f.Words, f.Whole) {
				n += len(w.Stored())
			}
		}
		check.Require(t, n <= 10_000, "%d keys", n)
	})
}

// TestLongFields checks that a field of any length costs no more than one of 512 bytes: the rest is not read.
func TestLongFields(t *testing.T) {
	t.Parallel()
	for _, filler := range []string{"spago ", "ג'ירף ", "銀", "a", "1-", "(", "'", "x y z ", "ال", "٣", "\u0301"} {
		long := strings.Repeat(filler, 10_000)
		p := match.Prepare(match.Place{Name: long, Address: long, City: long, Phone: long, Aliases: []string{long, long}})
		short := long[:2048]
		q := match.Prepare(match.Place{Name: short, Address: short, City: short, Phone: short, Aliases: []string{short, short}})
		diff := cmp.Diff(p.Keys(), q.Keys())
		check.That(t, diff == "", "%q: %s", filler, diff)
		check.That(t, match.Compare(p.Place, p.Place).Score == match.Compare(q.Place, q.Place).Score,
			"%q: the rest of the field was read", filler)
	}
}

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
			check.Equal(t, match.Best(g.B, []match.Place{g.A}).Outcome, g.Want, "the other way round")
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

// TestMissingFieldIsNoObservation checks that a field that one side lacks leaves no trace.
func TestMissingFieldIsNoObservation(t *testing.T) {
	t.Parallel()
	a := match.Place{Name: "Spago", City: "Haifa"}
	full := match.Place{Name: "Spago", City: "Haifa", Address: "Allenby 5", Phone: "04-8555555", Location: at(32.8, 35)}
	check.Equal(t, match.Compare(a, full), match.Compare(a, a))
}

func observed(e match.Evidence, name string) float64 {
	for _, f := range e.Features {
		if f.Name == name {
			return f.Value
		}
	}
	return 0
}
