// Package service_test tests the services' connections: they need a server, which users of pkg/service must not get.
package service_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service"
)

func TestMain(m *testing.M) {
	floods.Main()
	natsrun.NodeMain()
	goleak.VerifyTestMain(m)
}

// authority signs certificates in a folder: ca.pem, and for each subject its <subject>.pem and <subject>.key.
type authority struct {
	cert *x509.Certificate
	dir  string
	key  *ecdsa.PrivateKey
	n    int64
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert = &x509.Certificate{
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour), SerialNumber: big.NewInt(1),
		Subject: pkix.Name{CommonName: "authority"},
	}
	a.key = a.sign(t, "ca", a.cert)
	return a
}

// issue makes a certificate of 127.0.0.1, for servers and clients.
func (a *authority) issue(t *testing.T, subject string) {
	t.Helper()
	a.n++
	a.sign(t, subject, &x509.Certificate{
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), SerialNumber: big.NewInt(1 + a.n), Subject: pkix.Name{CommonName: subject},
	})
}

func (a *authority) sign(t *testing.T, name string, template *x509.Certificate) *ecdsa.PrivateKey {
	t.Helper()
	key := check.Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	signer := a.key
	signer = cmp.Or(signer, key)
	der := check.Must(x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, signer))(t)
	private := check.Must(x509.MarshalPKCS8PrivateKey(key))(t)
	a.write(t, name+".pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	a.write(t, name+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	return key
}

func (a *authority) write(t *testing.T, name string, data []byte) {
	t.Helper()
	check.OK(t, os.WriteFile(a.file(name), data, 0o600))
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) pool(t *testing.T) *x509.CertPool {
	t.Helper()
	data := check.Must(os.ReadFile(a.file("ca.pem")))(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(data)
	return pool
}

// secured is a NATS server that verifies its clients.
func (a *authority) secured(t *testing.T) *natsrun.Server {
	t.Helper()
	a.issue(t, "nats")
	config, err := server.GenTLSConfig(&server.TLSConfigOpts{
		CaFile: a.file("ca.pem"), CertFile: a.file("nats.pem"), KeyFile: a.file("nats.key"), Timeout: 10, Verify: true,
	})
	check.OK(t, err)
	return natstest.Server(t, func(c *natsrun.Config) {
		c.Listen = true
		natsrun.ChangeOptions(c, func(o *server.Options) { o.TLS, o.TLSConfig, o.TLSTimeout, o.TLSVerify = true, config, 10, true })
	})
}

// A server that verifies its clients lets in those with a certificate. The client looks at the certificate of the server, too.
func TestNATSOverTLS(t *testing.T) {
	t.Parallel()
	a, stranger := newAuthority(t), newAuthority(t)
	srv := a.secured(t)
	a.issue(t, "shop")
	stranger.issue(t, "shop")
	url := srv.URL()
	for name, tt := range map[string]struct {
		cfg  service.NATSConfig
		want string // of the error
	}{
		"known":                  {service.NATSConfig{NATSCA: a.file("ca.pem"), NATSCert: a.file("shop.pem"), NATSKey: a.file("shop.key")}, ""},
		"without a certificate":  {service.NATSConfig{NATSCA: a.file("ca.pem")}, "tls"},
		"with another authority": {service.NATSConfig{NATSCA: a.file("ca.pem"), NATSCert: stranger.file("shop.pem"), NATSKey: stranger.file("shop.key")}, "tls"},
		"of another server":      {service.NATSConfig{NATSCA: stranger.file("ca.pem"), NATSCert: a.file("shop.pem"), NATSKey: a.file("shop.key")}, "unknown authority"},
		"without its key":        {service.NATSConfig{NATSCert: a.file("shop.pem")}, "want two files, or neither"},
		"with no such files":     {service.NATSConfig{NATSCA: "/nonexistent", NATSCert: "/nonexistent", NATSKey: "/nonexistent"}, "NATS_CERT, NATS_KEY"},
	} {
		options, err := tt.cfg.Options()
		if err == nil {
			var nc *nats.Conn
			if nc, err = nats.Connect(url, options...); err == nil {
				nc.Close()
			}
		}
		check.That(t, (tt.want != "" || err == nil) && (tt.want == "" || err != nil && strings.Contains(err.Error(), tt.want)),
			"%s: got %v, want %q", name, err, tt.want)
	}
}

// lines is a log.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), part)
}

// The certificate of the HTTP interface follows its files. A mistake in them changes nothing, and is reported once.
func TestHTTPOverTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue(t, "shop")
	var log lines
	cfg := service.BaseConfig{
		Listen: "127.0.0.1:0", Logger: slog.New(slog.NewTextHandler(&log, nil)), TLSCert: a.file("shop.pem"), TLSKey: a.file("shop.key"),
	}.WithDefaults("", 1)
	nc, _ := natstest.Connect(t, natstest.Server(t))
	s, err := service.Start(t.Context(), nc, service.Spec{
		Config: cfg, Endpoints: func() []service.Endpoint { return nil }, Name: "shop",
		Open:   func(context.Context, *service.Service) error { return nil },
		Routes: func(*service.Router) {},
	})
	check.OK(t, err)
	t.Cleanup(func() {
		check.Is(t, s.Stop(), nil)
	})
	serial := func() int64 {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: a.pool(t)}}}
		resp, err := client.Get(s.URL() + "/livez")
		check.OK(t, err)
		err = resp.Body.Close()
		check.That(t, err == nil && resp.StatusCode == http.StatusOK, "%s: %v", resp.Status, err)
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	first := serial()
	a.issue(t, "shop")
	check.Same(t, "certificate", serial(), first+1)
	a.write(t, "shop.key", []byte("not a key"))
	for range 3 {
		check.Same(t, "certificate", serial(), first+1)
	}
	check.Same(t, "the mistake was reported, times", log.count("shop: the certificate stays as it was"), 1)
	a.issue(t, "shop")
	check.Same(t, "certificate", serial(), first+2)
	for variable, change := range map[string]func(*service.BaseConfig){
		"SHOP_TLS_CERT": func(c *service.BaseConfig) { c.TLSKey = "" },
		"SHOP_TLS_KEY":  func(c *service.BaseConfig) { c.TLSCert = "" },
	} {
		cfg := cfg
		change(&cfg)
		check.Contains(t, cfg.Validate("shop"), variable)
	}
}

// A connection that comes back has the key that it began with, whatever the file of its seed holds meanwhile.
func TestAnotherSeedIsForTheNextStart(t *testing.T) {
	t.Parallel()
	users := natstest.NewUsers(t)
	srv := natstest.Server(t, func(c *natsrun.Config) { c.Listen, c.Users = true, users.Public })
	path := users.SeedFile(t, "enricher")
	options := check.Must(service.NATSConfig{NATSNkey: path}.Options())(t)
	back := make(chan bool, 2)
	nc, err := nats.Connect(srv.URL(), append(options, nats.ReconnectWait(time.Millisecond), nats.MaxReconnects(-1),
		nats.ReconnectHandler(func(*nats.Conn) { back <- true }), nats.ClosedHandler(func(*nats.Conn) { back <- false }))...)
	check.OK(t, err)
	defer nc.Close()
	seed := check.Must(os.ReadFile(users.SeedFile(t, "importer")))(t)
	check.OK(t, os.WriteFile(path, seed, 0o600))
	check.OK(t, srv.Restart(t.Context()))
	check.That(t, <-back, "the connection is closed: %v", nc.LastError())
}
