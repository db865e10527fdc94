package recipient_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// Pages of any length have the same entries, in the same order, also where records were replaced and removed.
func TestPages(t *testing.T) {
	t.Parallel()
	d, _ := open(t)
	const people = 600
	for i := range people {
		put(t, d, contracts.RecipientAdmin, fmt.Sprint("u", i), recipient.Member{Type: "CITY", ID: fmt.Sprint(i % 3)})
	}
	for i := 0; i < people; i += 7 {
		check.OK(t, d.SetAddress(t.Context(), contracts.RecipientAdmin, fmt.Sprint("u", i), "fax", "12"))
		check.OK(t, check.Err(d.Forget(t.Context(), contracts.RecipientAdmin, fmt.Sprint("u", i+1))))
	}
	var want []string
	for _, limit := range []int{2000, 501, 500, 7, 1} {
		var got []string
		for from := uint64(0); ; {
			entries, next, err := d.Page(t.Context(), contracts.RecipientAdmin, from, limit)
			check.OK(t, err)
			check.That(t, len(entries) <= limit, "a page of %d has %d entries", limit, len(entries))
			for _, line := range entries {
				got = append(got, string(line))
			}
			if from = next; next == 0 {
				break
			}
		}
		if want == nil {
			want = got
			check.That(t, len(got) > people, "%d entries", len(got))
		}
		check.That(t, slices.Equal(want, got), "limit %d: %d entries, want %d", limit, len(got), len(want))
	}
}
