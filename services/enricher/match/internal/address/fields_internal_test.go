package address

import (
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func FuzzUnglue(f *testing.F) {
	for _, s := range []string{"hwyste 375", "ste375", "northpoint pkwy", "12 main st", "דרך יפו 5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := unglue(s)
		check.That(t, strings.Join(strings.Fields(got), "") == strings.Join(strings.Fields(s), ""), "%q becomes %q", s, got)
		Parse(s, nil)
	})
}
