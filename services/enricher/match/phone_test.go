package match

import (
	"math"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestParsePhones(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]string{
		"": "", "n/a": "", "112": "", "12345": "", "+": "", "call us": "", "12345678901234567890": "",
		"310/652-4025": "3106524025", "212/555/0134": "2125550134",
		"212-632-5000 or 212-632-5100": "2126325000 2126325100", "03 5225005 / 03 5225006": "35225005 35225006",
		"03-522-5005, 03-522-5006": "35225005 35225006", "03-522-5005; 052-1234567": "35225005 521234567",
		"03-522-5005|03-522-5006": "35225005 35225006", "Tel 03-522-5005 Fax 03-522-5007": "35225005 35225007",
		"+44 (0)20 7251 0848": "442072510848", "0044 20 7251 0848": "442072510848",
		"404/237-2700 ext 6108": "4042372700", "404-237-2700 x6108": "4042372700", "03-522-5005 שלוחה 12": "35225005",
		"Tel.: 404-237-2700": "4042372700", "٠٣-٥٢٢٥٠٠٥": "35225005",
		"03-522-5001, 03-522-5002, 03-522-5003, 03-522-5004, 03-522-5005": "35225001 35225002 35225003 35225004",
	} {
		var got []string
		for _, n := range parsePhones(field) {
			got = append(got, n.digits)
		}
		check.Equal(t, strings.Join(got, " "), want, field)
	}
}

func TestComparePhones(t *testing.T) {
	t.Parallel()
	verdicts := map[string]feature{"brand": phoneBrand, "differs": phoneDiffers, "local": phoneLocal, "same": phoneSame, "unknown": noFeature}
	for _, row := range check.Rows(t, "testdata/phones.tsv") {
		want, a, b := verdicts[row[0]], parsePhones(row[1]), parsePhones(row[2])
		got, back := comparePhones(a, b), comparePhones(b, a)
		check.That(t, got == want && back == want, "%q and %q: %d and %d, want %s", row[1], row[2], got, back, row[0])
		if (row[0] == "same" || row[0] == "local") && len(a) == 1 && len(b) == 1 {
			check.Equal(t, a[0].Key(), b[0].Key(), "keys of", row[1], row[2])
		}
	}
}

// TestCountries compares numbers as they are written at home and abroad, and with the number after them.
func TestCountries(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/countries.tsv") {
		home, abroad, other := parsePhones(row[1]), parsePhones(row[2]), parsePhones(row[3])
		got := comparePhones(home, abroad)
		check.That(t, got == phoneSame || got == phoneLocal, "%s: %q and %q: %d", row[0], row[1], row[2], got)
		for _, n := range [][]phoneNumber{home, abroad} {
			got := comparePhones(n, other)
			check.That(t, got == phoneDiffers, "%s: %v and %v: %d", row[0], n, other, got)
		}
		check.That(t, len(home) == 1 && len(abroad) == 1 && home[0].Key() == abroad[0].Key(),
			"%s: keys of %v and %v differ", row[0], home, abroad)
	}
}

// TestMetres holds distances on a sphere of the mean radius.
func TestMetres(t *testing.T) {
	t.Parallel()
	const quarterCircle = earthRadius * math.Pi / 2
	for _, test := range []struct {
		a, b Point
		want float64
	}{
		{Point{32, 34}, Point{32, 34}, 0},
		{Point{0, 0.5}, Point{0, 1.5}, quarterCircle / 90},
		{Point{60, 0}, Point{60, 1}, 55597},
		{Point{90, 0}, Point{0, 77}, quarterCircle},
		{Point{0, 1}, Point{0, -179}, 2 * quarterCircle},
		{Point{10, 179.5}, Point{10, -179.5}, 109504},
		{Point{32.0853, 34.7818}, Point{31.7683, 35.2137}, 53904}, // Tel Aviv to Jerusalem
	} {
		there, back := metres(test.a, test.b), metres(test.b, test.a)
		check.That(t, !(math.Abs(there-test.want) > 1+test.want/1000) && there == back,
			"%v to %v: %.0f m, back %.0f m, want %.0f", test.a, test.b, there, back, test.want)
	}
}
