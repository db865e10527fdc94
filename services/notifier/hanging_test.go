package notifier

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// With default settings, endpoints that have never been called and hang, more than there are slots for a provider, hold up no
// others: all of these have their message before the first call that hangs has ended.
func TestNewEndpointsThatHangHoldUpNoOthers(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const each, timeout = 100, 15 * time.Second
		p := newPlace(t, srv)
		for i := range each {
			for _, user := range []string{fmt.Sprint("hang-", i), fmt.Sprint("well-", i)} {
				p.directory(contracts.Recipient{
					RecipientType: contracts.RecipientCustomer, UserID: user, Addresses: map[string]string{"pigeon": "https://" + user + ".example/"},
				})
			}
		}
		birds := &pigeon{}
		birds.send = func(ctx context.Context, m channel.Message) (channel.Receipt, error) {
			if strings.HasPrefix(m.UserID, "hang") {
				<-ctx.Done()
				return channel.Receipt{}, &channel.Error{Kind: channel.KindTimeout}
			}
			return channel.Receipt{}, nil
		}
		p.start(birds, func(c *Config) {
			c.Channels[0].Endpoints, c.Channels[0].Timeout = true, timeout
			c.Rules = writeRules(t, "version: 1\nevents: {X: {CUSTOMER: {scope: all, channels: [pigeon]}}}")
		})
		p.publish(event("e", "X"))
		elapse(timeout - 5*time.Second)
		sent := 0
		for key, d := range p.deliveries() {
			if strings.Contains(key, "well") && d.State.Ended() {
				sent++
			}
		}
		check.Same(t, "sent", sent, each)
	})
}
