package subject_test

import (
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCheckPattern(t *testing.T) {
	t.Parallel()

	for pattern, want := range map[string]error{
		"a": nil, "a.b": nil, "*": nil, ">": nil, "a.*.c": nil, "a.>": nil, "a.*.>": nil,
		"": subject.ErrEmptyToken, "a.": subject.ErrEmptyToken, ".a": subject.ErrEmptyToken, "a..b": subject.ErrEmptyToken,
		"a b": subject.ErrSpace, "a\t": subject.ErrSpace, "a\x00": subject.ErrSpace, "a\x7f": subject.ErrSpace, "a.\xff": subject.ErrSpace,
		"a*": subject.ErrWildcard, "a.>.b": subject.ErrWildcard, ">a": subject.ErrWildcard, "**": subject.ErrWildcard,
	} {
		check.ErrorIs(t, subject.CheckPattern(pattern), want, pattern)
	}

	for _, bad := range []string{"*", ">", "a.*", "a*b"} {
		check.ErrorIs(t, subject.CheckLiteral(bad), subject.ErrWildcard, "literal", bad)
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		pattern, subject string
		want             bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a", "a.b", false},
		{"a.b", "a", false},
		{"a.*", "a.b", true},
		{"a.>", "a", false},
		{"a.>", "a.b", true},
		{"a.>", "a.b.c", true},
		{">", "a", true},
		{">", "", false},
	} {
		got := subject.Matches(test.pattern, test.subject)
		check.That(t, got == test.want, "%q matches %q: %t, want %t", test.pattern, test.subject, got, test.want)
	}
}

// FuzzOverlap holds Overlap against Matches: two patterns overlap when a subject that is
// made from one, with its wildcards filled in, falls under the other.
func FuzzOverlap(f *testing.F) {
	f.Add("a.*", "*.b", "a.b")
	f.Add("a.>", "a.b.c", "a.b.c")
	f.Add("*", "a.>", "a")

	f.Fuzz(func(t *testing.T, a, b, literal string) {
		if subject.CheckPattern(a) != nil || subject.CheckPattern(b) != nil || subject.CheckLiteral(literal) != nil {
			t.Skip()
		}

		overlap := subject.Overlap(a, b)
		check.That(t, overlap == subject.Overlap(b, a), "%q and %q: the order matters", a, b)

		check.That(t, !subject.Matches(a, literal) || !subject.Matches(b, literal) || overlap,
			"%q falls under %q and %q, which do not overlap", literal, a, b)

		same := strings.NewReplacer("*", "x", ">", "x").Replace(a)
		check.That(t, subject.Matches(a, same), "%q does not fall under %q", same, a)
	})
}

func TestCovers(t *testing.T) {
	t.Parallel()

	for _, test := range []struct {
		pattern, other string
		want           bool
	}{
		{"a", "a", true},
		{"a", "b", false},
		{"a", "a.b", false},
		{"a.b", "a", false},
		{"a", ">", false},
		{"*", "a", true},
		{"*", ">", false},
		{"a.*", "a.b", true},
		{">", "a", true},
		{">", "*", true},
		{">", ">", true},
		{"a.>", "a", false},
		{"a.>", "a.b.c", true},
		{"a.>", "a.>", true},
		{"a.>", ">", false},
		{"a.*.c", "a.>", false},
		{"a.*.>", "a.b.>", true},
	} {
		got := subject.Covers(test.pattern, test.other)
		check.That(t, got == test.want, "%q covers %q: %t, want %t", test.pattern, test.other, got, test.want)
	}
}

// A tree finds a pattern exactly where one matches.
func TestTreeFindsWhatMatches(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	name := func(tokens ...string) string {
		parts := make([]string, 1+random.IntN(4))
		for i := range parts {
			parts[i] = tokens[random.IntN(len(tokens))]
		}
		return strings.Join(parts, ".")
	}
	matched := 0
	for range 2000 {
		var tree subject.Tree[string]
		var patterns []string
		for range random.IntN(6) {
			pattern := name("a", "b", "*")
			if random.IntN(3) == 0 {
				pattern += ".>"
			}
			tree.Add(pattern, pattern)
			patterns = append(patterns, pattern)
		}
		to := name("a", "b", "c", "")
		found, ok := tree.Find(to)
		want := false
		for _, pattern := range patterns {
			want = want || subject.Matches(pattern, to)
		}
		check.Require(t, ok == want && (!ok || subject.Matches(found, to)),
			"seed %d: of %q, %q falls under %q: %v, want %v", seed, patterns, to, found, ok, want)
		if ok {
			matched++
		}
	}
	check.That(t, matched >= 200, "seed %d: only %d subjects fell under a pattern", seed, matched)
}

func TestJoin(t *testing.T) {
	t.Parallel()
	check.Equal(t, check.Must(subject.Join("jobs", subject.Name("priority", "high"), subject.ID("job", "a.b")))(t), "jobs.high.=YS5i",
		"joined")
	check.Equal(t, check.Must(subject.Join("", subject.ID("job", "j"), subject.ID("job", ">")))(t), "j.=Pg", "without a prefix")
	for name, test := range map[string]struct {
		part subject.Part
		want error
	}{
		"an empty id":         {subject.ID("job", ""), subject.ErrEmpty},
		"a long id":           {subject.ID("job", strings.Repeat("x", subject.MaxID+1)), subject.ErrTooLong},
		"a name with a dot":   {subject.Name("job", "a.b"), subject.ErrMalformed},
		"a wildcard":          {subject.Name("job", ">"), subject.ErrMalformed},
		"a name that is long": {subject.Name("job", strings.Repeat("x", subject.MaxName+1)), subject.ErrMalformed},
	} {
		joined, err := subject.Join("jobs", test.part)
		check.That(t, joined == "" && errors.Is(err, test.want) && strings.HasPrefix(err.Error(), "job: "), "%s: %q, %v", name, joined, err)
	}
}

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
		back, err := subject.DecodeToken(encoded)
		check.That(t, err == nil && back == id, "Decode(%q) = %q, %v, want %q", encoded, back, err, id)
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

func TestIsName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": false, "a": true, "A-z_09": true, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false, "a.b": false, "a b": false,
		"a\n": false, "é": false, "*": false,
	} {
		check.Equal(t, subject.IsName(text, 64), want, text)
	}
}
