package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// The commands of docs/backup.md, by the nats CLI and with the accounts of deploy/nats: what was backed up is on the other server.
func TestTheCommandsOfTheBackupPage(t *testing.T) {
	t.Parallel()
	testbed.NATS.Find(t)
	page := check.Must(os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "backup.md")))(t)
	blocks := shellBlock.FindAllSubmatch(page, -1)
	check.Require(t, len(blocks) == 2, "the page has %d blocks of commands, want a backup and a restore", len(blocks))
	users, dir := natstest.NewUsers(t), t.TempDir()
	for _, user := range []string{"admin", "backup_enricher", "backup_importer", "backup_notifier"} {
		check.OK(t, os.Rename(users.SeedFile(t, user), filepath.Join(dir, user+".nk")))
	}
	self := check.Must(os.Executable())(t)
	check.OK(t, os.Symlink(self, filepath.Join(dir, "expediter"))) // which testscript runs as the program of that name
	shell := func(srv *natsrun.Server, script string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-eo", "pipefail", "-c", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "NATS_URL="+srv.URL(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
		out, err := cmd.CombinedOutput()
		check.Require(t, err == nil, "%v:\n%s", err, out)
	}
	owners := map[string]string{"enricher": "ENRICHER", "importer": "IMPORTER", "notifier": "NOTIFIER", "lock": ""}
	var servers []*natsrun.Server
	state := func(srv *natsrun.Server, fill bool) map[string]uint64 {
		nc, own := natstest.Connect(t, srv, users.As("admin"))
		messages := map[string]uint64{}
		for service, account := range owners {
			js := own
			if account != "" {
				js = natstest.InAccount(t, nc, account)
			}
			assets := contracts.AssetOptions{Services: []string{service}}
			if fill {
				check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(assets), provision.Options{})))
				check.OK(t, check.Err(provision.ApplyConsumers(t.Context(), js, provision.Consumers(assets), provision.Options{})))
				fillService(t, js, account, service)
			}
			for _, c := range contracts.Assets(assets) {
				info := check.Must(js.Stream(t.Context(), c.Name))(t).CachedInfo()
				messages[account+" "+c.Name] = info.State.Msgs
				_, marked := info.Config.Metadata["kvlock-epoch"]
				check.That(t, fill || marked == strings.HasPrefix(c.Name, "KV_"), "%s is marked: %t", c.Name, marked)
			}
		}
		return messages
	}
	var before map[string]uint64
	for i, block := range blocks {
		srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen, c.Users = true, users.Public })
		servers = append(servers, srv)
		if i == 0 {
			before = state(srv, true)
		}
		shell(srv, string(block[1]))
	}
	check.Equal(t, state(servers[1], false), before)
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
		if strings.HasPrefix(subject, "$O.") { // which no operator writes
			continue
		}
		_, err := js.Publish(t.Context(), subject, []byte(service))
		check.Require(t, err == nil, "%s: %v", subject, err)
	}
}
