package address_test

import (
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/address"
)

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
