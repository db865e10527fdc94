package address_test

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/address"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func words(a address.Address) string {
	var out []string
	for _, t := range a.Street {
		out = append(out, t.Text)
	}
	return strings.Join(out, " ")
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		in, street string
		numbers    []int // low and high in turns
	}{
		{"", "", nil},
		{"123 Main St", "main", []int{123, 123}},
		{"Main Street 123", "main", []int{123, 123}},
		{"12-14 Main St., Suite 200", "main", []int{12, 14}},
		{"Suite 200, 12 Main St", "main", []int{12, 12}},
		{"2nd Floor, 12 Main St", "main", []int{12, 12}},
		{"110 Bishopsgate, 40th Floor", "bishopsgate", []int{110, 110}},
		{"12 Main St #5", "main", []int{12, 12}},
		{"One Rockefeller Plaza", "rockefeller", []int{1, 1}},
		{"854 7th Ave. between 54th and 55th Sts.", "7th", []int{854, 854}},
		{"293-B Peachtree Rd. NE", "peachtree", []int{293, 293}},
		{"3393 Peachtree Rd. . Lenox Square Mall near Neiman Marcus", "peachtree", []int{3393, 3393}},
		{"1001 N Alameda St, Los Angeles, CA 90012", "alameda", []int{1001, 1001}},
		{"23725 W. Malibu Rd.", "malibu", []int{23725, 23725}},
		{"12 Ocean HwySte 375", "ocean", []int{12, 12}},
		{"12 Main St Ste375", "main", []int{12, 12}},
		{"100 Northpoint Pkwy", "point", []int{100, 100}},
		{"100 North Point Pkwy", "point", []int{100, 100}},
		{"500 Highway 101", "101", []int{500, 500}},
		{"37-16 83rd St", "83rd", []int{3716, 3716}},
		{"Hauptstr. 5, 10115 Berlin", "haupt", []int{5, 5}},
		{"Hauptstraße 5a", "haupt", []int{5, 5}},
		{"15 bis rue Marbeuf, 75008 Paris", "bis marbeuf", []int{15, 15}},
		{"C/ Cava Baja, 35", "cava baja", []int{35, 35}},
		{"Rua Haddock Lobo, 1738 - Jardim Paulista", "haddock lobo", []int{1738, 1738}},
		{"Via dei Tribunali, 32, 80138 Napoli", "tribunali", []int{32, 32}},
		{"ул. Большая Никитская, д. 13", "большая никитская", []int{13, 13}},
		{"Кутузовский пр-т 48", "кутузовскии", []int{48, 48}},
		{"Цветной б-р, 5", "цветнои", []int{5, 5}},
		{"rue Pie XII 7", "pie xii", []int{7, 7}},
		{"דיזנגוף 99, קומה 2", "דיזנגופ", []int{99, 99}},
		{"רח' דיזנגוף 99/3", "דיזנגופ", []int{99, 99}},
		{"شارع فلسطين ١٢", "فلسطين", []int{12, 12}},
		{"銀座4-2-15", "銀 座", []int{4, 4}},
		{"Corner of Oak and Elm", "oak elm", nil},
		{"Azrieli Mall, Derech Begin 132", "begin", []int{132, 132}},
	} {
		a := address.Parse(test.in, nil)
		if got := words(a); got != test.street {
			t.Errorf("Parse(%q): street %q, want %q", test.in, got, test.street)
		}
		var got []int
		for _, n := range a.Numbers {
			got = append(got, n.Low, n.High)
		}
		check.That(t, len(got) == len(test.numbers) && (len(got) <= 1 || got[0] == test.numbers[0] && got[1] == test.numbers[1]),
			"Parse(%q): numbers %v, want %v", test.in, got, test.numbers)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	const same, other = 0.74, 0.5
	for _, test := range []struct {
		a, b     string
		low      float64
		high     float64
		number   address.NumberAgreement
		opposite bool
	}{
		{"123 Main St", "Main Street 123", same, 1, address.NumberSame, false},
		{"123 Main St", "125 Main St", same, 1, address.NumberNear, false},
		{"123 Main St", "423 Main St", same, 1, address.NumberDiffers, false},
		{"123 Main St", "Main St", same, 1, address.NumberUnknown, false},
		{"123 Main St", "123 Elm St", 0, other, address.NumberSame, false},
		{"201-207 E Houston St", "205 East Houston Street", same, 1, address.NumberSame, false},
		{"201-7 E Houston St", "205 East Houston Street", same, 1, address.NumberSame, false},
		{"155 E 55th St", "155 W. 55th St.", same, 1, address.NumberSame, true},
		{"155 E 55th St", "155 55th St.", same, 1, address.NumberSame, false},
		{"854 7th Ave.", "854 Seventh Avenue", same, 1, address.NumberSame, false},
		{"500 Hwy 101", "9000 Hwy 101", same, 1, address.NumberDiffers, false},
		{"Dizengoff 99", "דיזנגוף 99", same, 1, address.NumberSame, false},
		{"King George 12", "המלך ג'ורג' 12", same, 1, address.NumberSame, false},
		{"דיזנגוף 99", "אבן גבירול 99", 0, other, address.NumberSame, false},
		{"Μητροπόλεως 69", "Mitropoleos 69", same, 1, address.NumberSame, false},
		{"Невский проспект 56", "Nevsky Ave, 56", same, 1, address.NumberSame, false},
		{"Невский проспект 56", "Ligovsky Ave, 56", 0, other, address.NumberSame, false},
		{"Columbus Ave at Broadway", "Broadway and Columbus", same, 1, address.NumberUnknown, false},
		{"Hauptstr. 5", "Haupt Straße 5, 10115 Berlin", same, 1, address.NumberSame, false},
		{"Rothschild Blvd 12", "Rotschild 12", same, 1, address.NumberSame, false},
		{"信義路二段194號", "Xinyi Rd 194", -1, -1, address.NumberSame, false},
	} {
		a, b := address.Parse(test.a, nil), address.Parse(test.b, nil)
		for range 2 {
			g := address.Compare(&a, &b)
			if !g.Comparable || g.Street < test.low || g.Street > test.high || g.Number != test.number || g.Opposite != test.opposite {
				t.Errorf("%q and %q: %+v", test.a, test.b, g)
			}
			a, b = b, a
		}
	}
}

func TestNothingToCompare(t *testing.T) {
	t.Parallel()
	full := address.Parse("123 Main St", nil)
	for _, s := range []string{"", ",,,", "#5", "Suite 200"} {
		a := address.Parse(s, nil)
		g := address.Compare(&a, &full)
		check.That(t, !g.Comparable || !(g.Street >= 0.5), "%q compares: %+v", s, g)
	}
}

// TestCityIsNoStreet checks that the city's name does not make two streets one.
func TestCityIsNoStreet(t *testing.T) {
	t.Parallel()
	city := []string{"tel", "aviv"}
	a, b := address.Parse("Dizengoff 99 Tel Aviv", city), address.Parse("Allenby 99 Tel Aviv", city)
	g := address.Compare(&a, &b)
	check.That(t, !(g.Street > 0.3), "streets are %v alike", g.Street)
	if c := address.Parse("Tel Aviv", city); c.Present() {
		t.Errorf("the city is a street: %q", words(c))
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"12-14 Main St., Suite 200", "#-/0-0/0", "1-", "銀座4-2-15", "999999999999-1", "ул. д. 5", "1/2/3", "a-1-b"} {
		f.Add(s, "tel aviv")
	}
	f.Fuzz(func(t *testing.T, s, city string) {
		a, b := address.Parse(s, strings.Fields(city)), address.Parse(city, nil)
		g, h := address.Compare(&a, &b), address.Compare(&b, &a)
		check.Require(t, g.Comparable == h.Comparable && g.Number == h.Number && !(g.Street > 1) && len(a.Street) <= 16, "%+v %+v", g, h)
	})
}
