package contracts_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// tokenPattern is what both a subject token and a part of a KV key may be.
var tokenPattern = regexp.MustCompile(`^[-_=A-Za-z0-9]{1,428}$`)

func TestEncodeToken(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"ChIJ123":             "ChIJ123",
		"a-B_9":               "a-B_9",
		"-":                   "-",
		"a.b":                 "=YS5i",
		".":                   "=Lg",
		"..":                  "=Li4",
		"*":                   "=Kg",
		">":                   "=Pg",
		" ":                   "=IA",
		"\x00":                "=AA",
		"/":                   "=Lw",
		`\`:                   "=XA",
		"=YS5i":               "=PVlTNWk",
		"\r\n":                "=DQo",
		"מסעדה":               "=157Xodei15PXlA",
		"$SYS":                "=JFNZUw",
		"\xff\xfe":            "=__4",
		"https://x.example/?": "=aHR0cHM6Ly94LmV4YW1wbGUvPw",
	} {
		token, err := contracts.EncodeToken(id)
		if err != nil || token != want {
			t.Errorf("EncodeToken(%q) = %q, %v, want %q", id, token, err, want)
		}
		if !tokenPattern.MatchString(token) {
			t.Errorf("EncodeToken(%q) = %q is no token", id, token)
		}
		if back, err := contracts.DecodeToken(token); err != nil || back != id {
			t.Errorf("DecodeToken(%q) = %q, %v, want %q", token, back, err, id)
		}
	}
}

func TestEncodeTokenBounds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		id   string
		want error
	}{
		"empty":         {"", contracts.ErrEmptyToken},
		"longest":       {strings.Repeat("é", contracts.MaxID/2), nil},
		"one more":      {strings.Repeat("x", contracts.MaxID+1), contracts.ErrTokenTooLong},
		"ten thousand":  {strings.Repeat("x", 10_000), contracts.ErrTokenTooLong},
		"long, encoded": {strings.Repeat("/", contracts.MaxID+1), contracts.ErrTokenTooLong},
	} {
		token, err := contracts.EncodeToken(test.id)
		if !errors.Is(err, test.want) || (err == nil) != tokenPattern.MatchString(token) {
			t.Errorf("%s: got %q, %v, want %v", name, token, err, test.want)
		}
		if err != nil && len(err.Error()) > 100 {
			t.Errorf("%s: the error repeats the id", name)
		}
	}
}

func TestDecodeTokenRefuses(t *testing.T) {
	t.Parallel()
	for name, token := range map[string]string{
		"empty":               "",
		"only the mark":       "=",
		"padding":             "=YS5iYw==",
		"standard alphabet":   "=+/8",
		"line break inside":   "=YS\n5i",
		"trailing bits":       "=Lh",
		"needs no encoding":   "=YWJj",
		"unsafe, not encoded": "a.b",
		"mark inside":         "a=b",
		"too long":            "=" + strings.Repeat("A", 600),
		"too long, plain":     strings.Repeat("A", 600),
	} {
		if id, err := contracts.DecodeToken(token); err == nil {
			t.Errorf("%s: accepted as %q", name, id)
		}
	}
}

// FuzzToken: every id is refused or becomes a valid token that gives the id back; no two ids share a token,
// which follows from that; and every token that is read is the one that would be written.
func FuzzToken(f *testing.F) {
	for _, seed := range []string{"", "a", "a.b", "=YS5i", "מסעדה", "\x00", "*", "=", "=PQ"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		token, err := contracts.EncodeToken(s)
		if err == nil {
			if !tokenPattern.MatchString(token) {
				t.Errorf("EncodeToken(%q) = %q is no token", s, token)
			}
			if back, err := contracts.DecodeToken(token); err != nil || back != s {
				t.Errorf("EncodeToken(%q) = %q, which decodes to %q, %v", s, token, back, err)
			}
		} else if s != "" && len(s) <= contracts.MaxID {
			t.Errorf("EncodeToken(%q): %v", s, err)
		}
		if id, err := contracts.DecodeToken(s); err == nil {
			if again, err := contracts.EncodeToken(id); err != nil || again != s {
				t.Errorf("DecodeToken(%q) = %q, which encodes to %q, %v", s, id, again, err)
			}
		}
	})
}
