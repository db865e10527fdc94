package lexicon

import (
	"strings"
	"testing"
	"unicode"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestBrandNumbers(t *testing.T) {
	t.Parallel()
	for _, row := range check.Rows(t, "testdata/brands.tsv") {
		for _, number := range row[1:] {
			digits := strings.Map(func(r rune) rune {
				if unicode.IsDigit(r) {
					return r
				}
				return -1
			}, number)
			if got := BrandNumber(digits); got != (row[0] == "brand") {
				t.Errorf("%s: %q\t%v", row[0], row[1:], got)
			}
		}
	}
}
