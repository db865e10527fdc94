package deadletter

import (
	"testing"

	"github.com/expediter-io/expediter/internal/subject"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestCommonIsTheNarrowestPatternOverBoth(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ a, b, want string }{
		{"a", "a", "a"},
		{"a", "b", ">"},
		{"a.b", "a.b", "a.b"},
		{"a.b", "a.c", "a.>"},
		{"a.b", "a.b.c", "a.>"},
		{"a.b.c", "a.b", "a.>"},
		{"a.b.c", "a.b.d", "a.b.>"},
		{"a.b.>", "a.b.d", "a.b.>"},
		{"a.b.>", "a.b", "a.>"},
		{"a.b.>", "a.c.d", "a.>"},
		{"a.>", "a", ">"},
		{">", "a.b", ">"},
	} {
		got := common(c.a, c.b)
		check.That(t, got == c.want, "common(%q, %q) is %q, want %q", c.a, c.b, got, c.want)
		check.That(t, got == c.b || subject.Matches(got, c.b), "%q does not match %q", got, c.b)
	}
}
