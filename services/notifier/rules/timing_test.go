package rules_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

func TestDigestsAndThrottles(t *testing.T) {
	t.Parallel()
	r, err := rules.Parse([]byte(`version: 1
events:
  X:
    ADMIN: {channels: [inapp, email], category: c, digest: {every: 30m}, throttle: {limit: 5, per: 1h}}
    CUSTOMER: {channels: [inapp, email], digest: {at: [09:00, "17:30"], channels: [inapp], template: mine}, throttle: {limit: 1, per: 168h, over: suppress}}
    AGENCY_USER: {channels: [email], digest: {at: 09:00}}
`), channels)
	check.OK(t, err)
	routes := r.For("X")
	want := map[contracts.RecipientType][]any{
		"ADMIN": {
			(*contracts.Digest)(nil), &contracts.Digest{Every: 30}, &contracts.Throttle{Limit: 5, Per: 3600},
		},
		"CUSTOMER": {
			&contracts.Digest{At: []string{"09:00", "17:30"}, Template: "mine"}, (*contracts.Digest)(nil),
			&contracts.Throttle{Limit: 1, Per: 168 * 3600, Suppress: true},
		},
		"AGENCY_USER": {(*contracts.Digest)(nil), &contracts.Digest{At: []string{"09:00"}}, (*contracts.Throttle)(nil)},
	}
	for kind, parts := range want {
		route := routes[kind]
		diff := cmp.Diff(parts, []any{route.DigestOn("inapp"), route.DigestOn("email"), route.Throttle})
		check.That(t, diff == "", "%s\n%s", kind, diff)
	}
}

// Every mistake is reported at once, each with its line.
func TestMistakesOfDigestsAndThrottles(t *testing.T) {
	t.Parallel()
	_, err := rules.Parse([]byte(`version: 1
events:
  A:
    K1: {channels: [email], digest: daily, throttle: 5}
    K2: {channels: [email], digest: {}, throttle: {}}
    K3: {channels: [email], digest: {every: 1h, at: "09:00"}}
    K4:
      channels: [email]
      digest:
        every: 7h
        channels: [inapp]
        templat: x
      throttle:
        limit: 101
        per: 169h
        over: drop
    K5:
      channels: [email]
      digest:
        at: ["9:00", "24:00", "10:00", "10:00"]
      throttle: {limit: x, per: 90, over: defer}
    K6:
      channels: [inapp]
      digest: {every: 30s}
    K7:
      channels: [email]
      priority: critical
      digest: {every: 1h}
      throttle: {limit: 1, per: 1h}
    K8: {channels: [email], category: c, digest: {every: 1h}}
  B:
    K8: {channels: [email], category: c, digest: {every: 2h, template: other}}
    K9: {channels: [email], digest: {at: []}}
`), channels)
	want := `line 4: events.A.K1.digest must be a mapping of names to values
line 4: events.A.K1.throttle must be a mapping of names to values
line 5: events.A.K2.digest is missing its times: want every, such as 30m, or at, such as "09:00"
line 5: events.A.K2.throttle.limit is missing
line 5: events.A.K2.throttle.per is missing
line 6: events.A.K3.digest has both at and every: want one of them
line 10: events.A.K4.digest.every is "7h": want whole minutes that divide a day, such as 15m, 30m, 1h, 4h or 24h
line 10: events.A.K4.digest.channels has "inapp", which is no channel of the route: want email
line 12: events.A.K4.digest.templat is not known here: want at, channels, every, template
line 14: events.A.K4.throttle.limit is "101": want 1 to 100
line 15: events.A.K4.throttle.per is "169h": want whole seconds such as 10m, at most 168h
line 16: events.A.K4.throttle.over is "drop": want defer, suppress
line 20: events.A.K5.digest.at is "9:00": want a time of day such as "09:00"
line 20: events.A.K5.digest.at is "24:00": want a time of day such as "09:00"
line 20: events.A.K5.digest.at has "10:00" twice
line 21: events.A.K5.throttle.limit is "x": want 1 to 100
line 21: events.A.K5.throttle.per is "90": want whole seconds such as 10m, at most 168h
line 24: events.A.K6.digest.every is "30s": want whole minutes that divide a day, such as 15m, 30m, 1h, 4h or 24h
line 24: events.A.K6.digest.channels is missing: inapp delivers no digests unless it is named here
line 28: events.A.K7.digest cannot be with priority critical, which is delivered at once: leave one of them out
line 29: events.A.K7.throttle cannot be with priority critical, which is delivered at once: leave one of them out
line 32: events.B.K8.digest.template is "other", and category c has "c.digest" elsewhere: its rows are delivered together
line 33: events.B.K9.digest.at has 0 times of day: want 1 to 24`
	check.Require(t, err != nil, "accepted")
	check.Equal(t, want, err.Error())
}
