package match_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
)

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

func TestSymmetry(t *testing.T) {
	t.Parallel()
	r := newRandom(t)
	for range rounds {
		a, b := r.place(), r.place()
		diff := cmp.Diff(match.Compare(a, b), match.Compare(b, a))
		check.Require(t, diff == "", "%+v\n%+v\n%s", a, b, diff)
	}
}

// TestSymmetryOfForms compares names of several forms of which two agree equally well.
func TestSymmetryOfForms(t *testing.T) {
	t.Parallel()
	a := match.Place{Name: "21 Pizza", Aliases: []string{"אבו מסעדת"}, City: "Москва"}
	b := match.Place{Name: "ג'ירף & Sons and House", City: "Berlin"}
	check.Equal(t, match.Compare(a, b), match.Compare(b, a))
}

// TestSymmetryOfTies compares names of words that are equally like each other, so that their order could decide.
func TestSymmetryOfTies(t *testing.T) {
	t.Parallel()
	r := newRandom(t)
	name := func() string {
		var b strings.Builder
		for range 2 + r.IntN(4) {
			b.WriteString(r.of("hasan", "hassan", "hassen", "chason", "hasin", "hasanim", "asan", "hesen", "hasans", "has", "san", "ahsan"))
			b.WriteString(r.of(" ", " ", " - ", " at "))
		}
		return b.String()
	}
	for range rounds {
		a, b := match.Place{Name: name(), City: "Lod"}, match.Place{Name: name(), City: "Lod"}
		diff := cmp.Diff(match.Compare(a, b), match.Compare(b, a))
		check.Require(t, diff == "", "%q and %q: %s", a.Name, b.Name, diff)
	}
}

func TestPreparedIsTheSame(t *testing.T) {
	t.Parallel()
	r := newRandom(t)
	for range rounds / 10 {
		a, b := r.place(), r.place()
		p, q := match.Prepare(a), match.Prepare(b)
		e := match.Compare(a, b)
		diff := cmp.Diff(e, p.Compare(q))
		check.Require(t, diff == "", "%+v\n%+v\n%s", a, b, diff)
		s := p.Score(q)
		check.Require(t, !(s-e.Score > 1e-4) && !(e.Score-s > 1e-4), "Score %v, Compare %v", s, e.Score)
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

// TestAgreementNeverHarms adds a field that agrees and checks that the score does not fall.
func TestAgreementNeverHarms(t *testing.T) {
	t.Parallel()
	r := newRandom(t)
	for range rounds {
		a, b := r.place(), r.place()
		a.Phone, b.Phone, a.Location, b.Location = "", "", nil, nil
		before := match.Compare(a, b)
		a.Phone, b.Phone = "+972 3 522 5005", "03-5225005"
		after := match.Compare(a, b)
		check.Require(t, !(after.Score < before.Score), "telephone: %+v\n%+v\n%s\n%s", a, b, before, after)
		a.Location, b.Location = at(32, 34), at(32.0001, 34)
		more := match.Compare(a, b)
		check.Require(t, !(more.Score < after.Score), "location: %+v\n%+v\n%s\n%s", a, b, after, more)
		a.Phone, b.Phone, a.Location, b.Location, a.Address, b.Address = "", "", nil, nil, "", ""
		before = match.Compare(a, b)
		a.Address, b.Address = "Herzl 17", "17 Herzl St."
		if after := match.Compare(a, b); after.Score < before.Score {
			t.Fatalf("address: %+v\n%+v\n%s\n%s", a, b, before, after)
		}
		a.City, b.City, a.Address, b.Address = "", "", "", ""
		before = match.Compare(a, b)
		a.City, b.City = "Lod", "Lod"
		if after := match.Compare(a, b); after.Score < before.Score {
			t.Fatalf("city: %+v\n%+v\n%s\n%s", a, b, before, after)
		}
	}
}

// TestDisagreementNeverHelps adds a field that disagrees and checks that the score does not rise, but for a name that had
// no other evidence at all.
func TestDisagreementNeverHelps(t *testing.T) {
	t.Parallel()
	r := newRandom(t)
	for range rounds {
		a, b := r.place(), r.place()
		a.Phone, b.Phone, a.City, b.City = "", "", "Lod", "Lod"
		before := match.Compare(a, b)
		a.Phone, b.Phone = "03-522-5005", "04-866-1122"
		after := match.Compare(a, b)
		check.Require(t, !(after.Score > before.Score), "telephone: %+v\n%+v\n%s\n%s", a, b, before, after)
	}
}

// TestLessNeverConvinces takes agreeing fields away from pairs that something speaks against: what was not found must not
// be found then.
func TestLessNeverConvinces(t *testing.T) {
	t.Parallel()
	r := newRandom(t)
	tried := 0
	for range rounds {
		a := r.place()
		b := a
		switch r.IntN(3) {
		case 0:
			a.Location, b.Location = at(32, 34), at(32.5, 34)
		case 1:
			a.Address, b.Address, a.Location, b.Location, a.Phone, b.Phone = "Herzl 17", "Allenby 90", nil, nil, "", ""
		default:
			a.Phone, b.Phone, b.Name = "03-522-5005", "04-866-1122", "Entirely Otherwise"
		}
		if match.Best(a, []match.Place{b}).Outcome == match.Found {
			continue
		}
		tried++
		less := []func(p, q *match.Place){
			func(p, _ *match.Place) { p.City = "" },
			func(_, q *match.Place) { q.City = "" },
			func(p, q *match.Place) { p.City, q.City = "", "" },
			func(p, q *match.Place) { p.Aliases, q.Aliases = nil, nil },
		}
		for i, f := range less {
			p, q := a, b
			f(&p, &q)
			d := match.Best(p, []match.Place{q})
			check.Require(t, d.Outcome != match.Found, "case %d: %+v\n%+v\n%s", i, p, q, d.Evidence)
		}
	}
	check.That(t, tried >= rounds/3, "only %d pairs were tried", tried)
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
		n := len(p.Tokens) + len(p.Skeletons) + len(p.PhoneKeys)
		check.Require(t, n <= 500, "%d keys", n)
	})
}

// TestLongFields checks that a field of any length costs no more than one of 512 bytes: what follows is not read.
func TestLongFields(t *testing.T) {
	t.Parallel()
	for _, filler := range []string{"spago ", "ג'ירף ", "銀", "a", "1-", "(", "'", "x y z ", "ال", "٣", "\u0301"} {
		long := strings.Repeat(filler, 10_000)
		p := match.Prepare(match.Place{Name: long, Address: long, City: long, Phone: long, Aliases: []string{long, long}})
		short := long[:2048]
		q := match.Prepare(match.Place{Name: short, Address: short, City: short, Phone: short, Aliases: []string{short, short}})
		diff := cmp.Diff(p.Tokens, q.Tokens)
		check.That(t, diff == "", "%q: %s", filler, diff)
		check.That(t, match.Compare(p.Place, p.Place).Score == match.Compare(q.Place, q.Place).Score,
			"%q: the rest of the field was read", filler)
	}
}
