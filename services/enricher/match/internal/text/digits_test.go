package text_test

import (
	"testing"
	"unicode"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match/internal/text"
)

// TestDigitsOfAllScripts checks that each run of ten decimal digits of Unicode folds to zero to nine.
func TestDigitsOfAllScripts(t *testing.T) {
	t.Parallel()
	want, last, runs := '0', rune(0), 0
	for r := rune(0x80); r <= unicode.MaxRune; r++ {
		if !unicode.Is(unicode.Nd, r) {
			continue
		}
		if r != last+1 {
			want = '0'
			runs++
		}
		got := text.Fold(string(r))
		check.That(t, got == string(want), "%U folds to %q, want %q", r, got, want)
		last, want = r, want+1
		if want > '9' {
			want = '0'
		}
	}
	check.That(t, runs >= 40, "only %d scripts have digits", runs)
}
