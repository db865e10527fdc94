// Package deployment tests pages about deployment by following them.
package deployment

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

func TestMain(m *testing.M) { crash.Main(m, 1) }

const checkout = "../.."

// certified runs certify in a site of the names and addresses.
func certified(t *testing.T, site, addresses string) error {
	t.Helper()
	script := filepath.Join(site, "certify")
	testbed.WriteProgram(t, script, string(check.Must(os.ReadFile(checkout+"/deploy/nats/certify"))(t)))
	check.OK(t, os.WriteFile(filepath.Join(site, "addresses"), []byte(addresses), 0o600))
	out, err := exec.CommandContext(t.Context(), script).CombinedOutput()
	t.Logf("%s", out)
	return err
}

// fake is the address of a server that answers in the place of all others.
type fake string

func (f fake) Dial(network, _ string) (net.Conn, error) { return net.Dial(network, string(f)) }

// Whoever has a folder poses as no other and not as localhost: no command connects to a NATS server with its certificate, and no client
// asks a service with it.
func TestNoFolderPosesAsAnother(t *testing.T) {
	t.Parallel()
	site := t.TempDir()
	is := map[string]string{"n1": "10.0.0.1", "enricher": "10.0.0.4", "console": "console", "publisher": ""} // nobody connects to a publisher
	check.OK(t, certified(t, site, "n1 10.0.0.1\nenricher 10.0.0.4\nconsole console\npublisher publisher\n"))
	path := func(name string) string { return filepath.Join(site, "publisher", name) }
	options := check.Must(service.NATSConfig{NATSCA: path("ca.pem"), NATSCert: path("cert.pem"), NATSKey: path("key.pem")}.Options())(t)
	authority := x509.NewCertPool()
	authority.AppendCertsFromPEM(check.Must(os.ReadFile(path("ca.pem")))(t))
	for folder, address := range is {
		stolen := check.Must(tls.LoadX509KeyPair(filepath.Join(site, folder, "cert.pem"), filepath.Join(site, folder, "key.pem")))(t)
		srv := natstest.Server(t, func(c *natsrun.Config) {
			c.Listen = true
			natsrun.ChangeOptions(c, func(o *server.Options) {
				o.TLS, o.TLSTimeout, o.TLSConfig = true, 10, &tls.Config{Certificates: []tls.Certificate{stolen}, MinVersion: tls.VersionTLS13}
			})
		})
		dialer := fake(strings.TrimPrefix(srv.URL(), "tls://"))
		for _, host := range []string{"localhost", "127.0.0.1", "n1", "10.0.0.1", "enricher", "10.0.0.4", "console", "publisher"} {
			nc, err := nats.Connect("nats://"+host+":4222", append(options, nats.SetCustomDialer(dialer))...)
			if err == nil {
				nc.Close()
			}
			_, failed := stolen.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: authority}) // as callers over HTTP do
			own := address != "" && (host == folder || host == address)
			check.That(t, (err == nil) == own && (failed == nil) == own, "with the folder of %s somebody poses as %s: %v; %v", folder, host, err,
				failed)
		}
	}
}

// During the replacement of the authority the certificates of both are trusted. A lost key of the authority makes no other one by itself:
// the folders would not trust each other any more.
func TestAnotherAuthority(t *testing.T) {
	t.Parallel()
	site := t.TempDir()
	read := func(name string) []byte { return check.Must(os.ReadFile(filepath.Join(site, name)))(t) }
	move := func(from, to string) { check.OK(t, os.Rename(filepath.Join(site, from), filepath.Join(site, to))) }
	certify := func() error { return certified(t, site, "n1 10.0.0.1\n") }
	trusts := func(folder string, certificate []byte) bool {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(read(folder + "/ca.pem"))
		block, _ := pem.Decode(certificate)
		_, err := check.Must(x509.ParseCertificate(block.Bytes))(t).Verify(x509.VerifyOptions{DNSName: "n1", Roots: pool})
		return err == nil
	}
	for _, folder := range []string{"n1", "prometheus"} { // which has no certificate, and trusts those of the others
		check.OK(t, os.Mkdir(filepath.Join(site, folder), 0o700))
	}
	check.OK(t, certify())
	former, bundle := read("n1/cert.pem"), read("n1/ca.pem")

	move("ca.key", "lost.key")
	check.That(t, certify() != nil, "without its key the authority was replaced")
	check.That(t, bytes.Equal(read("n1/ca.pem"), bundle) && bytes.Equal(read("n1/cert.pem"), former), "a failure has changed the folder")

	move("ca.pem", "former.pem")
	check.OK(t, certify())
	for _, folder := range []string{"n1", "prometheus"} {
		check.That(t, trusts(folder, former) && trusts(folder, read("n1/cert.pem")), "%s does not trust both authorities", folder)
	}
	check.OK(t, os.Remove(filepath.Join(site, "former.pem")))
	check.OK(t, certify())
	check.That(t, !trusts("n1", former) && trusts("prometheus", read("n1/cert.pem")), "the former authority is not left out")
}
