package notifier

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/services/notifier/internal/api"
)

// bound gives a stream another bound of bytes.
func (p *place) bound(name string, bytes int64) {
	p.Helper()
	stream := check.Must(p.js.Stream(p.Context(), name))(p)
	config := stream.CachedInfo().Config
	config.MaxAge, config.MaxBytes = 0, bytes // by its age the server would remove all at once, under fake time
	check.OK(p, check.Err(p.js.UpdateStream(p.Context(), config)))
}

// A request that a full store refuses is answered by a problem of its own, the service is not ready and names the store, and both go
// away when there is room. What was told meanwhile reaches its users then.
func TestAFullStoreIsNamedAndOvercome(t *testing.T) {
	const staff = contracts.RecipientRestaurantUser
	publish := func(ctx context.Context, n *Notifier) error {
		_, err := n.Publish(ctx, event("evt-002", "RESERVATION_REQUESTED", func(e *contracts.Event) { e.RecipientType = staff }))
		return err
	}
	replay := func(ctx context.Context, n *Notifier) error {
		_, err := n.Replay(ctx, Query{EventID: "evt-001"})
		return err
	}
	for name, test := range map[string]struct {
		stream string
		ask    func(ctx context.Context, n *Notifier) error
		taken  bool // by a stream that has room; what follows waits
	}{
		"publish": {stream: "KV_deliveries", ask: publish},
		"cancel": {stream: "KV_deliveries", ask: func(ctx context.Context, n *Notifier) error {
			_, err := n.Cancel(ctx, Cancellation{EventID: "evt-001"})
			return err
		}},
		"record of a replay": {stream: "KV_deliveries", ask: replay},
		"row of a replay":    {stream: contracts.StreamNotifications, ask: replay},
		"mark": {stream: "KV_inbox", ask: func(ctx context.Context, n *Notifier) error {
			_, err := n.Inbox.Mark(ctx, staff, "u0", "evt-001", inapp.Read)
			return err
		}},
		"recipient": {stream: "KV_directory", ask: func(ctx context.Context, n *Notifier) error {
			return n.Directory.Put(ctx, contracts.Recipient{RecipientType: staff, UserID: "u9"})
		}},
		"rows":   {stream: contracts.StreamNotifications, ask: publish, taken: true},
		"items":  {stream: "KV_inbox", ask: publish, taken: true},
		"jobs":   {stream: "KV_jobs", ask: publish, taken: true},
		"events": {stream: contracts.StreamEvents, ask: publish, taken: true}, // drops the oldest, and has room for one
	} {
		t.Run(name, func(t *testing.T) {
			natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
				p := newPlace(t, srv)
				p.directory(users(staff, 2)...)
				n := p.start(&pigeon{send: func(context.Context, channel.Message) (channel.Receipt, error) {
					return channel.Receipt{}, &channel.Error{Channel: "pigeon", Kind: channel.KindRejected}
				}})
				p.publish(event("evt-001", "RESERVATION_REQUESTED", func(e *contracts.Event) { e.RecipientType = staff }))
				p.settled(4)
				refuses := test.stream != contracts.StreamEvents
				if refuses {
					p.bound(test.stream, 1)
				} else {
					p.bound(test.stream, 600)
				}
				err := test.ask(t.Context(), n)
				problem := service.ErrorMapper(api.Problem).Of(err)
				if test.taken != (err == nil) || err != nil && (problem.Status != http.StatusInsufficientStorage || problem.Code != "STORE_FULL") {
					t.Errorf("%+v: %v", problem, err)
				}
				if err != nil && !strings.Contains(err.Error(), strings.TrimPrefix(test.stream, "KV_")) {
					t.Errorf("the error does not name %s: %v", test.stream, err)
				}
				elapse(20 * time.Second)
				if ready := n.running.Ready()["streams"]; (ready != nil) != refuses || refuses && !strings.Contains(ready.Error(), test.stream) {
					t.Errorf("%v does not name %s", ready, test.stream)
				}
				p.bound(test.stream, 1<<26)
				if !test.taken {
					check.Is(t, test.ask(t.Context(), n), nil)
				}
				elapse(time.Minute)
				if test.taken {
					p.settled(8)
				}
				for check, err := range n.running.Ready() {
					if err != nil {
						t.Errorf("%s: %v", check, err)
					}
				}
			})
		})
	}
}
