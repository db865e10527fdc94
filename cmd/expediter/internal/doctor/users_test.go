package doctor_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	deploy "github.com/expediter-io/expediter/deploy/nats"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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
	for user := range g.seeds {
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
		_, err := js.CreateStream(s.Context(), jetstream.StreamConfig{Name: "FOREIGN", MaxBytes: 1 << 20})
		check.OK(s.T, err)
	}, undo: func(s *site) {
		drop("FOREIGN")(&site{T: s.T, js: natstest.InAccount(s.T, g.js.Conn(), "ENRICHER")})
		s.run(0, "apply", "--account", "ENRICHER", "--services", "enricher", "--max-bytes", "200000000")
	}}.check(t, g.as("admin").site)
}

// A user of another server may not do what doctor does.
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
