package kv

import (
	"errors"
	"regexp"
	"strings"
	"testing"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, key string
		ok        bool
	}{
		{"plain", "wolt.abc", true},
		{"all characters", "aZ09-/_=.x", true},
		{"longest", strings.Repeat("k", MaxKeyBytes), true},
		{"hidden", "_x", true},
		{"empty", "", false},
		{"too long", strings.Repeat("k", MaxKeyBytes+1), false},
		{"leading dot", ".a", false},
		{"trailing dot", "a.", false},
		{"empty token", "a..b", false},
		{"one dot", ".", false},
		{"wildcard", "a.*", false},
		{"full wildcard", "a.>", false},
		{"space", "a b", false},
		{"line feed", "a\nPUB x", false},
		{"NUL", "a\x00", false},
		{"Hebrew", "קפה", false},
		{"colon", "a:b", false},
		{"backslash", `a\b`, false},
		{"not UTF-8", "\xff", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if err := CheckKey(tt.key); (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrInvalidKey) {
				t.Errorf("got %v, want ok %v", err, tt.ok)
			}
		})
	}
}

// What passes is a key by the client's own rule (ADR-8), and one subject.
func FuzzKey(f *testing.F) {
	rule := regexp.MustCompile(`^[-/_=.a-zA-Z0-9]+$`)
	for _, seed := range []string{"a", "a.b", ".", "a..b", "*", ">", "a b", "\x00", "ä"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		bad := !rule.MatchString(key) || strings.HasPrefix(key, ".") || strings.HasSuffix(key, ".") ||
			strings.Contains(key, "..") || len(key) > MaxKeyBytes
		if err := CheckKey(key); (err != nil) != bad {
			t.Errorf("CheckKey(%q) = %v, want an error: %v", key, err, bad)
		}
	})
}
