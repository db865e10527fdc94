package doctor_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/cmd/expediter/internal/doctor"
	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/testbed"
	_ "github.com/expediter-io/expediter/internal/testbed/fastelection"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// onDisks are three servers with users, each on its own disk.
type onDisks struct {
	*testing.T

	*natsrun.Cluster

	disks []string
	users *natstest.Users
}

func newOnDisks(t *testing.T) *onDisks {
	t.Helper()
	s := &onDisks{T: t, users: natstest.NewUsers(t)}
	dir := t.TempDir()
	for _, name := range []string{"n1", "n2", "n3"} {
		disk := filepath.Join(dir, name)
		check.OK(t, os.Mkdir(disk, 0o700))
		if err := testbed.Mount(t, disk); err != nil {
			t.Skipf("a disk to fill cannot be mounted: %v (run as root)", err)
		}
		s.disks = append(s.disks, disk)
	}
	s.Cluster = natstest.Cluster(t, len(s.disks), func(c *natsrun.ClusterConfig) {
		c.ClientOptions, c.Dir, c.Users = []nats.Option{s.users.As("admin")}, dir, s.users.Public
	})
	nc, own := natstest.ConnectURL(t, s.URLs(), s.users.As("admin"))
	for _, service := range contracts.Services() {
		js := own
		if service != contracts.ServiceLock {
			js = natstest.InAccount(t, nc, strings.ToUpper(service))
		}
		options := contracts.AssetOptions{Replicas: len(s.disks), Services: []string{service}}
		check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(options), provision.Options{})))
		check.OK(t, check.Err(provision.ApplyConsumers(t.Context(), js, provision.Consumers(options), provision.Options{})))
	}
	return s
}

// fill fills disks, and returns when their servers have found out, for which they have to write.
func (s *onDisks) fill(disks ...string) {
	s.Helper()
	for _, disk := range disks {
		testbed.Fill(s, disk)
	}
	nc, _ := natstest.ConnectURL(s.T, s.URLs(), s.users.As("admin"))
	sys, _ := natstest.ConnectURL(s.T, s.URLs(), s.users.As("sys"))
	ctx, stop := context.WithCancel(s.Context())
	var source sync.WaitGroup
	defer source.Wait()
	defer stop()
	js := natstest.InAccount(s.T, nc, "NOTIFIER")
	source.Go(func() {
		for ctx.Err() == nil {
			try, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			_, _ = js.Publish(try, "events.order.x", make([]byte, 32<<10)) // refused, in the end
			cancel()
		}
	})
	check.Until(s, time.Minute, "the servers cannot write", func() bool {
		off := 0
		for _, a := range console.AskHealth(ctx, sys, 4*time.Second) {
			if strings.Contains(a.Data.Error, "not enabled") {
				off++
			}
		}
		return off == len(disks)
	})
}

// wantFindings checks what doctor tells a user within half of its time: problems by their IDs and things, and nothing else but jobs without a
// worker.
func (s *onDisks) wantFindings(user, as string, want ...string) (problems string) {
	s.Helper()
	begun := time.Now()
	report := doctor.Run(s.Context(), doctor.Config{
		As: as, Server: s.URLs(), Timeout: 15 * time.Second, // in which all that does not answer is waited for at the same time
		Connect: func(more ...nats.Option) (*nats.Conn, error) {
			return nats.Connect(s.URLs(), append(more, s.users.As(user))...)
		},
	})
	s.Logf("%s, as %q: %d findings after %s", user, as, len(report.Findings), time.Since(begun))
	var got []string
	for _, f := range report.Findings {
		s.Logf("%s: %s [%s]", f.Of, f.Problem, f.ID)
		if problems += f.Problem + "\n"; f.ID != "worker.gone" {
			got = append(got, f.ID+" "+f.Of)
		}
	}
	check.Equal(s, got, want)
	check.That(s, !strings.Contains(strings.Join(report.Skipped, " "), "context"), "it has waited for too long: %v", report.Skipped)
	return problems
}

// overview starts a console as its user, and returns a function that returns its overview once it is as wanted.
func (s *onDisks) overview() func(wanted func(page string) bool) (page string) {
	s.Helper()
	nc, own := natstest.ConnectURL(s.T, s.URLs(), s.users.As("console"))
	accounts := []console.Account{{JetStream: own}, {JetStream: natstest.InAccount(s.T, nc, "IMPORTER"), Name: "IMPORTER"}}
	c := check.Must(console.New(console.Config{Accounts: accounts, Conn: nc, Logger: slog.New(slog.DiscardHandler), ReadOnly: true}))(s)
	s.Cleanup(natstest.Background(s.T, c.Run))
	return func(wanted func(string) bool) (page string) {
		s.Helper()
		check.Until(s, time.Minute, "the overview shows it", func() bool {
			answer := httptest.NewRecorder()
			c.ServeHTTP(answer, httptest.NewRequestWithContext(s.Context(), http.MethodGet, "http://localhost/", http.NoBody))
			page = answer.Body.String()
			return wanted(page)
		})
		return page
	}
}

// Doctor and the overview name each server whose disk is full once, whoever is allowed to ask for it, and not the 28 streams and consumers
// that do not answer.
func TestFullDisks(t *testing.T) {
	t.Parallel()
	s := newOnDisks(t)
	overview := s.overview()
	overview(func(page string) bool {
		return strings.Contains(page, "IMPORT_JOBS") && strings.Contains(page, "No problems detected")
	})
	s.wantFindings("admin", "admin")
	s.fill(s.disks[1])
	var asking sync.WaitGroup // doctor waits for what does not answer
	for _, user := range []string{"admin", "console"} {
		asking.Go(func() {
			problems := s.wantFindings(user, user, "server.disk server n2")
			check.Contains(t, problems, "its disk is full, or takes no writes", "JetStream not enabled", "others: its replica on n2 is")
		})
	}
	asking.Wait()
	s.fill(s.disks...)
	all := []string{"server.disk server n1", "server.disk server n2", "server.disk server n3"}
	for _, user := range []string{"admin", "console", "sys"} {
		asking.Go(func() { s.wantFindings(user, user, all...) })
	}
	asking.Go(func() {
		check.Contains(t, s.wantFindings("admin", "", all...), "so account of the user: no answer about it within 4s")
	})
	asking.Go(func() { s.wantFindings("enricher", "enricher", "stream.leader stream DEAD and 4 others") })
	asking.Go(func() { s.wantFindings("publisher", "publisher", "permission.import account PUBLISHER") })
	asking.Wait()
	page := overview(func(page string) bool { return strings.Count(page, "it has turned JetStream off") == len(s.disks) })
	check.Contains(t, page, "server n1: its disk is full", "server n2: its disk is full", "server n3: its disk is full", "runbooks.md#storetakesnowrites")
	check.Equal(t, strings.Count(page, `class="note bad"`), len(s.disks), "problems, without what follows from them")
	for _, node := range s.Nodes[1:] { // which the disk of the first does not explain
		check.OK(t, node.Kill())
	}
	page = overview(func(page string) bool { return strings.Count(page, "its disk is full") == 1 })
	check.Contains(t, page, "server n1: its disk is full", "the servers do not answer")
}
