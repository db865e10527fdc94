package recipient_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
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
				check.Is(t, d.SetAddress(t.Context(), contracts.RecipientAdmin, fmt.Sprint("u", w), "email", fmt.Sprint(i, "@example.org")), nil)
			}
		})
	}
	for i := range 200 {
		listed := map[string]bool{}
		for r, err := range d.Resolve(t.Context(), recipient.Query{Scope: rules.ScopeAll, Type: contracts.RecipientAdmin}) {
			check.OK(t, err)
			listed[r.UserID] = true
		}
		check.Require(t, len(listed) == people, "list %d: %v", i, listed)
	}
}

// The answer to a write is lost, as when a leader dies: the write is tried again, and is there once.
func TestAChangeSurvivesALostAnswer(t *testing.T) {
	t.Parallel()
	for _, fault := range []natstest.Fault{natstest.ReplyLost, natstest.WriteLost} {
		t.Run(string(fault), func(t *testing.T) {
			t.Parallel()
			srv, d := serve(t)
			put(t, d, contracts.RecipientAdmin, "ada")
			proxy := natstest.NewProxy(t, srv)
			_, js := natstest.Connect(t, srv, proxy.Through())
			through, err := recipient.OpenDirectory(t.Context(), js, recordtest.Client(t, js), nil)
			check.OK(t, err)
			proxy.Hit(func(f natstest.Frame) bool { return f.Subject == "$KV.directory.ADMIN.ada" }, fault, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			check.OK(t, through.SetAddress(ctx, contracts.RecipientAdmin, "ada", "email", "ada@example.org"))
			r, _, err := d.Get(t.Context(), contracts.RecipientAdmin, "ada")
			check.That(t, err == nil && r.Addresses["email"] == "ada@example.org", "%+v: %v", r, err)
		})
	}
}
