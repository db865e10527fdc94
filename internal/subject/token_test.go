package subject_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// tokenPattern matches texts that are valid both as a subject token and as a part of a KV key.
var tokenPattern = regexp.MustCompile(`^[-_=A-Za-z0-9]{1,428}$`)

func TestEncode(t *testing.T) {
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
		encoded, err := subject.EncodeToken(id)
		check.That(t, err == nil && encoded == want, "Encode(%q) = %q, %v, want %q", id, encoded, err, want)
		check.That(t, tokenPattern.MatchString(encoded), "Encode(%q) = %q is no token", id, encoded)
		if back, err := subject.DecodeToken(encoded); err != nil || back != id {
			t.Errorf("Decode(%q) = %q, %v, want %q", encoded, back, err, id)
		}
	}
}

func TestEncodeBounds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		id   string
		want error
	}{
		"empty":         {"", subject.ErrEmpty},
		"longest":       {strings.Repeat("é", subject.MaxID/2), nil},
		"one more":      {strings.Repeat("x", subject.MaxID+1), subject.ErrTooLong},
		"ten thousand":  {strings.Repeat("x", 10_000), subject.ErrTooLong},
		"long, encoded": {strings.Repeat("/", subject.MaxID+1), subject.ErrTooLong},
	} {
		encoded, err := subject.EncodeToken(test.id)
		check.That(t, errors.Is(err, test.want) && (err == nil) == tokenPattern.MatchString(encoded),
			"%s: got %q, %v, want %v", name, encoded, err, test.want)
		check.That(t, err == nil || len(err.Error()) <= 100, "%s: the error repeats the id", name)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]string{
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
		id, err := subject.DecodeToken(bad)
		check.That(t, err != nil, "%s: accepted as %q", name, id)
	}
}

// FuzzToken: every id is refused or becomes a valid token that gives the id back; no two ids share a token,
// which follows from that; and every token that is read is the one that would be written.
func FuzzToken(f *testing.F) {
	for _, seed := range []string{"", "a", "a.b", "=YS5i", "מסעדה", "\x00", "*", "=", "=PQ"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		encoded, err := subject.EncodeToken(s)
		if err == nil {
			check.That(t, tokenPattern.MatchString(encoded), "Encode(%q) = %q is no token", s, encoded)
			back, err := subject.DecodeToken(encoded)
			check.That(t, err == nil && back == s, "Encode(%q) = %q, which decodes to %q, %v", s, encoded, back, err)
		} else if s != "" && len(s) <= subject.MaxID {
			t.Errorf("Encode(%q): %v", s, err)
		}
		if id, err := subject.DecodeToken(s); err == nil {
			again, err := subject.EncodeToken(id)
			check.That(t, err == nil && again == s, "Decode(%q) = %q, which encodes to %q, %v", s, id, again, err)
		}
	})
}
