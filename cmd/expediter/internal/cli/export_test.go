package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// subjectsOf are the subjects of all that is kept of a user.
func subjectsOf(t *testing.T, kind contracts.RecipientType, user string) (subjects []string) {
	t.Helper()
	of := string(kind) + "." + check.Must(contracts.EncodeToken(user))(t)
	subjects = []string{
		"$KV.directory." + of, "$KV.directory.member.RESTAURANT.r1." + of, "$KV.deliveries.digest.d1.email." + of,
		"$KV.deliveries.throttle.news.email." + of, "$KV.deliveries./cancelled.e1.one." + of,
	}
	for n := range 3 {
		subjects = append(subjects, fmt.Sprintf("$KV.inbox.%s.e%d", of, n))
	}
	for _, address := range []string{"", "./phone"} {
		send := "notify.send.email." + of + ".e2" + address
		subjects = append(subjects, "$KV.deliveries.e2.email"+address+"."+of, send, send+".1")
	}
	return subjects
}

// oddUser has an id with everything that means something in a subject.
const oddUser = "carla+1@example.com *.>"

// storeUsers stores a message on each subject of a user as a customer and as an administrator, and of two customers whose ids
// are others' tokens. It returns the subjects of the first two. One item of the customer's inbox is deleted.
func storeUsers(t *testing.T, srv *natsrun.Server) (js jetstream.JetStream, customer, admin []string) {
	t.Helper()
	_, js = natstest.Connect(t, srv)
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
	customer, admin = subjectsOf(t, "CUSTOMER", oddUser), subjectsOf(t, "ADMIN", oddUser)
	for i, subject := range slices.Concat(customer, admin, subjectsOf(t, "CUSTOMER", "e1"), subjectsOf(t, "CUSTOMER", "RESTAURANT")) {
		check.OK(t, check.Err(js.Publish(t.Context(), subject, fmt.Appendf(nil, `{"n":%d}`, i))))
	}
	inbox := check.Must(js.KeyValue(t.Context(), contracts.BucketInbox))(t)
	check.OK(t, inbox.Delete(t.Context(), strings.TrimPrefix(customer[5], "$KV.inbox.")))
	return js, slices.Delete(customer, 5, 6), admin
}

// runOn runs a command on a server.
func runOn(t *testing.T, srv *natsrun.Server, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := Run(t.Context(), Config{Stdout: &out, Stderr: &errs}, append([]string{"--server", srv.URL()}, args...))
	check.Require(t, code == want, "expediter %q exits with %d, want %d: %s", args, code, want, &errs)
	return out.String(), errs.String()
}

// All messages that are kept under the id of a user are written, whatever is in the id, and none of another user, such as one
// whose id is that of the user's events. Deleted ones are not written. The audit names no user.
func TestExportWritesWhatIsKeptOfAUser(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	js, customer, admin := storeUsers(t, srv)
	for kind, want := range map[string][]string{"CUSTOMER": customer, "ADMIN": admin, "": slices.Concat(customer, admin), "PARTNER": nil} {
		check.Equal(t, exported(t, srv, oddUser, kind), slices.Sorted(slices.Values(want)))
	}
	records := check.Must(audit.List(t.Context(), js, 10))(t)
	text := fmt.Sprint(records)
	check.That(t, len(records) == 4 && !strings.Contains(text, "carla") && strings.Contains(text, audit.User(oddUser)), "%v", text)
	for name := range js.StreamNames(t.Context()).Name() {
		stream := check.Must(js.Stream(t.Context(), name))(t)
		check.That(t, stream.CachedInfo().State.Consumers <= 0, "a consumer of %s stays", name)
	}
	check.OK(t, js.DeleteStream(t.Context(), contracts.StreamAudit))
	out, _ := runOn(t, srv, ExitUnavailable, "export", oddUser)
	check.That(t, out == "", "without a record: %s", out)
}

// Everything that export writes is removed, with the user's dead letters, and nothing of others, nor of the user as another
// kind of recipient. Messages that an interrupted removal left are removed by the next. The audit names no user.
func TestForgetRemovesWhatIsKeptOfAUser(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) {
		c.Listen = true
		natsrun.ChangeOptions(c, func(o *server.Options) {
			o.NoAuthUser = "root"
			o.Users = []*server.User{{Username: "root", Password: "p"}, {Username: "limited", Password: "p", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.PURGE.KV_deliveries"}},
			}}}
		})
	})
	js, customer, admin := storeUsers(t, srv)
	others := slices.Concat(exported(t, srv, "e1", ""), exported(t, srv, "RESTAURANT", ""))
	for i, subject := range []string{customer[len(customer)-1], admin[len(admin)-1]} {
		check.OK(t, check.Err(worker.PublishDeadLetter(t.Context(), js, "dead", worker.DeadLetter{
			Attempts: 5, Consumer: "email", DeadAt: time.Now(), Error: "refused", ID: fmt.Sprint(i), MaxAttempts: 5, Payload: []byte("{}"),
			Reason: worker.ReasonExhausted, Sequence: uint64(i + 1), Signature: "refused", Stream: contracts.StreamNotifications, Subject: subject,
		})))
	}
	forget := []string{"forget", oddUser, "--type", "CUSTOMER"}
	before := fmt.Sprintf("%d messages", len(customer)+2) // a deleted item, whose key has the id, and a dead letter
	said, _ := runOn(t, srv, ExitOK, forget...)
	check.Contains(t, said, "Would remove "+before)
	check.Equal(t, exported(t, srv, oddUser, "CUSTOMER"), slices.Sorted(slices.Values(customer)))
	runOn(t, srv, ExitUsage, "forget", oddUser, "--yes")

	// A user who may not remove the deliveries does a part.
	forget = append(forget, "--yes")
	runOn(t, srv, ExitUnavailable, append(forget, "--server", strings.Replace(srv.URL(), "//", "//limited:p@", 1))...)
	left := exported(t, srv, oddUser, "CUSTOMER")
	check.That(t, len(left) != 0 && !slices.ContainsFunc(left, func(s string) bool { return strings.HasPrefix(s, "notify.") }),
		"after an interruption there is %q", left)
	for _, removed := range []int{len(left) + 2, 0} {
		_, said := runOn(t, srv, ExitOK, forget...)
		check.Contains(t, said, fmt.Sprintf("%d messages removed", removed))
	}
	check.Equal(t, exported(t, srv, oddUser, "CUSTOMER"), []string(nil))
	check.Equal(t, exported(t, srv, oddUser, "ADMIN"), slices.Sorted(slices.Values(admin)))
	check.Equal(t, slices.Concat(exported(t, srv, "e1", ""), exported(t, srv, "RESTAURANT", "")), others)
	out, _ := runOn(t, srv, ExitOK, "dead", "list", "-o", "jsonl")
	check.That(t, strings.Count(out, "\n") == 1 && strings.Contains(out, "ADMIN"), "dead letters: %s", out)
	stays := 0
	for name := range js.StreamNames(t.Context()).Name() {
		stream := check.Must(js.Stream(t.Context(), name))(t)
		info := check.Must(stream.Info(t.Context(), jetstream.WithSubjectFilter(">")))(t)
		for subject := range info.State.Subjects {
			if strings.Contains(subject, strings.TrimPrefix(customer[0], "$KV.directory.")) {
				stays++
			}
		}
	}
	check.Equal(t, stays, 1) // the mark
	records := check.Must(audit.List(t.Context(), js, 100))(t)
	text := fmt.Sprint(records)
	check.That(t, !strings.Contains(text, "carla") && strings.Contains(text, audit.User(oddUser)), "%v", text)
	check.OK(t, js.DeleteStream(t.Context(), contracts.StreamAudit))
	runOn(t, srv, ExitUnavailable, "forget", oddUser, "--type", "ADMIN", "--yes")
	said, _ = runOn(t, srv, ExitOK, "forget", oddUser, "--type", "ADMIN")
	check.Contains(t, said, fmt.Sprintf("Would remove %d messages", len(admin)+1))
}

// A user is exported and forgotten in full although the first request on each subject of JetStream's API is lost, or its answer is.
func TestExportAndForgetThroughLostMessages(t *testing.T) {
	for _, fault := range []natstest.Fault{natstest.WriteLost, natstest.ReplyLost} {
		natstest.RunBubble(t, string(fault), func(t *testing.T, srv *natsrun.Server) {
			direct, customer, admin := storeUsers(t, srv)
			proxy, js := natstest.Proxied(t, srv)
			lossy := func() jetstream.JetStream {
				seen := map[string]bool{}
				proxy.Hit(func(m natstest.Frame) bool {
					again := seen[m.Subject]
					seen[m.Subject] = true
					return !again && m.FromClient && strings.HasPrefix(m.Subject, "$JS.API.")
				}, fault, 100)
				return js
			}
			f := &natsFlags{globals: &globals{config: Config{Stdout: io.Discard}}, timeout: time.Second}
			export := func(js jetstream.JetStream, kind string, want int) {
				n := check.Must(f.exportFrom(t.Context(), js, oddUser, kind, f.rows(jsonLines, "")))(t)
				check.Equal(t, n, want, "messages of the", kind)
			}
			export(lossy(), "CUSTOMER", len(customer))
			for _, dry := range []bool{true, false} {
				n := check.Must(f.erase(t.Context(), lossy(), oddUser, "CUSTOMER", dry))(t)
				check.Equal(t, n, len(customer)+1, "messages, with the mark of an item")
			}
			export(direct, "CUSTOMER", 0)
			export(direct, "ADMIN", len(admin))
		})
	}
}

// exported returns the subjects that the command writes, sorted.
func exported(t *testing.T, srv *natsrun.Server, user, kind string) (subjects []string) {
	t.Helper()
	out, _ := runOn(t, srv, ExitOK, "export", user, "--type", kind)
	for line := range strings.Lines(out) {
		var l exportLine
		err := json.Unmarshal([]byte(line), &l)
		check.That(t, err == nil && strings.HasPrefix(string(l.Data), `{"n":`) && !l.StoredAt.IsZero(), "%s: %v", line, err)
		subjects = append(subjects, l.Subject)
	}
	slices.Sort(subjects)
	return subjects
}
