package doctor_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/cmd/expediter/internal/cli"
	"github.com/expediter-io/expediter/cmd/expediter/internal/doctor"
	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { natstest.Main(m, 6) }

// site is a deployment that doctor looks at.
type site struct {
	*testing.T

	before  map[string]string // env as it was before the mistake
	env     map[string]string
	args    []string                                 // of doctor
	connect func(...nats.Option) (*nats.Conn, error) // in the place of the command's
	js      jetstream.JetStream
	server  *natsrun.Server
	stop    func() // undoes a mistake
}

// newSite has a server with everything that the services need.
func newSite(t *testing.T, flags ...string) *site {
	t.Helper()
	srv := natstest.Server(t, listening)
	_, js := natstest.Connect(t, srv)
	s := &site{T: t, env: map[string]string{"NATS_URL": srv.URL()}, js: js, server: srv, args: flags}
	s.run(0, append([]string{"apply"}, flags...)...)
	s.configure()
	return s
}

// configure sets the variables of all services, with files and remote services that exist.
func (s *site) configure() {
	s.Helper()
	far := httptest.NewServer(nil)
	s.Cleanup(far.Close)
	far.Config.Handler = issuer(far.URL)
	mail := greeter(s.T, "220 mail.example.com ready\r\n")
	dir := s.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		check.OK(s.T, os.MkdirAll(filepath.Dir(path), 0o700))
		check.OK(s.T, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	cert, key := pair(s.T, time.Now().Add(365*24*time.Hour))
	identity := check.Must(tls.X509KeyPair([]byte(cert), []byte(key)))(s.T)
	gateway := httptest.NewUnstartedServer(nil)
	gateway.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	gateway.TLS = &tls.Config{Certificates: []tls.Certificate{identity}, MinVersion: tls.VersionTLS12}
	gateway.StartTLS()
	s.Cleanup(gateway.Close)
	venues := check.Must(io.ReadAll(pipeline.Catalog()))(s.T)
	write("texts/HELLO/default.subject", "Hello\n")
	write("texts/HELLO/default.txt", "Hello\n")
	keys := filepath.Join(dir, "keys.json")
	s.run(0, "keys", "add", "--file", keys, "--scope", "read,publish", "shop")
	maps.Copy(s.env, map[string]string{
		"ENRICHER_CATALOG": write("venues.json", string(venues)), "ENRICHER_KEYS": keys, "ENRICHER_OIDC_AUDIENCE": "enricher",
		"ENRICHER_OIDC_ISSUER": far.URL, "ENRICHER_TLS_CERT": write("cert.pem", cert), "ENRICHER_TLS_KEY": write("key.pem", key),
		"IMPORTER_LISTEN": "127.0.0.1:0", "IMPORTER_OPENAI_KEY_FILE": write("openai.key", "confidential-key\n"), "IMPORTER_OPENAI_MODEL": "m",
		"IMPORTER_OPENAI_URL": far.URL, "IMPORTER_RECIPE_SERVICE_TOKEN": "confidential-token", "IMPORTER_RECIPE_SERVICE_URL": far.URL,
		"NOTIFIER_EMAIL_FROM": "a@example.com", "NOTIFIER_EMAIL_SERVER": mail, "NOTIFIER_LISTEN": "127.0.0.1:0",
		"NOTIFIER_RULES":    write("rules.yaml", "version: 1\nevents:\n  HELLO:\n    CUSTOMER: {scope: user, channels: [inapp, email]}\n"),
		"NOTIFIER_ROOT_CAS": filepath.Join(dir, "cert.pem"), "NOTIFIER_SMS_URL": gateway.URL, "NOTIFIER_TEMPLATES": filepath.Join(dir, "texts"), "OTEL_EXPORTER_OTLP_ENDPOINT": far.URL,
	})
}

// issuer is one of OpenID Connect.
func issuer(address string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/keys" {
			io.WriteString(w, `{"keys":[{"kty":"EC","use":"sig","kid":"1","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",`+ //nolint:errcheck // the client says so
				`"y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}`)
			return
		}
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, address, address+"/keys")
	})
}

// greeter sends a line to each connection, and nothing when the line is empty.
func greeter(t *testing.T, line string) (address string) {
	t.Helper()
	listener := check.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				io.WriteString(conn, line) //nolint:errcheck // the client says so
				io.Copy(io.Discard, conn)  //nolint:errcheck // until the client closes
			})
		}
	})
	t.Cleanup(func() { listener.Close(); serving.Wait() })
	return listener.Addr().String()
}

// pair is a certificate of 127.0.0.1 that signs itself, and its key, as PEM.
func pair(t *testing.T, until time.Time, change ...func(*x509.Certificate)) (cert, key string) {
	t.Helper()
	private := check.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		NotAfter: until, NotBefore: until.Add(-2 * 365 * 24 * time.Hour), SerialNumber: big.NewInt(1),
	}
	for _, set := range change {
		set(template)
	}
	der := check.Must(x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private))(t)
	secret := check.Must(x509.MarshalPKCS8PrivateKey(private))(t)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}))
}

// authority makes a certificate one with which others can be made.
func authority(c *x509.Certificate) {
	c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
}

func listening(c *natsrun.Config) { c.Listen = true }

// run runs a command of the program, and returns its output.
func (s *site) run(want int, args ...string) string {
	s.Helper()
	var out, errs bytes.Buffer
	code := cli.Run(s.Context(), cli.Config{
		Environ: func() (all []string) {
			for name, value := range s.env {
				all = append(all, name+"="+value)
			}
			return all
		},
		Getenv: func(name string) string { return s.env[name] }, Stderr: &errs, Stdin: strings.NewReader(""), Stdout: &out,
	}, args)
	if code != want {
		s.Fatalf("expediter %v exits with %d, want %d:\n%s%s", args, code, want, &out, &errs)
	}
	if strings.Contains(out.String()+errs.String(), "confidential") {
		s.Errorf("a secret is shown: %s%s", &out, &errs)
	}
	return out.String()
}

// examine returns the findings of doctor.
func (s *site) examine(want int) doctor.Report {
	s.Helper()
	var report doctor.Report
	if s.connect != nil {
		return doctor.Run(s.Context(), doctor.Config{Connect: s.connect, Environment: s.env, Server: s.env["NATS_URL"]})
	}
	if err := json.Unmarshal([]byte(s.run(want, append([]string{"doctor", "-o", "json"}, s.args...)...)), &report); err != nil {
		s.Fatal(err)
	}
	return report
}

// healthy fails the test when doctor finds something, or waits for an answer in vain.
func (s *site) healthy() {
	s.Helper()
	r := s.examine(0)
	r.Skipped = slices.DeleteFunc(r.Skipped, func(text string) bool { return strings.Contains(text, "list the connections") }) // within 300 ms
	if len(r.Findings) > 0 || strings.Contains(strings.Join(r.Skipped, " "), "deadline") {
		s.Errorf("of a healthy deployment: %+v, %v", r.Findings, r.Skipped)
	}
}

// word matches a word of a shell that is quoted.
var word = regexp.MustCompile(`'[^']*'`)

// mistake is one that doctor has to name.
type mistake struct {
	name string
	id   string // of the finding
	// also are those that follow from it.
	also []string
	// make makes the mistake.
	make func(*site)
	// undo repairs it. Defaults to the cure of the finding, a command of this program, which then has to end the finding.
	undo func(*site)
	// warns reports whether it is a warning instead of an error.
	warns bool
}

func (m mistake) check(t *testing.T, s *site) {
	t.Helper()
	if !t.Run(m.name, func(t *testing.T) {
		at := *s
		at.T, at.before, at.env = t, maps.Clone(s.env), maps.Clone(s.env)
		at.args = slices.Clone(s.args)
		m.make(&at)
		code := 1
		if m.warns {
			code = 0
		}
		report := at.examine(code)
		ids := make([]string, 0, len(report.Findings))
		for _, f := range report.Findings {
			ids = append(ids, f.ID)
			check.That(t, f.Cure != "" && f.Of != "" && f.Problem != "" && !strings.ContainsAny(f.Cure, "\n"), "an incomplete finding: %+v", f)
			bare := word.ReplaceAllString(strings.ReplaceAll(f.Cure, `\'`, ""), "")
			check.That(t, !strings.Contains(bare, ";x"), "a name that a shell runs: %s", f.Cure)
		}
		check.Require(t, slices.Equal(slices.Compact(slices.Sorted(slices.Values(ids))), slices.Sorted(slices.Values(append(m.also, m.id)))),
			"it finds %v, want %s: %+v, %v", ids, m.id, report.Findings, report.Skipped)
		if m.undo != nil {
			m.undo(&at)
			at.healthy()
			return
		}
		for line := range strings.SplitSeq(report.Findings[0].Cure, " && ") {
			line, _, _ = strings.Cut(line, " #")
			if strings.HasPrefix(line, "chmod ") {
				check.OK(t, exec.CommandContext(t.Context(), "sh", "-c", line).Run())
				continue
			}
			split := check.Must(exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\n' `+line).Output())(t)
			words := strings.Split(strings.TrimSpace(string(split)), "\n")
			check.Require(t, words[0] == "expediter", "%q is no command of expediter", line)
			at.run(0, words[1:]...)
		}
		at.healthy()
	}) {
		t.FailNow() // the others would find it, too
	}
}

// checkAll checks mistakes on several sites at a time, because doctor mostly waits.
func checkAll(t *testing.T, all []mistake, flags ...string) {
	t.Helper()
	for some := range slices.Chunk(all, 6) {
		t.Run(some[0].name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, flags...)
			for _, m := range some {
				m.check(t, s)
			}
		})
	}
}
