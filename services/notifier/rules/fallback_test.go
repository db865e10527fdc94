package rules_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

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
	if route.FallbackAfter != 10*time.Minute || !slices.Equal(route.Fallback, []string{"email", "sms"}) ||
		!slices.Equal(route.Starts(), []string{"inapp", "email"}) || !slices.Equal(r.For("X")["ADMIN"].Starts(), []string{"sms"}) ||
		!slices.Equal(r.Channels(), known) {
		t.Errorf("%+v, %v", route, r.Channels())
	}
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
	if err == nil {
		t.Fatal("mistakes are taken")
	}
	lines := strings.Split(err.Error(), "\n")
	for i, want := range []string{
		`line 4: events.X.A.fallback has "inapp", which channels has too`, `line 5: events.X.B.fallback has "sms" twice`,
		`line 6: events.X.C.fallback has "pigeon"`, "line 7: events.X.D.fallback_after needs", "line 8: events.X.E.fallback_after is",
		"line 9: events.X.F.fallback_after is", "line 10: events.X.G.fallback must", "line 11: events.X.H.channels is missing",
	} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
			t.Errorf("want %s in\n%s", want, err)
		}
	}
}
