package doctor_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/cmd/expediter/internal/doctor"
	deploy "github.com/expediter-io/expediter/deploy/nats"
	"github.com/expediter-io/expediter/internal/inspect"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

func stop(s *site) { s.stop() }

// publish stores a message.
func publish(subject string, size int) func(*site) {
	return func(s *site) {
		check.OK(s.T, check.Err(s.js.Publish(s.Context(), subject, make([]byte, size))))
	}
}

func purge(stream string) func(*site) {
	return func(s *site) {
		found := check.Must(s.js.Stream(s.Context(), stream))(s.T)
		check.OK(s.T, found.Purge(s.Context()))
	}
}

// answers makes a worker that says something of itself.
func answers(info inspect.Info) func(*site) {
	return func(s *site) {
		sub, err := s.js.Conn().Subscribe(inspect.SubjectInfo, func(m *nats.Msg) {
			data, _ := json.Marshal(info) // is one
			m.Respond(data)               //nolint:errcheck // the client says so
		})
		check.OK(s.T, err)
		s.stop = sync.OnceFunc(func() { check.OK(s.T, errors.Join(sub.Unsubscribe(), s.js.Conn().Flush())) })
		s.Cleanup(s.stop)
		check.OK(s.T, s.js.Conn().Flush())
	}
}

var workMistakes = []mistake{
	{name: "a worker of other jobs runs", id: "worker.gone", make: after(publish("jobs.import.low.a", 1), answers(inspect.Info{
		ID: "w", Ready: true, Stream: "IMPORT_JOBS", Handlers: []inspect.Handler{{Consumer: "importer"}},
	})), undo: purge("IMPORT_JOBS")},
	{name: "dead letters", id: "dead.letters", warns: true, make: func(s *site) {
		_, err := worker.PublishDeadLetter(s.Context(), s.js, "dead", worker.DeadLetter{
			Attempts: 5, Consumer: "enricher", DeadAt: time.Now(), Error: "status 503", ID: "a", MaxAttempts: 5, Payload: []byte("{}"),
			Reason: worker.ReasonExhausted, Sequence: 1, Signature: "status #", Stream: contracts.StreamEnrichJobs, Subject: "jobs.enrich.wolt.a",
		})
		check.OK(s.T, err)
	}, undo: func(s *site) { s.run(0, "dead", "discard", "--yes", "--reason", "exhausted") }},
	{name: "a replica is behind", id: "replica.behind", warns: true, undo: stop, make: tells("STREAM.INFO.KV_locks", func(answer map[string]any) {
		answer["cluster"] = map[string]any{"leader": "n1", "replicas": []any{map[string]any{"name": "n2", "current": false, "lag": 7}}}
	})},
	{name: "a stream has no leader", id: "stream.leader", undo: stop, make: tells("STREAM.INFO.KV_locks", func(answer map[string]any) {
		answer["cluster"] = map[string]any{"leader": ""}
	})},
	{name: "a bucket refuses a write", id: "store.refuses", undo: stop, make: tells("$KV.locks.ready.", func(answer map[string]any) {
		answer["error"] = map[string]any{"code": 503, "err_code": 10047, "description": "insufficient storage resources available"}
	})},
	{name: "an account has no room", id: "account.store", undo: stop, make: tells("INFO", func(answer map[string]any) {
		answer["storage"], answer["limits"] = 99, map[string]any{"max_storage": 100, "max_streams": -1}
	})},
	{name: "a full bucket", id: "stream.full", make: after(after(purge("KV_locks"), publish("$KV.locks.a", 1_040_000)), publish("$KV.locks.b", 30_000)), undo: purge("KV_locks")},
	{name: "a bucket that is rather full", id: "stream.full", warns: true, make: after(purge("KV_locks"), publish("$KV.locks.a", 950_000)), undo: purge("KV_locks")},
	{name: "a worker pulls from a consumer that is missing", id: "consumer.missing", make: after(answers(inspect.Info{
		ID: "w", Ready: true, Stream: "NOTIFICATIONS", Handlers: []inspect.Handler{{Consumer: "notifier-send-webpush"}},
	}), func(s *site) {
		check.OK(s.T, s.js.DeleteConsumer(s.Context(), "NOTIFICATIONS", "notifier-send-webpush"))
	})},
	{name: "a service never came", id: "service.missing", warns: true, undo: stop, make: tells("STREAM.INFO.ENRICH_JOBS", func(answer map[string]any) {
		answer["created"] = "2020-01-01T00:00:00Z"
	})},
	{name: "a worker that takes no jobs", id: "worker.idle", make: answers(inspect.Info{ID: "w", Instance: "w';x", Problem: "it has no bucket"}), undo: stop},
}

// tells makes an account FAKE, in which the answers to questions that begin so are another.
func tells(question string, change func(answer map[string]any)) func(*site) {
	return func(s *site) {
		nc := s.js.Conn()
		sub, err := nc.Subscribe("$JS.FAKE.API.>", func(m *nats.Msg) {
			asked := strings.TrimPrefix(m.Subject, "$JS.FAKE.API.")
			var answer map[string]any
			if !strings.HasPrefix(asked, "$KV.") && !strings.HasPrefix(asked, "$SRV.") && !strings.HasPrefix(asked, "worker.") {
				asked = "$JS.API." + asked
			}
			got, err := nc.RequestMsg(&nats.Msg{Subject: asked, Header: m.Header, Data: m.Data}, time.Minute)
			if err != nil {
				return // no service runs
			}
			if strings.HasPrefix(strings.TrimPrefix(asked, "$JS.API."), question) && json.Unmarshal(got.Data, &answer) == nil {
				change(answer)
				got.Data, _ = json.Marshal(answer) // was one
			}
			m.Respond(got.Data) //nolint:errcheck // the client says so
		})
		check.OK(s.T, errors.Join(err, nc.Flush()))
		s.stop = func() { s.args = s.args[:2]; check.OK(s.T, errors.Join(sub.Unsubscribe(), nc.Flush())) }
		s.args = append(s.args, "--account", "FAKE")
	}
}

// stalled makes a server that acknowledges no write to a bucket.
func stalled(s *site) {
	p := natstest.NewProxy(s.T, s.server)
	p.Filter(func(f natstest.Frame) natstest.Verdict {
		if strings.HasPrefix(f.Subject, "$KV.locks.ready.") {
			return natstest.Lose
		}
		return natstest.Relay
	})
	s.connect = func(more ...nats.Option) (*nats.Conn, error) { return nats.Connect("", append(more, p.Through())...) }
}

// The streams are small, so that one message fills one.
func TestMistakesInWork(t *testing.T) {
	t.Parallel()
	small := []string{"--max-bytes", fmt.Sprint(19 << 20)}
	checkAll(t, workMistakes, small...)
	s := newSite(t, small...)
	answers(inspect.Info{ID: "w", Instance: "w", Stopping: true})(s)
	s.healthy() // a worker that stops is no mistake
}

// guarded is a site with the accounts of deploy/nats, of which lines are left out.
type guarded struct {
	*site

	seeds map[string]string // files, by user
	users *natstest.Users
}

func newGuarded(t *testing.T, without ...string) *guarded {
	t.Helper()
	g := &guarded{users: natstest.NewUsers(t), seeds: map[string]string{}}
	text := check.Must(deploy.Text("single.conf"))(t)
	accounts := check.Must(deploy.Text("accounts.conf"))(t)
	for _, line := range without {
		before := accounts
		accounts = strings.Replace(accounts, line, "", 1)
		check.Require(t, accounts != before, "accounts.conf has no %s", line)
	}
	for user, public := range g.users.Public {
		accounts = strings.ReplaceAll(accounts, "$NATS_NKEY_"+strings.ToUpper(user), public)
		g.seeds[user] = g.users.SeedFile(t, user)
	}
	file := filepath.Join(t.TempDir(), "server.conf")
	// The settings of the store are such that a small disk has room.
	check.OK(t, os.WriteFile(file, []byte(strings.Replace(text, "max_file_store: 66GB", "max_file_store: 1GB", 1)+accounts), 0o600))
	srv := natstest.Server(t, listening, func(c *natsrun.Config) { c.ConfigFile = file })
	_, js := natstest.Connect(t, srv, g.users.As("admin"))
	g.site = &site{T: t, env: map[string]string{"NATS_URL": srv.URL()}, js: js, server: srv}
	g.as("admin")
	for account, service := range map[string]string{"ENRICHER": "enricher", "IMPORTER": "importer", "NOTIFIER": "notifier"} {
		if !strings.Contains(strings.Join(without, ""), account+", subject: \"$JS.API") {
			g.run(0, "apply", "--account", account, "--services", service, "--max-bytes", "200000000")
		}
	}
	g.run(0, "apply", "--services", "lock")
	return g
}

// as makes a user of doctor's.
func (g *guarded) as(user string, flags ...string) *guarded {
	g.env["NATS_NKEY"] = g.seeds[user]
	g.args = append([]string{"--max-bytes", "200000000"}, flags...)
	return g
}

// Every user finds the site healthy, with the permissions that it has.
//
//nolint:tparallel // one site
func TestUsers(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	g.as("admin").healthy()
	g.as("sys").healthy()
	for _, user := range doctor.Users() { // those for backups have all permissions
		g.as(user, "--as", user).healthy()
	}
	r := g.as("publisher").examine(1)
	check.That(t, len(r.Findings) == 1 && r.Findings[0].ID == "account.jetstream", "of an account without streams: %+v", r.Findings)
	mistake{name: "a service's user sees what is wrong", id: "stream.max_age", make: func(s *site) {
		change("EVENTS", func(c *jetstream.StreamConfig) { c.MaxAge /= 2 })(&site{T: s.T, js: natstest.InAccount(s.T, g.js.Conn(), "NOTIFIER")})
	}, undo: func(*site) {
		g.as("admin").run(0, "apply", "--account", "NOTIFIER", "--services", "notifier", "--max-bytes", "200000000")
	}}.check(t, g.as("notifier", "--as", "notifier").site)
	mistake{name: "everybody reads a seed", id: "file.mode", make: mode("NATS_NKEY", 0o644)}.check(t, g.as("admin").site)
	mistake{name: "a stream of a service is missing", id: "stream.missing", make: func(s *site) {
		drop("DEAD")(&site{T: s.T, js: natstest.InAccount(s.T, g.js.Conn(), "ENRICHER")}) // whose messages operators import, too
	}}.check(t, g.as("admin").site)
	mistake{name: "an account is full of other streams", id: "account.streams", also: []string{"stream.missing"}, make: func(s *site) {
		js := natstest.InAccount(s.T, g.js.Conn(), "ENRICHER")
		drop("KV_requests")(&site{T: s.T, js: js})
		check.OK(s.T, check.Err(js.CreateStream(s.Context(), jetstream.StreamConfig{Name: "FOREIGN", MaxBytes: 1 << 20})))
	}, undo: func(s *site) {
		drop("FOREIGN")(&site{T: s.T, js: natstest.InAccount(s.T, g.js.Conn(), "ENRICHER")})
		s.run(0, "apply", "--account", "ENRICHER", "--services", "enricher", "--max-bytes", "200000000")
	}}.check(t, g.as("admin").site)
}

// A user of another server may not make the requests of doctor.
func TestARestrictedUser(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]struct {
		id       string
		restrict server.Permissions
	}{
		"no questions": {"permission.publish", server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.STREAM.INFO.KV_requests"}}}},
		"no writes":    {"permission.publish", server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$KV.requests.>"}}}},
		"no answers":   {"permission.subscribe", server.Permissions{Subscribe: &server.SubjectPermission{Deny: []string{"_INBOX.>"}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &site{T: t, env: map[string]string{}}
			serve(func(o *server.Options) {
				o.NoAuthUser = "admin"
				o.Users = []*server.User{
					{Username: "admin", Password: "x"}, {Username: "u", Password: "confidential", Permissions: &m.restrict},
				}
			})(s)
			s.run(0, "apply", "--services", "enricher")
			s.env["NATS_URL"] = strings.Replace(s.env["NATS_URL"], "//", "//u:confidential@", 1)
			s.args = []string{"--services", "enricher", "--timeout", "9s"}
			report := s.examine(1)
			check.That(t, len(report.Findings) == 1 && report.Findings[0].ID == m.id, "it finds %+v, want %s", report.Findings, m.id)
		})
	}
}

// Each line that is missing from the permissions is named.
func TestMistakesInPermissions(t *testing.T) {
	t.Parallel()
	for _, m := range []struct{ name, user, line, id string }{
		{"a service may not write", "enricher", `"$KV.enrich.>"`, "permission.publish"},
		{"a service may not acknowledge", "importer", `"$JS.ACK.IMPORT_JOBS.>"`, "permission.publish"},
		{"a service may not listen", "enricher", `"rp.enrich.>" # changes of the bucket`, "permission.subscribe"},
		{"operators do not reach jobs", "admin", `{ service: { account: ENRICHER, subject: "jobs.enrich.>" } }`, "permission.import"},
		{
			"operators do not reach an account", "admin",
			`{ service: { account: IMPORTER, subject: "$JS.API.INFO" }, to: "$JS.IMPORTER.API.INFO" }`, "account.unreachable",
		},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t, m.line)
			flags := []string{"--as", m.user}
			report := g.as(m.user, flags...).examine(1)
			check.That(t, len(report.Findings) != 0 && report.Findings[0].ID == m.id, "it finds %+v, want %s", report.Findings, m.id)
		})
	}
}

// A service that died is named, and so are its jobs, whatever the users of other services say, until an operator says that it is not to
// come back.
func TestAServiceThatIsGone(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	died, cure := []byte(`{"id":"x","host":"n1\u001b[2J","version":"v1"}`), ""
	_, js := natstest.Connect(t, g.server, g.users.As("enricher"))
	check.OK(t, check.Err(js.Publish(t.Context(), "$KV.jobs.ready.enricher-0", died)))
	for _, user := range []string{"importer", "publisher"} {
		nc, _ := natstest.Connect(t, g.server, g.users.As(user))
		for _, prefix := range []string{"", "$JS.ENRICHER.API.", "$JS.NOTIFIER.API."} {
			check.OK(t, check.Err(nc.Subscribe(prefix+inspect.SubjectInfo, func(m *nats.Msg) {
				m.Respond([]byte(`{"id":"w","instance":"x","ready":true,"stream":"ENRICH_JOBS","handlers":[{"consumer":"enricher"}]}`)) //nolint:errcheck // as below
			})))
			_, err := nc.Subscribe(prefix+"$SRV.PING.enricher", func(m *nats.Msg) {
				m.Respond([]byte(`{"name":"enricher","id":"x","version":"1.0.0","metadata":{"instance":"x"}}`)) //nolint:errcheck // doctor says so
			})
			check.OK(t, errors.Join(err, nc.Publish(prefix+"$KV.jobs.ready.enricher-0", []byte("vacant")), nc.Publish(prefix+"$KV.jobs.ready.notifier-0", died)))
		}
		check.OK(t, nc.Flush())
	}
	check.OK(t, check.Err(js.Publish(t.Context(), "jobs.enrich.p.x", []byte("{}"))))
	for _, user := range []string{"console", "admin"} {
		found := g.as(user, "--as", user).examine(1).Findings
		jobs := func(f doctor.Finding) bool {
			return f.ID == "worker.gone" && strings.Contains(f.Of, "ENRICH_JOBS/enricher")
		}
		check.That(t, slices.ContainsFunc(found, jobs), "%s does not find the job: %+v", user, found)
		found = slices.DeleteFunc(found, jobs)
		check.Require(t, len(found) == 1 && found[0].ID == "service.missing" && found[0].Of == "service enricher of ENRICHER", "%s finds %+v",
			user, found)
		check.Contains(t, found[0].Problem, "the enricher is gone", `on host "n1\x1b[2J" with version "v1"`)
		_, cure, _ = strings.Cut(found[0].Cure, "not to come back: nats ")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", testbed.NATS.Find(t)[0]+" "+cure)
	cmd.Env = append(os.Environ(), "NATS_URL="+g.env["NATS_URL"], "NATS_NKEY="+g.env["NATS_NKEY"])
	out, err := cmd.CombinedOutput()
	check.That(t, err == nil, "%s: %v: %s", cure, err, out)
	purge("ENRICH_JOBS")(&site{T: t, js: natstest.InAccount(t, g.js.Conn(), "ENRICHER")})
	g.as("admin").healthy()
}
