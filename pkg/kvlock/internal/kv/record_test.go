package kv

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzTruncate(f *testing.F) {
	f.Add("שלום", 3)
	f.Add("\xff\xff", 1)
	f.Fuzz(func(t *testing.T, s string, n int) {
		n = max(0, n)
		got := Truncate(s, n)
		switch {
		case len(got) > n, !strings.HasPrefix(s, got), len(s) <= n && got != s:
			t.Errorf("Truncate(%q, %d) = %q", s, n, got)
		case utf8.ValidString(s) && (!utf8.ValidString(got) || len(s) > n && len(got) < n-3):
			t.Errorf("Truncate(%q, %d) = %q cuts a character, or too much", s, n, got)
		}
	})
}
