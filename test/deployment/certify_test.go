package deployment

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// During the replacement of the authority the certificates of both are trusted. A lost key of the authority makes no other one by itself:
// the folders would not trust each other any more.
func TestAnotherAuthority(t *testing.T) {
	t.Parallel()
	site := t.TempDir()
	read := func(name string) []byte { return check.Must(os.ReadFile(filepath.Join(site, name)))(t) }
	move := func(from, to string) { check.OK(t, os.Rename(filepath.Join(site, from), filepath.Join(site, to))) }
	certify := func() error {
		out, err := exec.CommandContext(t.Context(), filepath.Join(site, "certify")).CombinedOutput()
		t.Logf("%s", out)
		return err
	}
	trusts := func(folder string, certificate []byte) bool {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(read(folder + "/ca.pem"))
		block, _ := pem.Decode(certificate)
		_, err := check.Must(x509.ParseCertificate(block.Bytes))(t).Verify(x509.VerifyOptions{DNSName: "n1", Roots: pool})
		return err == nil
	}
	check.OK(t, os.WriteFile(filepath.Join(site, "certify"), check.Must(os.ReadFile(checkout+"/deploy/nats/certify"))(t), 0o700))
	check.OK(t, os.WriteFile(filepath.Join(site, "addresses"), []byte("n1 10.0.0.1\n"), 0o600))
	for _, folder := range []string{"n1", "prometheus"} { // which has no certificate, and trusts those of the others
		check.OK(t, os.Mkdir(filepath.Join(site, folder), 0o700))
	}
	check.OK(t, certify())
	former, bundle := read("n1/cert.pem"), read("n1/ca.pem")

	move("ca.key", "lost.key")
	check.Failsf(t, certify(), "without its key the authority was replaced")
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
