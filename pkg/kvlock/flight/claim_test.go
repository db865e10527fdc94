package flight

import (
	"errors"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/kvlock/internal/record"
)

func TestReferences(t *testing.T) {
	t.Parallel()
	id, revision, attempt, err := parseRef(formatRef("AbC09", 7, 3))
	if err != nil || id != "AbC09" || revision != 7 || attempt != 3 {
		t.Errorf("got %q, %d, %d, %v", id, revision, attempt, err)
	}
	for _, ref := range []string{
		"", ".", "..", "a", "a.1", "a.1.", "a.1.0", "a.1.-1", "a.-1.1", "a.1.1.1", ".1.1", "a.x.1", "a.1.x", "a b.1.1", "a\n.1.1", "ä.1.1",
		"a.99999999999999999999.1", "a.1.99999999999", strings.Repeat("a", record.MaxIDBytes+1) + ".1.1", "a." + strings.Repeat("0", 1000) + "1.1",
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
		if err != nil || id2 != id || revision2 != revision || attempt2 != attempt || !record.IsID(id) {
			t.Errorf("%q: got %q.%d.%d, then %q.%d.%d, %v", ref, id, revision, attempt, id2, revision2, attempt2, err)
		}
	})
}
