package kvlock

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
			if err := checkKey(tt.key); (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrInvalidKey) {
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
		if err := checkKey(key); (err != nil) != bad {
			t.Errorf("checkKey(%q) = %v, want an error: %v", key, err, bad)
		}
	})
}

func TestReferences(t *testing.T) {
	t.Parallel()
	id, revision, attempt, err := parseRef(formatRef("AbC09", 7, 3))
	if err != nil || id != "AbC09" || revision != 7 || attempt != 3 {
		t.Errorf("got %q, %d, %d, %v", id, revision, attempt, err)
	}
	for _, ref := range []string{
		"", ".", "..", "a", "a.1", "a.1.", "a.1.0", "a.1.-1", "a.-1.1", "a.1.1.1", ".1.1", "a.x.1", "a.1.x", "a b.1.1", "a\n.1.1", "ä.1.1",
		"a.99999999999999999999.1", "a.1.99999999999", strings.Repeat("a", maxClaimBytes+1) + ".1.1", "a." + strings.Repeat("0", 1000) + "1.1",
	} {
		if _, _, _, err := parseRef(ref); !errors.Is(err, ErrInvalidRef) {
			t.Errorf("%q is %v, want ErrInvalidRef", ref, err)
		}
	}
}

func FuzzReference(f *testing.F) {
	f.Add("abc.1.1")
	f.Add("...")
	f.Fuzz(func(t *testing.T, ref string) {
		id, revision, attempt, err := parseRef(ref)
		if err != nil {
			return
		}
		id2, revision2, attempt2, err := parseRef(formatRef(id, revision, attempt))
		if err != nil || id2 != id || revision2 != revision || attempt2 != attempt || !isClaim(id) {
			t.Errorf("%q: got %q.%d.%d, then %q.%d.%d, %v", ref, id, revision, attempt, id2, revision2, attempt2, err)
		}
	})
}
