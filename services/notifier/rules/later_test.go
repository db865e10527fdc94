package rules_test

import (
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

func TestLaterChannels(t *testing.T) {
	t.Parallel()
	known := []string{"email", "inapp", "sms", "push"}
	r, err := rules.Parse([]byte(`version: 1
events:
  X:
    CUSTOMER:
      channels: [inapp]
      fallback: [push]
      later: [{after: 30m, unread: true, channels: [email]}, {after: 504h, channels: [sms]}]
`), known)
	check.OK(t, err)
	route := r.For("X")["CUSTOMER"]
	check.Equal(t, []string{"inapp", "push", "email", "sms"}, route.Starts())
	check.Equal(t, []string{"email", "inapp", "push", "sms"}, r.Channels())
	check.Equal(t, rules.Later{After: 30 * time.Minute, Channels: []string{"email"}, Unread: true}, route.LaterOn("email"))
	check.Equal(t, rules.Later{}, route.LaterOn("inapp"))
	check.Same(t, "longest", route.Longest(), 504*time.Hour)
}

// Every mistake is reported at once, each with its line.
func TestMistakesOfLaterChannels(t *testing.T) {
	t.Parallel()
	_, err := rules.Parse([]byte(`version: 1
events:
  X:
    A: {channels: [inapp], later: 30m}
    B: {channels: [inapp], later: []}
    C: {channels: [inapp], later: [{unread: maybe}]}
    D: {channels: [inapp], later: [{after: 505h, channels: [email]}, {after: 1ms, channels: [pigeon], often: true}]}
    E: {channels: [inapp], fallback: [sms], later: [{after: 1h, channels: [sms, email]}, {after: 2h, channels: [email, inapp]}]}
    F: {channels: [sms], later: [{after: 1h, unread: true, channels: [email]}]}
    G: {channels: [inapp], digest: {every: 1h, channels: [inapp]}, later: [{after: 1h, unread: true, channels: [email]}]}
    H: {later: [{after: 1h, channels: [email]}]}
`), []string{"email", "inapp", "sms"})
	check.Require(t, err != nil, "mistakes are taken")
	check.Equal(t, strings.Split(`line 4: events.X.A.later must be a list such as [{after: 30m, unread: true, channels: [email]}]
line 5: events.X.B.later must be a list such as [{after: 30m, unread: true, channels: [email]}]
line 6: events.X.C.later[0].unread is "maybe": want true, false
line 6: events.X.C.later[0].after is missing
line 6: events.X.C.later[0].channels is missing
line 7: events.X.D.later[0].after is "505h": want whole seconds such as 10m, at most 504h
line 7: events.X.D.later[1].after is "1ms": want whole seconds such as 10m, at most 504h
line 7: events.X.D.later[1].channels has "pigeon": want email, inapp, sms
line 7: events.X.D.later[1].often is not known here: want after, channels, unread
line 8: events.X.E.later[0].channels has "sms", which the route has elsewhere
line 8: events.X.E.later[1].channels has "email", which the route has elsewhere
line 8: events.X.E.later[1].channels has "inapp", which the route has elsewhere
line 9: events.X.F.later[0].unread needs inapp among the channels of the route, in no digest: nothing else knows what is read
line 10: events.X.G.later[0].unread needs inapp among the channels of the route, in no digest: nothing else knows what is read
line 11: events.X.H.channels is missing: want a list of email, inapp, sms`, "\n"), strings.Split(err.Error(), "\n"))
}
