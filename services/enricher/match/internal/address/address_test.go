package address_test

import (
	"os"
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

// TestHouseNumbers reads house numbers as they are written in many countries.
func TestHouseNumbers(t *testing.T) {
	t.Parallel()
	for in, want := range map[string][]address.Number{
		"12 Main St":             {{Low: 12, High: 12, Digits: 2}},
		"12a Main St":            {{Low: 12, High: 12, Digits: 2}},
		"12A-B Main St":          nil,
		"12 bis rue Main":        {{Low: 12, High: 12, Digits: 2}},
		"12bis rue Main":         {{Low: 12, High: 12, Digits: 2}},
		"12ter rue Main":         {{Low: 12, High: 12, Digits: 2}},
		"Hauptstr. 12א":          {{Low: 12, High: 12, Digits: 2}},
		"Тверская 26А":           {{Low: 26, High: 26, Digits: 2}},
		"12-14 Main St":          {{Low: 12, High: 14, Digits: 2}},
		"12–14 Main St":          {{Low: 12, High: 14, Digits: 2}},
		"12/3 Main St":           {{Low: 12, High: 12, Digits: 2}},
		"12/14 Main St":          {{Low: 12, High: 12, Digits: 2}},
		"201-7 Main St":          {{Low: 201, High: 207, Digits: 3}},
		"1201-07 Main St":        {{Low: 1201, High: 1207, Digits: 4}},
		"37-16 83rd St":          {{Low: 3716, High: 3716, Digits: 2}},
		"90-15 Queens Blvd":      {{Low: 9015, High: 9015, Digits: 2}},
		"293-b Main St":          {{Low: 293, High: 293, Digits: 3}},
		"100-300 Main St":        {{Low: 100, High: 100, Digits: 3}},
		"٣٥ شارع":                {{Low: 35, High: 35, Digits: 2}},
		"Main St #12":            nil,
		"Main St, Suite 200":     nil,
		"Main St, 2nd floor":     nil,
		"12 Main St, 3. этаж":    {{Low: 12, High: 12, Digits: 2}},
		"ул. Мира, 3. этаж":      nil,
		"One Main Plaza":         {{Low: 1, High: 1, Digits: 0}},
		"Cinco de Mayo 12":       {{Low: 12, High: 12, Digits: 2}},
		"אחד העם":                nil,
		"אחד העם 25":             {{Low: 25, High: 25, Digits: 2}},
		"Hwy 101":                nil,
		"500 Hwy 101":            {{Low: 500, High: 500, Digits: 3}},
		"Hauptstr. 5, 10115 Ort": {{Low: 5, High: 5, Digits: 1}},
		"9999999999 Main St":     nil,
		"12-9999999999 Main St":  nil,
	} {
		got := address.Parse(in, nil).Numbers
		same := len(got) == len(want)
		for i := range want {
			same = same && got[i].Low == want[i].Low && got[i].High == want[i].High && (want[i].Digits == 0 || got[i].Digits == want[i].Digits)
		}
		check.That(t, same, "Parse(%q) has numbers %v, want %v", in, got, want)
	}
}

// TestHouseRanges compares house numbers of one street.
func TestHouseRanges(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want address.NumberAgreement
	}{
		{"12", "12", address.NumberSame},
		{"12", "12a", address.NumberSame},
		{"12", "12/3", address.NumberSame},
		{"12-14", "12", address.NumberSame},
		{"12-14", "13", address.NumberSame},
		{"12-14", "14-16", address.NumberSame},
		{"12-14", "14", address.NumberSame},
		{"201-7", "205", address.NumberSame},
		{"1201-07", "1205", address.NumberSame},
		{"37-16", "3716", address.NumberSame},
		{"12", "14", address.NumberNear},
		{"12", "16", address.NumberNear},
		{"12-14", "18", address.NumberNear},
		{"12-14", "8", address.NumberNear},
		{"12", "17", address.NumberDiffers},
		{"12-14", "19", address.NumberDiffers},
		{"12-14", "7", address.NumberDiffers},
		{"201-7", "221", address.NumberDiffers},
		{"37-16", "37", address.NumberDiffers},
		{"12", "112", address.NumberDiffers},
		{"12", "", address.NumberUnknown},
		{"", "", address.NumberUnknown},
	} {
		a, b := address.Parse(test.a+" Main St", nil), address.Parse("Main Street "+test.b, nil)
		for range 2 {
			g := address.Compare(&a, &b)
			check.That(t, g.Number == test.want && !(g.Street < 0.99), "%q and %q: %+v, want %d", test.a, test.b, g, test.want)
			a, b = b, a
		}
	}
}

// TestStreetsOfOneScript compares streets whose names have something in common.
func TestStreetsOfOneScript(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"rue Pie XII", "rue Pie XI", false},
		{"rue Henri IV", "rue Henri V", false},
		{"Corso Vittorio Emanuele II", "Corso Vittorio Emanuele", true},
		{"rue Louis XVIII", "rue Louis XVII", false},
		{"Vi Street", "6th Street", false},
		{"Fifth Avenue", "5th Ave", true},
		{"Seventeenth Avenue", "Seventh Avenue", false},
		{"Fifth Avenue", "Sixth Avenue", false},
		{"King George St", "King David St", false},
		{"Main Street", "Maine Street", true},
		{"Oak Street", "Oak Avenue", true},
		{"North Main St", "N. Main St", true},
		{"Кутузовский пр-т", "Кутузовский проспект", true},
		{"Цветной б-р", "Цветной бульвар", true},
		{"Salah ad-Din St", "Salah al-Din Street", true},
		{"Drottninggatan", "Drottning gatan", true},
		{"Plaza Mayor", "Plaza Menor", false},
		{"Ben Yehuda", "Ben Gurion", false},
		{"שדרות ח\"ן", "שד' חן", true},
	} {
		a, b := address.Parse(test.a, nil), address.Parse(test.b, nil)
		g := address.Compare(&a, &b)
		check.That(t, !g.Heard && (g.Street >= 0.74) == test.same, "%q and %q: %+v", test.a, test.b, g)
	}
}

// crossing is two addresses in different scripts and what a person who reads both states of their streets.
type crossing struct{ verdict, a, b string }

func crossings(t *testing.T) []crossing {
	t.Helper()
	raw := check.Must(os.ReadFile("testdata/scripts.tsv"))(t)
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
