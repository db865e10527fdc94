package recipient_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Reads that begin while one is under way share the next round trip, and each gets its own recipient: also when the caller gives up that
// reads for the others, and beside a recipient that there cannot be.
func TestReadsShareRoundTrips(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const people = 100
		d, _ := openOn(t, srv)
		for i := range people {
			check.OK(t, d.SetAddress(t.Context(), contracts.RecipientAdmin, fmt.Sprint("u", i), "fax", fmt.Sprint(i)))
		}
		d, proxy := through(t, srv)
		var all sync.WaitGroup
		get := func(ctx context.Context, user, fax string, want error) {
			all.Go(func() {
				r, _, err := d.Get(ctx, contracts.RecipientAdmin, user)
				check.Is(t, err, want)
				if r.Addresses["fax"] != fax {
					t.Errorf("%.10s: %+v, %v", user, r, err)
				}
			})
		}
		lose := func(which ...int) (requests *int) {
			requests = new(int)
			proxy.Filter(func(f natstest.Frame) natstest.Verdict {
				if !f.FromClient || !strings.HasPrefix(f.Subject, "$JS.API.DIRECT.GET.") {
					return natstest.Relay
				}
				*requests++
				if slices.Contains(which, *requests) {
					return natstest.Lose
				}
				return natstest.Relay
			})
			return requests
		}

		requests := lose(1)
		get(t.Context(), "u0", "0", nil)
		synctest.Wait()
		for i := range people {
			get(t.Context(), fmt.Sprint("u", i), fmt.Sprint(i), nil)
		}
		all.Wait()
		check.Same(t, "requests, of which the first was lost and sent again", *requests, 3)

		lose(1)
		get(t.Context(), "u0", "0", nil)
		synctest.Wait()
		get(t.Context(), strings.Repeat("u", 1000), "", contracts.ErrTokenTooLong)
		get(t.Context(), "u1", "1", nil)
		all.Wait()

		lose(1, 3) // and so what the one of the crowd sends that reads for all
		crowd, leave := context.WithCancel(t.Context())
		get(t.Context(), "u0", "0", nil)
		synctest.Wait()
		for i := range people {
			get(crowd, fmt.Sprint("u", i), "", context.Canceled)
		}
		get(t.Context(), "u2", "2", nil)
		time.Sleep(600 * time.Millisecond) //nolint:forbidigo // fake time: the request of the first is sent again, and answered
		synctest.Wait()
		leave()
		all.Wait()
	})
}
