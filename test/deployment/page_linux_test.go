package deployment

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	rnd "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

const page = checkout + "/deploy/nats/README.md"

var (
	fence = regexp.MustCompile("(?s)```sh\n(.*?)```")
	place = regexp.MustCompile(`^# in (.*?)(?:, each on its machine)?\n`)
	runs  = regexp.MustCompile(`(?m)^exec \./`) // a block that goes on until it is stopped

	// These blocks are repeated after a key was replaced.
	health = regexp.MustCompile(`(?m)^curl .*/healthz$`)
	ask    = regexp.MustCompile(`/expediter enrich `)

	people     = regexp.MustCompile(`/(?:admin|publisher|sys)/cert`)
	configured = regexp.MustCompile(`^(?:ENABLE|ENRICHER|EXPEDITER|IMPORTER|NATS|NOTIFIER|OTEL)_`)
	trouble    = regexp.MustCompile(`(?m)^.*(?:"level":"(?:WARN|ERROR)"|\[FTL\]).*$`)
)

// ready is the log line of a folder's program when others may use it.
var ready = map[string]string{
	"n1": "Server is ready", "n2": "Server is ready", "n3": "Server is ready",
	"console": "Console: https://", "enricher": "enricher: ready", "importer": "importer: ready", "notifier": "notifier: ready",
}

// site is the site of the page. Its machines are addresses of this one, and their folders are in the same home.
type site struct {
	*testing.T

	dir       string // ~/site
	env       []string
	network   string // in the place of 10.0.0
	processes map[string]*crash.Process
	said      strings.Builder   // by the blocks that have ended
	started   map[string]string // the block that has started the program of a folder
}

func newSite(t *testing.T) *site {
	t.Helper()
	testbed.Shell.Find(t)
	home := t.TempDir()
	s := &site{T: t, dir: filepath.Join(home, "site"), processes: map[string]*crash.Process{}, started: map[string]string{}}
	// The ports are those of the page, so the network must be the site's own.
	s.network = fmt.Sprintf("127.%d.%d", 1+rand.IntN(254), rand.IntN(256))
	s.env = slices.DeleteFunc(os.Environ(), configured.MatchString)
	for _, setting := range testbed.GoSettings(t) {
		if strings.HasPrefix(setting, "GOFLAGS=") {
			setting += " -ldflags=-s" // the linker takes half the time without symbols
		}
		s.env = append(s.env, setting)
	}
	s.env = append(s.env, "HOME="+home)
	return s
}

// follow runs a block in each of its folders. A program that goes on is ready when follow returns.
func (s *site) follow(block string) {
	s.Helper()
	where := place.FindStringSubmatch(block)
	check.Require(s, where != nil, "a block does not begin with its folder:\n%s", block)
	folders := strings.Split(strings.ReplaceAll(where[1], " and ", ", "), ", ")
	for _, folder := range folders {
		s.run(folder, block)
	}
	if runs.MatchString(block) {
		for _, folder := range folders {
			s.processes[folder].Await(ready[folder])
		}
	}
}

// run starts the commands of a block in one of its folders, and waits for its end unless it goes on.
func (s *site) run(folder, block string) {
	s.Helper()
	cmd := s.command(folder, block)
	if runs.MatchString(block) {
		p := crash.Start(s, cmd)
		s.Cleanup(func() { // serve ends its server
			if !p.Ended() && p.Process.Interrupt() == nil {
				<-p.Gone
			}
		})
		s.processes[folder], s.started[folder] = p, block
	} else if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("%v\n%s%s", err, block, out)
	} else {
		s.said.Write(out)
	}
}

// restart starts the program of a folder again, and returns when it is ready.
func (s *site) restart(folder string) {
	s.Helper()
	s.run(folder, s.started[folder])
	s.processes[folder].Await(ready[folder])
}

// command runs a block in a folder: with the addresses of this site, and on a server with its address and its disk in the place
// of those that three servers on one machine would have in common.
func (s *site) command(folder, block string) *exec.Cmd {
	s.Helper()
	dir, ours := filepath.Join(s.dir, folder), []string{"10.0.0.", s.network + "."}
	switch {
	case folder == "the checkout":
		dir, ours = checkout, append(ours, " -trimpath", "") // as what other tests have compiled
	case folder == "~/site":
		dir = s.dir
	case ready[folder] == ready["n1"]:
		address := s.network + strings.Replace(folder, "n", ".", 1)
		ours = append(ours, "127.0.0.1:8222", address+":8222", "0.0.0.0:", address+":", `"/data"`, `"`+dir+`/data"`)
		change(s.T, filepath.Join(dir, "cluster", "node.conf"), ours)
		change(s.T, filepath.Join(dir, "serve"), ours)
	}
	script := "exec 2>&1\n" + strings.NewReplacer(ours...).Replace(block)
	cmd := exec.CommandContext(context.WithoutCancel(s.Context()), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = dir, s.env
	return cmd
}

// change replaces texts in a file.
func change(t *testing.T, path string, texts []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(strings.NewReplacer(texts...).Replace(string(text))), 0o600)
	}
	check.OK(t, err)
}

// connect connects to the first server as the administrator.
func (s *site) connect(more ...nats.Option) (*nats.Conn, error) {
	s.Helper()
	seed := check.Must(nats.NkeyOptionFromSeed(filepath.Join(s.dir, "admin", "user.nk")))(s)
	nc, err := nats.Connect("nats://"+s.network+".1:4222", append(more, seed, nats.RootCAs(filepath.Join(s.dir, "ca.pem")))...)
	if err == nil {
		s.Cleanup(nc.Close)
	}
	return nc, err
}

// showsItsCertificate checks what the first server and the enricher show of themselves: to clients, to nodes and to callers over HTTP.
func (s *site) showsItsCertificates() {
	s.Helper()
	authority := x509.NewCertPool()
	authority.AppendCertsFromPEM(check.Must(os.ReadFile(filepath.Join(s.dir, "ca.pem")))(s))
	identity := check.Must(tls.LoadX509KeyPair(filepath.Join(s.dir, "n2", "cert.pem"), filepath.Join(s.dir, "n2", "key.pem")))(s)
	config := &tls.Config{Certificates: []tls.Certificate{identity}, MinVersion: tls.VersionTLS13, RootCAs: authority}
	for address, folder := range map[string]string{".1:6222": "n1", ".4:8080": "enricher"} {
		conn := check.Must((&tls.Dialer{Config: config}).DialContext(s.Context(), "tcp", s.network+address))(s)
		s.isOf(folder, conn.(*tls.Conn).ConnectionState()) //nolint:forcetypeassert // as documented
		check.OK(s, conn.Close())
	}
	nc := check.Must(s.connect(nats.ClientCert(filepath.Join(s.dir, "admin", "cert.pem"), filepath.Join(s.dir, "admin", "key.pem"))))(s)
	defer nc.Close()
	s.isOf("n1", check.Must(nc.TLSConnectionState())(s))
}

// isOf checks that the other side of a connection has the certificate of a folder.
func (s *site) isOf(folder string, state tls.ConnectionState) {
	s.Helper()
	block, _ := pem.Decode(check.Must(os.ReadFile(filepath.Join(s.dir, folder, "cert.pem")))(s))
	check.That(s, bytes.Equal(state.PeerCertificates[0].Raw, block.Bytes), "%s shows another certificate than the file's", folder)
}

// nobodyMakesCertificates checks that who has stolen a folder cannot pose as a server or as another client: a certificate that is made with
// the folder's key is refused, whether the authority's or none is above it.
func (s *site) nobodyMakesCertificates() {
	s.Helper()
	authority := x509.NewCertPool()
	authority.AppendCertsFromPEM(check.Must(os.ReadFile(filepath.Join(s.dir, "ca.pem")))(s))
	stolen := check.Must(filepath.Glob(filepath.Join(s.dir, "*", "cert.pem")))(s)
	check.Require(s, len(stolen) == 10, "the page makes %d certificates, want 10", len(stolen))
	for _, path := range stolen {
		pair := check.Must(tls.LoadX509KeyPair(path, filepath.Join(filepath.Dir(path), "key.pem")))(s)
		key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
		check.Require(s, ok, "the key of %s is a %T", path, pair.PrivateKey)
		above := x509.NewCertPool()
		above.AddCert(pair.Leaf)
		forged := check.Must(x509.CreateCertificate(rnd.Reader, &x509.Certificate{
			DNSNames: []string{"n1"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			NotAfter: time.Now().Add(time.Hour), NotBefore: time.Now().Add(-time.Hour), SerialNumber: big.NewInt(1),
		}, pair.Leaf, &key.PublicKey, key))(s)
		options := x509.VerifyOptions{Intermediates: above, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}, Roots: authority}
		_, err := pair.Leaf.Verify(options)
		check.OK(s, err)
		_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: authority}) // as a server's
		check.That(s, (err != nil) == people.MatchString(path), "%s: %v, want only people's refused", path, err)
		chains, err := check.Must(x509.ParseCertificate(forged))(s).Verify(options)
		check.That(s, err != nil, "with the key of %s another certificate was made: %v", path, chains)
	}
}

// replaceKey puts the keys in force that the servers' settings have now, and repeats the question to the enricher, under its new key.
func (s *site) replaceKey(blocks [][]string) {
	s.Helper()
	healthy := func(server string) {
		for _, block := range blocks {
			if health.MatchString(block[1]) {
				s.run(server, block[1])
			}
		}
	}
	for _, server := range []string{"n1", "n2", "n3"} {
		s.processes[server].Interrupt()
		s.restart(server)
		healthy(server)
	}
	s.processes["enricher"].Await("enricher: stopped")
	s.restart("enricher")
	s.said.Reset()
	for _, block := range blocks {
		if ask.MatchString(block[1]) {
			s.follow(block[1])
		}
	}
	check.That(s, strings.Contains(s.said.String(), "https://example.org/alma"), "with the new key the enricher answers: %s", &s.said)
	for _, folder := range []string{"importer", "notifier"} {
		check.That(s, !s.processes[folder].Ended(), "%s has ended", folder)
	}
}

// The page about the servers, followed block by block, leads from a checkout to three servers and three services that work: a
// notification in an inbox, a recipe, a link. Nothing is denied to a service, and the servers let in nobody without a
// certificate. A key is replaced while the others go on.
func TestPage(t *testing.T) {
	t.Parallel()
	text := check.Must(os.ReadFile(page))(t)
	s := newSite(t)
	blocks := fence.FindAllStringSubmatch(string(text), -1)
	last := len(blocks) - 1 // replaces a key
	for _, block := range blocks[:last] {
		s.follow(block[1])
		if strings.Contains(block[1], "-HUP") {
			for _, server := range []string{"n1", "n2", "n3"} {
				s.processes[server].Await("Reloaded: tls")
			}
		}
	}
	for _, want := range []string{"ENRICH_JOBS</a>", "IMPORT_JOBS</a>", `"event_id":"evt-001"`, "1 tablespoon butter", "https://example.org/alma"} {
		check.That(t, strings.Contains(s.said.String(), want), "no block has printed %s:\n%s", want, &s.said)
	}
	for folder, sign := range ready {
		p := s.processes[folder]
		check.Require(t, p != nil, "no block has started a program that logs %q", sign)
		lines := trouble.FindAllString(p.Output(), -1)
		check.That(t, lines == nil && !p.Ended(), "%s has ended: %t; it has warned: %s", folder, p.Ended(), lines)
	}
	s.showsItsCertificates()
	_, err := s.connect()
	check.That(t, err != nil, "a server lets in a client without a certificate")
	s.nobodyMakesCertificates()
	s.follow(blocks[last][1])
	s.replaceKey(blocks[:last])
}
