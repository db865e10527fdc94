package address

import (
	"strings"
	"testing"
)

func FuzzUnglue(f *testing.F) {
	for _, s := range []string{"hwyste 375", "ste375", "northpoint pkwy", "12 main st", "דרך יפו 5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := unglue(s); strings.Join(strings.Fields(got), "") != strings.Join(strings.Fields(s), "") {
			t.Errorf("%q becomes %q", s, got)
		}
		Parse(s, nil)
	})
}
