package notifier

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// failing is a source of recipients that fails for each of errs, and then knows one user. It notes when it is asked.
type failing struct {
	asked []time.Time
	errs  []error
}

func (f *failing) Resolve(_ context.Context, q recipient.Query) iter.Seq2[contracts.Recipient, error] {
	tried := len(f.asked)
	f.asked = append(f.asked, time.Now())
	return func(yield func(contracts.Recipient, error) bool) {
		if tried < len(f.errs) {
			yield(contracts.Recipient{}, f.errs[tried])
			return
		}
		yield(contracts.Recipient{RecipientType: q.Type, UserID: "u"}, nil)
	}
}

// A source of recipients that fails is asked again after 1 s, 2 s and so on up to 5 minutes, a fifth more or less, or when it wants
// to be asked. Then the event is told.
func TestASourceThatFailsIsAskedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		err   recipient.Error
		waits []int   // in seconds
		share float64 // by which they may differ
	}{
		"it fails":         {recipient.Error{}, []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300}, 0.2},
		"it says how long": {recipient.Error{RetryAfter: 10 * time.Minute}, []int{600, 600, 600}, 0},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			p := newPlace(t, srv)
			source := &failing{}
			for range test.waits {
				source.errs = append(source.errs, &test.err)
			}
			n := p.start(&pigeon{}, func(c *Config) { c.Resolver = source })
			p.publish(event("evt-001", "RESERVATION_REQUESTED"))
			for _, wait := range test.waits {
				elapse(time.Second + time.Duration(float64(wait)*(1+test.share)*float64(time.Second)))
			}
			if e, err := n.Event(t.Context(), "evt-001"); err != nil || e.Rows == 0 {
				t.Errorf("%+v: %v", e, err)
			}
			check.Is(t, n.Stop(), nil)
			if len(source.asked) <= len(test.waits) {
				t.Fatalf("asked %d times, want more than %d", len(source.asked), len(test.waits))
			}
			for i, wait := range test.waits {
				took, want := source.asked[i+1].Sub(source.asked[i]), time.Duration(wait)*time.Second
				most := time.Duration(test.share * float64(want))
				if took < want-most || took > want+most+50*time.Millisecond {
					t.Errorf("wait %d took %s, want %s, by %s more or less", i+1, took, want, most)
				}
			}
		})
	}
}
