package recipient_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// Somebody whose record is written while a list is read is on the list.
func TestAListHasThoseWhoseRecordsAreWritten(t *testing.T) {
	t.Parallel()
	d, _ := open(t)
	const people = 6
	for i := range people {
		put(t, d, contracts.RecipientAdmin, fmt.Sprint("u", i))
	}
	done := make(chan struct{})
	var writers sync.WaitGroup
	defer writers.Wait()
	defer close(done)
	for w := range 3 {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				if err := d.SetAddress(t.Context(), contracts.RecipientAdmin, fmt.Sprint("u", w), "email", fmt.Sprint(i, "@example.org")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 200 {
		listed := map[string]bool{}
		for r, err := range d.Resolve(t.Context(), recipient.Query{Scope: rules.ScopeAll, Type: contracts.RecipientAdmin}) {
			if err != nil {
				t.Fatal(err)
			}
			listed[r.UserID] = true
		}
		if len(listed) != people {
			t.Fatalf("list %d: %v", i, listed)
		}
	}
}
