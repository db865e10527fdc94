package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// The commands of docs/backup.md, in their order and on the servers that the page says: a backup of accounts and its
// restore, a backup of one account and its restore to several.
func TestTheCommandsOfTheBackupPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "backup.md"))
	check.OK(t, err)
	blocks := shellBlock.FindAllSubmatch(page, -1)
	check.Require(t, len(blocks) == 4, "the page has %d blocks of commands, want a backup, a restore, and both again", len(blocks))
	users := natstest.NewUsers(t)
	seed, dir := users.SeedFile(t, "admin"), t.TempDir()
	accounts := func() *natsrun.Server {
		return natstest.Server(t, func(c *natsrun.Config) { c.Listen, c.Users = true, users.Public })
	}
	run := func(srv *natsrun.Server, nkey, line string) {
		t.Helper()
		var out bytes.Buffer
		args := strings.Fields(line)[1:]
		if args[0] != "apply" {
			args[1] = filepath.Join(dir, args[1])
		}
		env := map[string]string{"NATS_URL": srv.URL(), "NATS_NKEY": nkey}
		if code := Run(t.Context(), Config{
			Getenv: func(name string) string { return env[name] }, Stderr: &out, Stdin: strings.NewReader(""), Stdout: &out,
		}, args); code != 0 {
			t.Fatalf("%s exits with %d:\n%s", line, code, &out)
		}
	}
	inAccount := func(srv *natsrun.Server, account string) jetstream.JetStream {
		nc, own := natstest.Connect(t, srv, users.As("admin"))
		if account == "" {
			return own
		}
		return natstest.InAccount(t, nc, account)
	}
	owners := map[string]string{"enricher": "ENRICHER", "importer": "IMPORTER", "notifier": "NOTIFIER", "lock": ""}

	first, former := accounts(), natstest.Server(t, func(c *natsrun.Config) { c.Listen = true })
	_, formerly := natstest.Connect(t, former)
	run(former, "", "expediter apply --max-bytes 5000000000")
	for service, account := range owners {
		run(first, seed, fmt.Sprintf("expediter apply --account=%s --services %s", account, service))
		fillService(t, inAccount(first, account), account, service)
		fillService(t, formerly, "", service)
	}
	for i, on := range []struct {
		srv  *natsrun.Server
		nkey string
	}{{first, seed}, {accounts(), seed}, {former, ""}, {accounts(), seed}} {
		for line := range strings.Lines(string(blocks[i][1])) {
			run(on.srv, on.nkey, line)
		}
		if i%2 == 0 {
			continue
		}
		for service, account := range owners {
			js := inAccount(on.srv, account)
			for _, c := range contracts.Assets(contracts.AssetOptions{Services: []string{service}}) {
				stream, err := js.Stream(t.Context(), c.Name)
				check.Require(t, err == nil, "%s of %q: %v", c.Name, account, err)
				want := uint64(1)
				if i == 1 && strings.HasPrefix(c.Name, "OBJ_") {
					want = 0
				}
				n := stream.CachedInfo().State.Msgs
				check.That(t, n == want, "%s of %q has %d messages, want %d", c.Name, account, n, want)
			}
		}
	}
}

// fillService stores a message in each stream of a service.
func fillService(t *testing.T, js jetstream.JetStream, account, service string) {
	t.Helper()
	own := map[string]string{"enricher": contracts.StreamEnrichJobs, "importer": contracts.StreamImportJobs, "notifier": contracts.StreamEvents}[service]
	for _, c := range contracts.Assets(contracts.AssetOptions{Services: []string{service}}) {
		subject := strings.Replace(c.Subjects[0], ">", "x", 1)
		switch c.Name {
		case contracts.StreamDead:
			subject = "dead." + own + ".x"
		case "KV_" + contracts.BucketJobs:
			subject = "$KV.jobs.excused." + own + ".x"
		}
		if account != "" && strings.HasPrefix(subject, "$KV.") {
			subject = "$JS." + account + ".API." + subject
		}
		if account != "" && strings.HasPrefix(subject, "$O.") { // which no operator writes
			continue
		}
		_, err := js.Publish(t.Context(), subject, []byte(service))
		check.Require(t, err == nil, "%s: %v", subject, err)
	}
}

// The server does not answer a user who may not ask. Apply names what was denied, and does not go on to wait for each of the
// other streams.
func TestApplyStopsAtADenial(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t, func(c *natsrun.Config) {
		c.Listen = true
		natsrun.ChangeOptions(c, func(o *server.Options) {
			o.Users = []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: []string{"$JS.API.STREAM.INFO.AUDIT", "$JS.API.STREAM.CREATE.AUDIT", "$JS.API.STREAM.INFO.DEAD", "$JS.API.STREAM.INFO.ENRICH_JOBS"}},
			}}}
		})
	})
	var stdout, stderr bytes.Buffer
	code := Run(t.Context(), Config{
		Getenv: func(string) string { return "" }, Stderr: &stderr, Stdin: strings.NewReader(""), Stdout: &stdout,
	}, []string{"apply", "--server", strings.Replace(srv.URL(), "//", "//u:p@", 1)})
	for _, want := range []string{"needs an administrator's permissions", "$JS.API.STREAM.CREATE.DEAD"} {
		check.Says(t, stderr.String(), want)
	}
	check.That(t, code == ExitUnavailable && !strings.Contains(stdout.String(), "ENRICH_JOBS"),
		"it ended with %d, and went on: %s", code, stdout.String())
}
