package record_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
)

// Pages of any size hold each record that matches once, in the order of their last writes.
func TestScan(t *testing.T) {
	t.Parallel()
	_, js := natstest.Connect(t, natstest.Server(t))
	s := open(t, js)
	for n := range 10 {
		for _, subject := range []string{"r.%d.a", "r.%d.b"} {
			if _, err := s.Put(t.Context(), fmt.Sprintf(subject, n), nil, []byte("x"), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := s.Put(t.Context(), "r.0.a", nil, []byte("y"), 1); err != nil {
		t.Fatal(err)
	}
	want := []string{"r.1.a", "r.2.a", "r.3.a", "r.4.a", "r.5.a", "r.6.a", "r.7.a", "r.8.a", "r.9.a", "r.0.a"}
	for limit := 1; limit < 12; limit++ {
		var got []string
		for from := uint64(1); from > 0; {
			page, next, err := s.Scan(t.Context(), "r.*.a", from, limit)
			if err != nil || len(page) > limit || next > 0 && next <= from {
				t.Fatalf("%d from %d, next %d: %v", len(page), from, next, err)
			}
			for _, m := range page {
				got = append(got, m.Subject)
				if m.Revision == 0 || m.Time.IsZero() || len(m.Data) != 1 {
					t.Errorf("%+v", m)
				}
			}
			from = next
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("pages of %d: %s", limit, diff)
		}
	}
	if page, next, err := s.Scan(t.Context(), "r.*.c", 1, 10); err != nil || len(page) > 0 || next > 0 {
		t.Errorf("%v, %d, %v", page, next, err)
	}
	if err := js.DeleteStream(t.Context(), "R"); err != nil {
		t.Fatal(err)
	}
	if page, _, err := s.Scan(t.Context(), "r.>", 1, 10); err == nil {
		t.Errorf("%v of a stream that is not there", page)
	}
}

// What a question costs to which the answer is mostly that there is nothing new.
func BenchmarkScanOfNothing(b *testing.B) {
	_, js := natstest.Connect(b, natstest.Server(b))
	s := open(b, js)
	for b.Loop() {
		if page, _, err := s.Scan(b.Context(), "r.>", 1, 1000); err != nil || len(page) > 0 {
			b.Fatal(page, err)
		}
	}
}
