package health

import (
	"fmt"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
)

// However many endpoints are called, those that are well and idle make room, and one that is down stays known.
func TestHowManyEndpointsAreKnown(t *testing.T) {
	t.Parallel()
	var b breaker
	now := time.Unix(0, 0)
	call := func(key string, failure *channel.Error) {
		c := &Call{Address: key, Channel: "push", Slots: 32, Timeout: time.Second, key: key}
		if wait, _ := b.enter(c, now); wait == 0 {
			b.called(c, now, failure)
		}
	}
	for range strikes {
		call("down", &channel.Error{Kind: channel.KindTimeout})
	}
	check.Equal(t, b.held(now)["push"], 1, "endpoints are held")
	for i := range maxKnown + 5000 {
		call(fmt.Sprint("well-", i), nil)
	}
	_, down := b.enter(&Call{Channel: "push", Slots: 32, key: "down"}, now)
	check.That(t, down && len(b.known) <= maxKnown, "%d endpoints are known; the one that is down: %v", len(b.known), down)
	l := b.lanes["push"]
	check.That(t, l.calls == 0 && l.slow == 0 && len(l.sites) == 0, "slots are not given back: %+v", l)
}

func TestWhoseAnEndpointIs(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"https://a.b.example.co.uk/x":                "example.co.uk",
		`{"endpoint":"https://hooks.example.com/7"}`: "example.com",
		"http://127.0.0.1:8080/a":                    "127.0.0.1:8080",
		"https://[2001:db8::1]/a":                    "[2001:db8::1]",
		"https://localhost:1/a":                      "localhost:1",
		"tel 7":                                      "tel 7",
	} {
		check.Equal(t, site(address), want, address)
	}
}
