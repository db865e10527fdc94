package recipient_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// A directory that gets no answer says so within seconds, whichever answer it is that does not come, although its caller has
// minutes: the server may have died with the request, and is back.
func TestTheDirectoryGivesAnswersUpThatDoNotCome(t *testing.T) {
	const (
		most   = 16 * time.Second
		people = 1200 // are several pulls
	)
	all := recipient.Query{Scope: rules.ScopeAll, Type: contracts.RecipientAdmin}
	for name, test := range map[string]struct {
		people int
		step   int // to the next answer that is the first not to come
		ask    func(t *testing.T, d *recipient.Directory) error
	}{
		"one": {1, 1, func(t *testing.T, d *recipient.Directory) error {
			_, _, err := d.Get(t.Context(), contracts.RecipientAdmin, "u0")
			return err
		}},
		"a change": {1, 1, func(t *testing.T, d *recipient.Directory) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return d.SetAddress(ctx, contracts.RecipientAdmin, "u0", "fax", "12")
		}},
		"a short list": {3, 1, func(t *testing.T, d *recipient.Directory) error { return check.Err(ids(d.Resolve(t.Context(), all))) }},
		"a long list":  {people, 251, func(t *testing.T, d *recipient.Directory) error { return check.Err(ids(d.Resolve(t.Context(), all))) }},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			d, _ := openOn(t, srv)
			for i := range test.people {
				put(t, d, contracts.RecipientAdmin, fmt.Sprint("u", i))
			}
			through, proxy := through(t, srv)
			for answers := 0; ; answers += test.step {
				came := 0
				proxy.Filter(func(f natstest.Frame) natstest.Verdict {
					if f.FromClient {
						return natstest.Relay
					}
					came++
					if came > answers {
						return natstest.Lose
					}
					return natstest.Relay
				})
				begun := time.Now()
				err := test.ask(t, through)
				proxy.Filter(nil)
				took := time.Since(begun)
				check.That(t, took <= most, "%d answers: %v after %s, want at most %s", answers, err, took, most)
				if err == nil {
					t.Logf("all is there after %d answers", came)
					return
				}
				e, ok := errors.AsType[*recipient.Error](err)
				check.That(t, ok && !e.Permanent, "%d answers: %v", answers, err)
				time.Sleep(time.Minute) //nolint:forbidigo // fake time: what is left of the list ends
			}
		})
	}
}
