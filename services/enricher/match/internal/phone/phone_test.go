package phone_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
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
		diff := cmp.Diff(test.want, phone.Parse(test.in))
		check.That(t, diff == "", "Parse(%q): %s", test.in, diff)
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
			got := phone.Compare(phone.Parse(pair[0]), phone.Parse(pair[1]))
			check.That(t, got == test.want, "%q and %q: %d, want %d", pair[0], pair[1], got, test.want)
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

// TestCountries compares numbers as they are written at home and abroad, and with the number after them.
func TestCountries(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ country, home, abroad, other string }{
		{"Argentina", "011 4322-1234", "+54 11 4322-1234", "+54 11 4322-1235"},
		{"Australia", "(02) 9374 4000", "+61 2 9374 4000", "+61 3 9374 4000"},
		{"Austria", "01 5123456", "+43 1 5123456", "+43 1 5123457"},
		{"Belarus", "8 017 227-45-67", "+375 17 227 45 67", "+375 17 227 45 68"},
		{"Belgium", "02 512 34 56", "+32 2 512 34 56", "+32 3 512 34 56"},
		{"Brazil", "(11) 3062-1234", "+55 11 3062-1234", "+55 21 3062-1234"},
		{"Canada", "416-555-0134", "+1 (416) 555-0134", "+1 (647) 555-0134"},
		{"China", "010-6552-9988", "+86 10 6552 9988", "+86 10 6552 9989"},
		{"Cyprus", "22 123456", "+357 22 123456", "+357 25 123456"},
		{"Czechia", "224 123 456", "+420 224 123 456", "+420 224 123 457"},
		{"Denmark", "33 12 34 56", "+45 33 12 34 56", "+45 33 12 34 57"},
		{"Egypt", "02 2736 1234", "+20 2 2736 1234", "+20 3 2736 1234"},
		{"Finland", "09 612 3456", "+358 9 612 3456", "+358 9 612 3457"},
		{"France", "01 42 36 10 92", "+33 1 42 36 10 92", "+33 4 42 36 10 92"},
		{"Germany", "030 1234567", "+49 30 1234567", "+49 40 1234567"},
		{"Greece", "210 324 4705", "+30 210 3244705", "+30 231 3244705"},
		{"Hong Kong", "2523 1234", "+852 2523 1234", "+852 2523 1235"},
		{"Hungary", "06 1 234 5678", "+36 1 234 5678", "+36 1 234 5679"},
		{"India", "011 2345 6789", "+91 11 2345 6789", "+91 22 2345 6789"},
		{"Ireland", "01 677 1234", "+353 1 677 1234", "+353 1 677 1235"},
		{"Israel", "03-522-5005", "+972 3-522-5005", "+972 4-522-5005"},
		{"Israel, mobile", "052-123-4567", "00972521234567", "00972541234567"},
		{"Italy", "06 581 2260", "+39 06 581 2260", "+39 02 581 2260"},
		{"Japan", "03-3541-1234", "+81 3-3541-1234", "+81 6-3541-1234"},
		{"Jordan", "06 463 6440", "+962 6 463 6440", "+962 6 463 6441"},
		{"Kazakhstan", "8 727 250 1234", "+7 727 250 12 34", "+7 717 250 12 34"},
		{"Lebanon", "01 345 678", "+961 1 345 678", "+961 4 345 678"},
		{"Lithuania", "8 5 212 3456", "+370 5 212 3456", "+370 5 212 3457"},
		{"Mexico", "55 5512 3456", "+52 55 5512 3456", "+52 33 5512 3456"},
		{"Netherlands", "020 623 1234", "+31 20 623 1234", "+31 10 623 1234"},
		{"Norway", "22 12 34 56", "+47 22 12 34 56", "+47 22 12 34 57"},
		{"Poland", "22 621 34 56", "+48 22 621 34 56", "+48 12 621 34 56"},
		{"Portugal", "21 342 1234", "+351 21 342 1234", "+351 22 342 1234"},
		{"Russia", "8 (495) 775-51-88", "+7 (495) 775-51-88", "+7 (499) 775-51-88"},
		{"Singapore", "6222 1234", "+65 6222 1234", "+65 6222 1235"},
		{"South Africa", "021 423 1234", "+27 21 423 1234", "+27 11 423 1234"},
		{"Spain", "913 65 32 52", "+34 913 653 252", "+34 933 653 252"},
		{"Sweden", "08-411 12 34", "+46 8 411 12 34", "+46 31 411 12 34"},
		{"Switzerland", "044 211 12 34", "+41 44 211 12 34", "+41 22 211 12 34"},
		{"Turkey", "0212 244 12 34", "+90 212 244 12 34", "+90 216 244 12 34"},
		{"Ukraine", "044 235 1234", "+380 44 235 12 34", "+380 48 235 12 34"},
		{"United Arab Emirates", "04 344 1234", "+971 4 344 1234", "+971 2 344 1234"},
		{"United Kingdom", "020 7251 0848", "+44 (0)20 7251 0848", "+44 (0)161 251 0848"},
		{"United States", "(212) 555-0134", "+1 212 555 0134", "+1 718 555 0134"},
	} {
		home, abroad, other := phone.Parse(test.home), phone.Parse(test.abroad), phone.Parse(test.other)
		got := phone.Compare(home, abroad)
		check.That(t, got == phone.Same || got == phone.Local, "%s: %q and %q: %d", test.country, test.home, test.abroad, got)
		for _, n := range [][]phone.Number{home, abroad} {
			got := phone.Compare(n, other)
			check.That(t, got == phone.Differs, "%s: %v and %v: %d", test.country, n, other, got)
		}
		check.That(t, len(home) == 1 && len(abroad) == 1 && home[0].Key() == abroad[0].Key(),
			"%s: keys of %v and %v differ", test.country, home, abroad)
	}
}

// TestSeveralNumbers reads fields that list more than one number, or none.
func TestSeveralNumbers(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]int{
		"03-522-5005, 03-522-5006": 2, "03-522-5005; 052-1234567": 2, "Tel 03-522-5005 Fax 03-522-5007": 2, "03-522-5005|03-522-5006": 2,
		"212/555/0134": 1, "call us": 0, "": 0, "12345": 0, "+": 0, "03-522-5005 שלוחה 12": 1,
		"03-522-5001, 03-522-5002, 03-522-5003, 03-522-5004, 03-522-5005": 4,
	} {
		check.Same(t, fmt.Sprintf("Parse(%q)", field), len(phone.Parse(field)), want)
	}
}
