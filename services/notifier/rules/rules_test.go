package rules_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var channels = []string{"email", "inapp"}

const good = `# the recipients
version: 1
events:
  RESERVATION_REQUESTED:
    RESTAURANT_USER:
      channels: [inapp, email]
      category: reservations
      template: reservation.requested
    CUSTOMER:
      scope: user
      channels:
        - inapp
      priority: critical
  "*":
    ADMIN: {scope: all, channels: [inapp], priority: low}
`

func TestRules(t *testing.T) {
	t.Parallel()
	r := check.Must(rules.Parse([]byte(good), channels))(t)
	want := map[contracts.RecipientType]rules.Route{
		"RESTAURANT_USER": {
			Channels: []string{"inapp", "email"}, Category: "reservations", Template: "reservation.requested",
			Priority: "normal", Scope: rules.ScopeAggregate,
		},
		"CUSTOMER": {Channels: []string{"inapp"}, Priority: "critical", Scope: rules.ScopeUser},
	}
	check.Equal(t, r.For("RESERVATION_REQUESTED"), want)
	admins := map[contracts.RecipientType]rules.Route{
		"ADMIN": {Channels: []string{"inapp"}, Priority: "low", Scope: rules.ScopeAll},
	}
	check.Equal(t, r.For("WHATEVER"), admins)
}

func TestJSONIsReadToo(t *testing.T) {
	t.Parallel()
	r, err := rules.Parse([]byte(`{"version":1,"events":{"X":{"ADMIN":{"channels":["inapp"],"scope":"all"}}}}`), channels)
	check.That(t, err == nil && len(r.For("X")) == 1 && r.For("Y") == nil, "%v: %v", r, err)
}

// Every mistake is reported at once, each with its line.
func TestMistakesAreToldAtOnce(t *testing.T) {
	t.Parallel()
	_, err := rules.Parse([]byte(`version: 2
colour: red
events:
  RESERVATION_REQUESTED:
    BROADCAST: {channels: [inapp]}
    "a b": {channels: [inapp]}
    ADMIN:
      channels: [inapp, pigeon, inapp]
      priority: urgent
      scope: everybody
      chanels: [inapp]
    CUSTOMER:
      category: a b
      template: [x]
    AGENCY_USER: inapp
    RESTAURANT_USER: {channels: []}
  RESERVATION_REQUESTED:
    ADMIN: {channels: [inapp]}
  X: &x
    ADMIN: {channels: [inapp]}
  Y: *x
`), channels)
	want := `line 1: version is "2": want 1
line 2: colour is not known here: want categories, events, version
line 5: events.RESERVATION_REQUESTED.BROADCAST is no kind of recipient: name the kinds, each with a scope
line 6: events.RESERVATION_REQUESTED.a b is no kind of recipient: want 1 to 64 of A-Z, a-z, 0-9, '_' and '-'
line 8: events.RESERVATION_REQUESTED.ADMIN.channels has "pigeon": want email, inapp
line 8: events.RESERVATION_REQUESTED.ADMIN.channels has "inapp" twice
line 9: events.RESERVATION_REQUESTED.ADMIN.priority is "urgent": want low, normal, high, critical
line 10: events.RESERVATION_REQUESTED.ADMIN.scope is "everybody": want user, aggregate, all
line 11: events.RESERVATION_REQUESTED.ADMIN.chanels is not known here: want category, channels, digest, fallback, fallback_after, later, priority, scope, template, throttle
line 13: events.RESERVATION_REQUESTED.CUSTOMER.category is "a b": want 1 to 64 of A-Z, a-z, 0-9, '_' and '-'
line 13: events.RESERVATION_REQUESTED.CUSTOMER.channels is missing: want a list of email, inapp
line 14: events.RESERVATION_REQUESTED.CUSTOMER.template must be a text
line 15: events.RESERVATION_REQUESTED.AGENCY_USER must be a mapping of names to values
line 16: events.RESERVATION_REQUESTED.RESTAURANT_USER.channels must be a list of email, inapp
line 17: events.RESERVATION_REQUESTED is there twice, first in line 4
line 21: events.Y is an alias: write it out`
	check.Require(t, err != nil, "accepted")
	check.Equal(t, err.Error(), want)
	all, ok := errors.AsType[*rules.Error](err)
	check.That(t, ok && len(all.Mistakes) == 16, "%T", err)
}

func TestNotEvenYAML(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want string }{
		"empty":      {"", "the file is empty"},
		"a list":     {"- a", "line 1: must be a mapping"},
		"no YAML":    {"version: 1\nevents: [", "line 2: not YAML"},
		"no version": {"events: {}", "line 1: version is missing"},
		"no events":  {"version: 1", "line 1: events is missing"},
		"recursive":  {"a: &a [*a]", "line 1: a is not known"},
		"a null key": {"? {}\n: x", "line 1: "},
		"huge":       {strings.Repeat("#", rules.MaxFile+1), "the file has more than"},
	} {
		_, err := rules.Parse([]byte(test.text), channels)
		check.That(t, err != nil && strings.HasPrefix(err.Error(), test.want), "%s: %v, want %s", name, err, test.want)
	}
}

func TestAnOrderOfChannels(t *testing.T) {
	t.Parallel()
	known := []string{"email", "inapp", "sms"}
	r, err := rules.Parse([]byte(`
version: 1
events:
  X:
    CUSTOMER: {channels: [inapp], fallback_after: 10m, fallback: [email, sms]}
    ADMIN: {fallback: [sms]}
`), known)
	check.OK(t, err)
	route := r.For("X")["CUSTOMER"]
	check.That(t, route.FallbackAfter == 10*time.Minute && slices.Equal(route.Fallback, []string{"email", "sms"}) &&
		slices.Equal(route.Starts(), []string{"inapp", "email"}) && slices.Equal(r.For("X")["ADMIN"].Starts(), []string{"sms"}),
		"%+v", route)
	_, err = rules.Parse([]byte(`version: 1
events:
  X:
    A: {channels: [inapp], fallback: [inapp]}
    B: {channels: [inapp], fallback: [sms, sms]}
    C: {channels: [inapp], fallback: [pigeon]}
    D: {channels: [inapp], fallback_after: 10m}
    E: {fallback: [sms], fallback_after: soon}
    F: {fallback: [sms], fallback_after: 169h}
    G: {fallback: []}
    H: {priority: low}
`), known)
	check.Require(t, err != nil, "mistakes are taken")
	lines := strings.Split(err.Error(), "\n")
	for i, want := range []string{
		`line 4: events.X.A.fallback has "inapp", which the route has elsewhere`, `line 5: events.X.B.fallback has "sms" twice`,
		`line 6: events.X.C.fallback has "pigeon"`, "line 7: events.X.D.fallback_after needs", "line 8: events.X.E.fallback_after is",
		"line 9: events.X.F.fallback_after is", "line 10: events.X.G.fallback must", "line 11: events.X.H.channels is missing",
	} {
		check.That(t, i < len(lines) && strings.HasPrefix(lines[i], want), "want %s in\n%s", want, err)
	}
}

func TestCategories(t *testing.T) {
	t.Parallel()
	r, err := rules.Parse([]byte(`version: 1
categories: {news: {default: Latest, iw: חדשות, en-GB: News}, chat: Talk}
events:
  A: {CUSTOMER: {channels: [inapp, email], category: news}, ADMIN: {channels: [sms], category: admins}}
  B: {CUSTOMER: {channels: [inapp], fallback: [sms, email], category: news}}
  C: {CUSTOMER: {channels: [inapp], category: chat}}
  D: {CUSTOMER: {channels: [webhook]}}
  E: {CUSTOMER: {channels: [sms], category: alarms, priority: critical}}
  "*": {CUSTOMER: {fallback: [sms], category: last_calls}}
`), []string{"inapp", "email", "sms", "webhook"})
	check.OK(t, err)
	all, each := r.Categories("CUSTOMER")
	var got []string
	for _, c := range append(each, all) {
		english, _ := c.Title("en")
		british, tag := c.Title("en-GB-oed")
		hebrew, _ := c.Title("he-IL")
		got = append(got, fmt.Sprintf("%s%v%v %s %s %s %s", c.Name, c.Channels, c.Digest, english, british, tag, hebrew))
	}
	check.Equal(t, got, []string{
		"chat[inapp]false Talk Talk  Talk", "last_calls[sms]false Last calls Last calls  Last calls", "news[email inapp sms]true Latest News en-gb חדשות",
		"*[email inapp sms webhook]true * *  *",
	})
	_, err = rules.Parse([]byte("version: 1\nevents: {}\ncategories: {a b: x, c: {en: [y], f g: z}, d: \"a\\nb\", e: }"), channels)
	check.ErrorContains(t, err, "categories.a b is no category", "categories.c.en must be a text", "categories.c.f g is no locale",
		"categories.d must be one line", "categories.e must be a text")
}

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
	check.Equal(t, route.Starts(), []string{"inapp", "push", "email", "sms"})
	check.Equal(t, route.LaterOn("email"), rules.Later{After: 30 * time.Minute, Channels: []string{"email"}, Unread: true})
	check.Equal(t, route.LaterOn("inapp"), rules.Later{})
	check.Equal(t, route.Longest(), 504*time.Hour, "longest")
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
	check.Equal(t, strings.Split(err.Error(), "\n"),
		strings.Split(`line 4: events.X.A.later must be a list such as [{after: 30m, unread: true, channels: [email]}]
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
line 11: events.X.H.channels is missing: want a list of email, inapp, sms`, "\n"))
}

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
line 32: events.B.K8.digest.template is "other", and category c has "c.digest" elsewhere: its notifications are delivered together
line 33: events.B.K9.digest.at has 0 times of day: want 1 to 24`
	check.Require(t, err != nil, "accepted")
	check.Equal(t, err.Error(), want)
}
