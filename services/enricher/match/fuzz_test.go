package match_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/services/enricher/match"
)

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
		if !(e.Score >= 0 && e.Score <= 1) {
			t.Fatalf("score %v", e.Score)
		}
		if diff := cmp.Diff(e, match.Compare(b, a)); diff != "" {
			t.Fatalf("not symmetric: %s", diff)
		}
		p := match.Prepare(a)
		if n := len(p.Tokens) + len(p.Skeletons) + len(p.PhoneKeys); n > 500 {
			t.Fatalf("%d keys", n)
		}
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
		if diff := cmp.Diff(p.Tokens, q.Tokens); diff != "" {
			t.Errorf("%q: %s", filler, diff)
		}
		if match.Compare(p.Place, p.Place).Score != match.Compare(q.Place, q.Place).Score {
			t.Errorf("%q: the rest of the field was read", filler)
		}
	}
}
