package phone_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/services/enricher/match/internal/phone"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		in   string
		want []phone.Number
	}{
		{"", nil},
		{"n/a", nil},
		{"112", nil},
		{"310/652-4025", []phone.Number{"3106524025"}},
		{"212-632-5000 or 212-632-5100", []phone.Number{"2126325000", "2126325100"}},
		{"03 5225005 / 03 5225006", []phone.Number{"35225005", "35225006"}},
		{"+44 (0)20 7251 0848", []phone.Number{"442072510848"}},
		{"0044 20 7251 0848", []phone.Number{"442072510848"}},
		{"404/237-2700 ext 6108", []phone.Number{"4042372700"}},
		{"404-237-2700 x6108", []phone.Number{"4042372700"}},
		{"Tel.: 404-237-2700", []phone.Number{"4042372700"}},
		{"٠٣-٥٢٢٥٠٠٥", []phone.Number{"35225005"}},
		{"12345678901234567890", nil},
	} {
		if diff := cmp.Diff(test.want, phone.Parse(test.in)); diff != "" {
			t.Errorf("Parse(%q): %s", test.in, diff)
		}
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want phone.Agreement
	}{
		{"", "212-555-1234", phone.Unknown},
		{"212-555-1234", "(212) 555 1234", phone.Same},
		{"212-555-1234", "+1 212 555 1234", phone.Same},
		{"212-555-1234", "555-1234", phone.Local},
		{"212-555-1234", "718-555-1234", phone.Differs},
		{"212-555-1234", "212-555-1235", phone.Differs},
		{"03-522-5005", "+972-3-522-5005", phone.Same},
		{"03-522-5005", "04-522-5005", phone.Differs},
		{"052-1234567", "+972 52 123 4567", phone.Same},
		{"052-1234567", "054-1234567", phone.Differs},
		{"8 (495) 775-51-88", "+7 495 775 51 88", phone.Same},
		{"8 (495) 775-51-88", "+7 499 775 51 88", phone.Differs},
		{"06 1 234 5678", "+36 1 234 5678", phone.Same},
		{"06 5812260", "+39 06 581 2260", phone.Same},
		{"01 49 52 07 17", "+33 1 49 52 07 17", phone.Same},
		{"01 42 36 10 92", "04 42 36 10 92", phone.Differs},
		{"913 653 252", "+34 913 65 32 52", phone.Same},
		{"020 7251 0848", "+44 (0)20 7251 0848", phone.Same},
		{"55 5512 3456", "+52 1 55 5512 3456", phone.Same},
		{"(11) 3062-1234", "+55 11 3062 1234", phone.Same},
		{"02-2321-8928", "+886 2 2321 8928", phone.Same},
		{"212-632-5000 or 212-632-5100", "2126325100", phone.Same},
	} {
		for _, pair := range [][2]string{{test.a, test.b}, {test.b, test.a}} {
			if got := phone.Compare(phone.Parse(pair[0]), phone.Parse(pair[1])); got != test.want {
				t.Errorf("%q and %q: %d, want %d", pair[0], pair[1], got, test.want)
			}
		}
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"212-555-1234", "+1 212 555 1234"}, {"555-1234", "212 555 1234"}, {"8 495 775-51-88", "+7 495 7755188"}} {
		a, b := phone.Parse(pair[0])[0], phone.Parse(pair[1])[0]
		if a.Key() != b.Key() || a.Key() == "" {
			t.Errorf("%s has key %q, %s has %q", pair[0], a.Key(), pair[1], b.Key())
		}
	}
}
