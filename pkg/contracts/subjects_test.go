package contracts_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

var subjectPattern = regexp.MustCompile(`^[-_=A-Za-z0-9]+(\.[-_=A-Za-z0-9]+)*$`)

// builders are all functions that put an id of the outside into a subject or a key.
var builders = map[string]struct {
	build  func(id string) (string, error)
	prefix string
	tokens int
}{
	"EnrichJobSubject": {func(id string) (string, error) { return contracts.EnrichJobSubject("wolt", id) }, "jobs.enrich.wolt.", 4},
	"ImportJobSubject": {func(id string) (string, error) { return contracts.ImportJobSubject("high", id) }, "jobs.import.high.", 4},
	"EventSubject":     {func(id string) (string, error) { return contracts.EventSubject(id, id) }, "events.", 3},
	"NotifyPlanSubject": {
		contracts.NotifyPlanSubject, "notify.plan.", 3,
	},
	"NotifySendSubject": {func(id string) (string, error) { return contracts.NotifySendSubject("email", "CUSTOMER", id, id) }, "notify.send.email.CUSTOMER.", 6},
	"EnrichEntryKey":    {func(id string) (string, error) { return contracts.EnrichEntryKey("wolt", id) }, "wolt.", 2},
	"RequestKey":        {contracts.RequestKey, "", 1},
	"ImportJobKey":      {contracts.ImportJobKey, "", 1},
	"ImportStepKey":     {func(id string) (string, error) { return contracts.ImportStepKey(id, "transcript") }, "", 2},
	"DeliveryKey":       {func(id string) (string, error) { return contracts.DeliveryKey(id, "email", "CUSTOMER", id) }, "", 4},
	"InboxKey":          {func(id string) (string, error) { return contracts.InboxKey("CUSTOMER", id, id) }, "CUSTOMER.", 3},
	"NotifyPageSubject": {func(id string) (string, error) { return contracts.NotifyPageSubject(id, "attempt", 7) }, "notify.plan.", 5},
	"DigestKey":         {func(id string) (string, error) { return contracts.DigestKey(id, "email", "CUSTOMER", id) }, "digest.", 5},
	"ThrottleKey":       {func(id string) (string, error) { return contracts.ThrottleKey(id, "email", "CUSTOMER", id) }, "throttle.", 5},
	"EventRecordKey":    {contracts.EventRecordKey, "", 1},
	"DirectoryMemberKey": {
		func(id string) (string, error) { return contracts.DirectoryMemberKey("RESTAURANT", id, "CUSTOMER", id) }, "member.RESTAURANT.", 5,
	},
	"DirectoryKey": {func(id string) (string, error) { return contracts.DirectoryKey("CUSTOMER", id) }, "CUSTOMER.", 2},
}

func TestSubjectsAndKeysTakeAnyID(t *testing.T) {
	t.Parallel()
	ids := []string{
		"ChIJ123", "..", ".", "a.b", "*", ">", " ", "\t", "\x00", "a/b", `a\b`, "מסעדה", "\xff", "$KV.x", "=", "=YQ", "\u202e",
		strings.Repeat("é", contracts.MaxID/2),
	}
	for name, builder := range builders {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := make(map[string]string)
			for _, id := range ids {
				subject, err := builder.build(id)
				if err != nil {
					t.Errorf("%q: %v", id, err)
					continue
				}
				check.That(t, subjectPattern.MatchString(subject) && strings.HasPrefix(subject, builder.prefix) &&
					strings.Count(subject, ".") == builder.tokens-1,
					"%q: got %q", id, subject)
				check.That(t, len(subject) <= kvlock.MaxKeyBytes, "%d bytes, at most %d", len(subject), kvlock.MaxKeyBytes)
				other, twice := seen[subject]
				check.That(t, !twice, "%q and %q are both %q", id, other, subject)
				seen[subject] = id
			}
		})
	}
}

func TestSubjectsAndKeysRefuseByName(t *testing.T) {
	t.Parallel()
	for name, builder := range builders {
		check.Is(t, check.Err(builder.build("")), contracts.ErrEmptyToken, name)
		_, err := builder.build(strings.Repeat("x", 10_000))
		check.That(t, errors.Is(err, contracts.ErrTokenTooLong) && strings.Contains(err.Error(), "contracts: ") && len(err.Error()) <= 100,
			"%s: long: got %v", name, err)
	}
	for _, provider := range []string{"a.b", ">", "é", strings.Repeat("x", contracts.MaxName+1)} {
		_, err := contracts.EnrichEntryKey(provider, "p")
		check.That(t, errors.Is(err, contracts.ErrTokenMalformed) && strings.Contains(err.Error(), "provider"),
			"provider %q: got %v", provider, err)
	}
}

func TestMsgIDs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ got, want string }{
		"event":         {contracts.EventMsgID("/reservations", "evt-001"), "/reservations|evt-001"},
		"bar in source": {contracts.EventMsgID("a|b", "c"), `a\|b|c`},
		"claim":         {contracts.EnrichJobMsgID("claim"), "claim"},
		"import":        {contracts.ImportJobMsgID("job"), "job"},
	} {
		check.That(t, test.got == test.want, "%s: got %q, want %q", name, test.got, test.want)
	}
	check.That(t, contracts.EventMsgID("a|b", "c") != contracts.EventMsgID("a", "b|c"), "two events share an id")
	for _, id := range []string{"", "a b", "é", "x\r\nNats-Rollup: all", strings.Repeat("x", 10_000), "sha256=x"} {
		got := contracts.ImportJobMsgID(id)
		check.That(t, regexp.MustCompile(`^sha256=[\w-]{43}$`).MatchString(got), "%q: got %q", id, got)
	}
}

// No address of a row is taken for the number of a replay, or its key for that of something else, whatever the ids are.
func TestRowsOfAddresses(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, event := range []string{"e", "digest", "throttle", "1", "a.b", "/x", strings.Repeat("é", contracts.MaxID/2)} {
		for _, user := range []string{"u", "2", "/phone"} {
			for _, address := range []string{"", "phone", "p1", "A_-", strings.Repeat("x", contracts.MaxName)} {
				n := contracts.Notification{EventID: event, UserID: user, RecipientType: "CUSTOMER", Channel: "push", Address: address}
				key, err := n.Key()
				of, failed := contracts.RowOfKey(key)
				check.Require(t, err == nil && failed == nil && fmt.Sprint(of) == fmt.Sprint(n), "%q: %v, %v: got %v", key, err, failed, of)
				first, err := n.Subject()
				second, failed := n.ReplaySubject(3)
				check.Require(t, err == nil && failed == nil, "%v, %v", err, failed)
				for subject, want := range map[string]int{first: 0, second: 3} {
					got, replay, ok := contracts.RowKey(subject)
					other, twice := seen[subject]
					check.That(t, ok && !twice && got == key && replay == want, "%q, as %q: got %q, %d, %v", subject, other, got, replay, ok)
					seen[subject] = key
				}
			}
		}
	}
	for _, key := range []string{"e", "digest.e.push.CUSTOMER.u", "throttle.c.push.CUSTOMER.u", "/cancelled.e.all", "/cancelled.e.one.CUSTOMER.u"} {
		n, err := contracts.RowOfKey(key)
		check.That(t, err != nil, "%s: got %v", key, n)
	}
	for _, subject := range []string{
		"notify.plan.e", "notify.send.push.CUSTOMER.u.e.0", "notify.send.push.CUSTOMER.u.e.x", "notify.send.push.CUSTOMER.u.e./p.x",
		"notify.send.push.CUSTOMER.u.e.1.2", "notify.send.push.CUSTOMER.u.e./p.1.2",
	} {
		key, _, ok := contracts.RowKey(subject)
		check.That(t, !ok, "%s: got the key %q", subject, key)
	}
}
