package deliver_test

import (
	"context"
	"errors"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/deliver"
	"github.com/expediter-io/expediter/services/notifier/internal/deliveries"
)

// keeper is a directory of which addresses are dropped.
type keeper struct {
	profile

	dropped []string
	err     error
}

func (k *keeper) Drop(_ context.Context, kind contracts.RecipientType, userID, name, address string) (bool, error) {
	k.dropped = append(k.dropped, string(kind)+" "+userID+" "+name+" "+address)
	return true, k.err
}

// An address that asks never to be used again is dropped, and no other; the row has ended either way.
func TestAddressesThatAreGoneAreDropped(t *testing.T) {
	for kind, want := range map[channel.Kind]int{channel.KindGone: 1, channel.KindBounced: 0, channel.KindRejected: 0} {
		inNest(t, func(n *nest) {
			k := &keeper{profile: profile{Addresses: map[string]string{"bird": "nest 5", "fish": "pond"}}, err: errors.New("the store is away")}
			n.store()
			n.work(n.sender("a", &bird{fly: fails(kind)}, profile{}, func(c *deliver.Config) { c.Profiles = k }))
			elapse(1e9)
			if len(k.dropped) != want || want == 1 && k.dropped[0] != "CUSTOMER u bird nest 5" {
				n.Errorf("%s: dropped %q", kind, k.dropped)
			}
			if kind == channel.KindGone {
				n.want(deliveries.Bounced, "gone", "gone")
			}
		})
	}
}
