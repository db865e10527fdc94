package kv

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

// A key that passes is a key by the client's own rule (ADR-8), and one subject.
func FuzzKey(f *testing.F) {
	rule := regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`)
	longest := strings.Repeat("k", MaxKeyBytes)
	for _, seed := range []string{
		"a", "wolt.abc", "aZ09-/_=.x", "_x", longest, "", longest + "k", ".", ".a", "a.", "a..b", "*", ">", "a.*", "a.>", "a b",
		"a\nPUB x", "\x00", "a\x00", "ä", "קפה", "a:b", `a\b`, "\xff",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		bad := !rule.MatchString(key) || strings.HasPrefix(key, ".") || strings.HasSuffix(key, ".") ||
			strings.Contains(key, "..") || len(key) > MaxKeyBytes
		if err := CheckKey(key); (err != nil) != bad || bad && !errors.Is(err, ErrInvalidKey) {
			t.Errorf("CheckKey(%q) = %v, want an error: %v", key, err, bad)
		}
	})
}
