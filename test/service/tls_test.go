// Package service_test tests the services' connections: they need a server, which users of internal/service must not get.
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
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/testbed"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) {
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
func (a *authority) issue(t *testing.T, subject string, change ...func(*x509.Certificate)) {
	t.Helper()
	a.n++
	c := &x509.Certificate{
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotAfter: time.Now().Add(time.Hour), SerialNumber: big.NewInt(1 + a.n), Subject: pkix.Name{CommonName: subject},
	}
	for _, set := range change {
		set(c)
	}
	a.sign(t, subject, c)
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

// secured is a NATS server that verifies its clients, with its own certificate.
func (a *authority) secured(t *testing.T) *natsrun.Server {
	t.Helper()
	a.issue(t, "nats")
	return a.serve(t)
}

// serve starts a NATS server with the certificate that is there.
func (a *authority) serve(t *testing.T, change ...func(*tls.Config)) *natsrun.Server {
	t.Helper()
	config, err := server.GenTLSConfig(&server.TLSConfigOpts{
		CaFile: a.file("ca.pem"), CertFile: a.file("nats.pem"), KeyFile: a.file("nats.key"), Timeout: 10, Verify: true,
	})
	check.OK(t, err)
	for _, set := range change {
		set(config)
	}
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
	known := service.NATSConfig{NATSCA: a.file("ca.pem"), NATSCert: a.file("shop.pem"), NATSKey: a.file("shop.key")}
	old := a.serve(t, func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 })
	err := check.Err(nats.Connect(old.URL(), check.Must(known.Options())(t)...))
	check.That(t, err != nil && strings.Contains(err.Error(), "protocol version"), "TLS 1.2 is spoken: %v", err)
	url := srv.URL()
	for name, tt := range map[string]struct {
		cfg  service.NATSConfig
		want string // of the error
	}{
		"known":                  {known, ""},
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
	t.Cleanup(func() { check.ErrorIs(t, s.Stop(), nil) })
	serial := func() int64 {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: a.pool(t)}}}
		resp := check.Must(client.Get(s.URL() + "/livez"))(t)
		err = resp.Body.Close()
		check.That(t, err == nil && resp.StatusCode == http.StatusOK, "%s: %v", resp.Status, err)
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64()
	}
	_, err = tls.Dial("tcp", strings.TrimPrefix(s.URL(), "https://"), &tls.Config{MaxVersion: tls.VersionTLS12, RootCAs: a.pool(t)})
	check.That(t, err != nil && strings.Contains(err.Error(), "protocol version"), "TLS 1.2 is spoken: %v", err)
	first := serial()
	a.issue(t, "shop")
	check.Equal(t, serial(), first+1, "certificate")
	a.write(t, "shop.key", []byte("not a key"))
	for range 3 {
		check.Equal(t, serial(), first+1, "certificate")
	}
	check.Equal(t, log.count("shop: the certificate stays as it was"), 1, "the mistake was reported, times")
	a.issue(t, "shop")
	check.Equal(t, serial(), first+2, "certificate")
	for variable, change := range map[string]func(*service.BaseConfig){
		"SHOP_TLS_CERT": func(c *service.BaseConfig) { c.TLSKey = "" },
		"SHOP_TLS_KEY":  func(c *service.BaseConfig) { c.TLSCert = "" },
	} {
		cfg := cfg
		change(&cfg)
		check.ErrorContains(t, cfg.Validate("shop"), variable)
	}
}

// No program speaks with a server that shows a certificate with which others can be made, as the keys of such a one would make any server.
func TestServersAreNoAuthorities(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*x509.Certificate){
		"an authority": func(c *x509.Certificate) { c.BasicConstraintsValid, c.IsCA = true, true },
		"signs, and is": func(c *x509.Certificate) {
			c.BasicConstraintsValid, c.IsCA, c.KeyUsage = true, true, x509.KeyUsageCertSign
		},
		"may sign": func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature },
	} {
		a := newAuthority(t)
		a.issue(t, "nats", change)
		a.issue(t, "shop")
		options := check.Must(service.NATSConfig{NATSCA: a.file("ca.pem"), NATSCert: a.file("shop.pem"), NATSKey: a.file("shop.key")}.Options())(t)
		nc, err := nats.Connect(a.serve(t).URL(), options...)
		if err == nil {
			nc.Close()
		}
		refused, ok := errors.AsType[*service.AuthorityError](err)
		check.That(t, ok && refused.Subject == "CN=nats", "%s: got %v", name, err)
	}
}

// The metrics say when the certificates end: the service's, its client's, the server's and the authority's. One that was replaced counts at
// once, and one that nobody can read is left out.
func TestMetricsSayWhenCertificatesEnd(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	srv := a.secured(t)
	for i, name := range []string{"http", "client"} {
		a.issue(t, name, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Duration(i+2) * time.Hour) })
	}
	exports := check.Must(export.Start(t.Context(), export.Config{Service: "shop"}))(t)
	cfg := service.BaseConfig{
		Exports: exports, Logger: slog.New(slog.DiscardHandler), TLSCert: a.file("http.pem"), TLSKey: a.file("http.key"),
		NATSConfig: service.NATSConfig{NATSCA: a.file("ca.pem"), NATSCert: a.file("client.pem"), NATSKey: a.file("client.key")},
	}
	nc := check.Must(nats.Connect(srv.URL(), check.Must(cfg.Options())(t)...))(t)
	t.Cleanup(nc.Close)
	s := check.Must(service.Start(t.Context(), nc, shop(cfg)))(t)
	t.Cleanup(func() { check.ErrorIs(t, s.Stop(), nil) })
	page := func() string {
		answer := httptest.NewRecorder()
		exports.Metrics.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
		return answer.Body.String()
	}
	testbed.Metrics(t, page(), func(name string) bool { return strings.HasPrefix(name, "certificate_") })
	value := regexp.MustCompile(`(?m)^certificate_expiration_timestamp_seconds\{certificate="(\w+)".*\} (\S+)$`)
	ends := func() map[string]time.Duration {
		all := map[string]time.Duration{}
		for _, found := range value.FindAllStringSubmatch(page(), -1) {
			at := check.Must(strconv.ParseFloat(found[2], 64))(t)
			all[found[1]] = time.Until(time.Unix(int64(at), 0)).Round(time.Hour)
		}
		return all
	}
	want := map[string]time.Duration{"http": 2 * time.Hour, "client": 3 * time.Hour, "server": time.Hour, "authority": time.Hour}
	check.Equal(t, ends(), want)
	a.issue(t, "http", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(9 * time.Hour) })
	want["http"] = 9 * time.Hour
	check.Equal(t, ends(), want)
	a.write(t, "http.pem", []byte("none"))
	delete(want, "http")
	check.Equal(t, ends(), want)
}
