package keys_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/keys"
)

func TestMain(m *testing.M) { natstest.Main(m, 1) }

func TestKeys(t *testing.T) {
	t.Parallel()
	n := contracts.Notification{EventID: "e.1", UserID: "u", RecipientType: "CUSTOMER", Channel: "email", Address: "work"}
	for want, made := range map[string]func() (string, error){
		"notify.plan.=ZS4x":                          func() (string, error) { return keys.Plan("e.1") },
		"notify.plan.=ZS4x.try.7":                    func() (string, error) { return keys.Page("e.1", "try", 7) },
		"notify.send.email.CUSTOMER.u.=ZS4x./work":   func() (string, error) { return keys.Send(&n) },
		"notify.send.email.CUSTOMER.u.=ZS4x./work.2": func() (string, error) { return keys.Replay(&n, 2) },
		"=ZS4x":                           func() (string, error) { return keys.Event("e.1") },
		"=ZS4x.email./work.CUSTOMER.u":    func() (string, error) { return keys.Of(&n) },
		"digest.=ZS4x.email.CUSTOMER.u":   func() (string, error) { return keys.Digest("e.1", "email", "CUSTOMER", "u") },
		"throttle.news.email.CUSTOMER.u":  func() (string, error) { return keys.Throttle("news", "email", "CUSTOMER", "u") },
		"/cancelled.=ZS4x.all":            func() (string, error) { return keys.Cancelled("e.1") },
		"/cancelled.=ZS4x.one.CUSTOMER.u": func() (string, error) { return keys.CancelledUser("e.1", "CUSTOMER", "u") },
		"/cancelled.=ZS4x.one.>":          func() (string, error) { return keys.CancelledUsers("e.1") },
		"CUSTOMER.u":                      func() (string, error) { return keys.Recipient("CUSTOMER", "u") },
		"CUSTOMER.*":                      func() (string, error) { return keys.Recipients("CUSTOMER") },
		"CUSTOMER.u.*":                    func() (string, error) { return keys.Inbox("CUSTOMER", "u") },
		"member.RESTAURANT.5.CUSTOMER.u":  func() (string, error) { return keys.Member("RESTAURANT", "5", "CUSTOMER", "u") },
		"member.RESTAURANT.5.CUSTOMER.*":  func() (string, error) { return keys.Members("RESTAURANT", "5", "CUSTOMER") },
		"member.*.*.CUSTOMER.u":           func() (string, error) { return keys.Memberships("CUSTOMER", "u") },
	} {
		check.Equal(t, check.Must(made())(t), want, want)
	}
	long := contracts.Notification{
		EventID: strings.Repeat("é", contracts.MaxID/2), UserID: strings.Repeat("é", contracts.MaxID/2), RecipientType: "CUSTOMER", Channel: "email",
		Address: strings.Repeat("x", contracts.MaxName),
	}
	key := check.Must(keys.Of(&long))(t)
	check.That(t, len(key) <= kvlock.MaxKeyBytes, "the longest key has %d bytes", len(key))
}

// No address of a notification is taken for the number of a replay, or its key for that of something else, whatever the ids are.
func TestKeysOfAddresses(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, event := range []string{"e", "digest", "throttle", "1", "a.b", "/x", strings.Repeat("é", contracts.MaxID/2)} {
		for _, user := range []string{"u", "2", "/phone"} {
			for _, address := range []string{"", "phone", "p1", "A_-", strings.Repeat("x", contracts.MaxName)} {
				n := contracts.Notification{EventID: event, UserID: user, RecipientType: "CUSTOMER", Channel: "push", Address: address}
				key, err := keys.Of(&n)
				of, failed := keys.Parse(key)
				check.Require(t, err == nil && failed == nil && fmt.Sprint(of) == fmt.Sprint(n), "%q: %v, %v: got %v", key, err, failed, of)
				first, err := keys.Send(&n)
				second, failed := keys.Replay(&n, 3)
				check.Require(t, err == nil && failed == nil, "%v, %v", err, failed)
				for subject, want := range map[string]int{first: 0, second: 3} {
					got, replay, ok := keys.OfSubject(subject)
					other, twice := seen[subject]
					check.That(t, ok && !twice && got == key && replay == want, "%q, as %q: got %q, %d, %v", subject, other, got, replay, ok)
					seen[subject] = key
				}
			}
		}
	}
	for _, key := range []string{"e", "digest.e.push.CUSTOMER.u", "throttle.c.push.CUSTOMER.u", "/cancelled.e.all", "/cancelled.e.one.CUSTOMER.u"} {
		n, err := keys.Parse(key)
		check.That(t, err != nil, "%s: got %v", key, n)
	}
	for _, subject := range []string{
		"notify.plan.e", "notify.send.push.CUSTOMER.u.e.0", "notify.send.push.CUSTOMER.u.e.x", "notify.send.push.CUSTOMER.u.e./p.x",
		"notify.send.push.CUSTOMER.u.e.1.2", "notify.send.push.CUSTOMER.u.e./p.1.2",
	} {
		key, _, ok := keys.OfSubject(subject)
		check.That(t, !ok, "%s: got the key %q", subject, key)
	}
}
