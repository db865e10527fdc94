package caption

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// TestRepair follows the UTF-8 decoder of the Encoding Standard: one U+FFFD for each part that could have begun a character.
func TestRepair(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "abc": "abc", "é漢🍞": "é漢🍞", "a\x00b": "a?b", "\x80": "?", "\xbf\xbf": "??", "\xff\xfe": "??", "a\xc3": "a?", "\xc3(": "?(",
		"\xc0\xaf": "??", "\xc1\x81": "??", "\xe2\x82": "?", "\xe2\x82a": "?a", "\xe2(\xa1": "?(?", "\xe0\x80\x80": "???", "\xe0\xa0": "?",
		"\xed\xa0\x80": "???", "\xed\x9f": "?", "\xf0\x9f\x8d": "?", "\xf0\x9f": "?", "\xf0\x80\x80\x80": "????", "\xf4\x90\x80\x80": "????",
		"\xf4\x8f\xbf": "?", "\xf5\x80": "??", "\xf1\x80\x80\xe1\x80\xc2b": "???b", "\ufffd": "?", "\xe2\x82\xe2\x82\xac": "?€",
	} {
		want = strings.ReplaceAll(want, "?", "\ufffd")
		if _, got := repair(nil, []byte(text)); string(got) != want {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}

func TestWholeRunes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "a": "a", "é": "é", "aé": "aé", "a\xc3": "a", "漢": "漢", "\xe6\xbc": "", "x🍞": "x🍞", "x\xf0\x9f\x8d": "x", "x\xf0": "x", "\x80\x80\x80\x80": "\x80\x80\x80\x80",
	} {
		check.Same(t, fmt.Sprintf("%q gives", text), string(wholeRunes([]byte(text))), want)
	}
	if text := "漢字🍞"; utf8.ValidString(text) {
		for i := range len(text) {
			if got := wholeRunes([]byte(text[:i])); !utf8.Valid(got) {
				t.Errorf("the first %d bytes give %q", i, got)
			}
		}
	}
}
