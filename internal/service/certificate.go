package service

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/expediter-io/expediter/internal/private"
)

// certificate is the certificate of the HTTP interface. It is read again when a connection begins and one of its files has changed. If the
// files cannot be used, the former certificate stays in force.
type certificate struct {
	cert, key string
	logger    *slog.Logger
	name      string // of the service

	mu      sync.Mutex
	current *tls.Certificate
	read    [2]version // the versions of the files of the certificate in force
	refused [2]version // the versions of files that could not be used
}

// version has the properties of a file that change when the file is replaced.
type version struct {
	size  int64
	stamp time.Time
}

// newCertificate reads a certificate for the first time.
func newCertificate(name, cert, key string, logger *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cert, key: key, logger: logger, name: name}
	if err := c.load(c.versions()); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *certificate) config() *tls.Config {
	return &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS13}
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.versions()
	if now == c.read || now == c.refused {
		return c.current, nil
	}
	if err := c.load(now); err != nil {
		c.refused = now
		c.logger.Error(c.name+": the certificate stays as it was", "error", err)
	}
	return c.current, nil
}

func (c *certificate) load(now [2]version) error {
	loaded, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("%s: certificate %s with key %s: %w", c.name, c.cert, c.key, err)
	}
	c.current, c.read = &loaded, now
	return nil
}

func (c *certificate) versions() (v [2]version) {
	for i, name := range []string{c.cert, c.key} {
		if info, err := os.Stat(name); err == nil {
			v[i] = version{info.Size(), info.ModTime()}
		}
	}
	return v
}

// certificates returns when the certificates end on which connections depend, in Unix time: that of the service's HTTP, of it as a client
// of NATS, of the authority that it trusts, and of the server to which it is connected. Each is read when it is asked for, as it may have
// been replaced. One that cannot be read is left out.
func (s *Service) certificates() map[string]int64 {
	ends := map[string]int64{}
	for of, path := range map[string]string{"http": s.Config.TLSCert, "client": s.Config.NATSCert, "authority": s.Config.NATSCA} {
		data, err := private.ReadFile(path, private.MaxPEM)
		for block, rest := pem.Decode(data); err == nil && block != nil; block, rest = pem.Decode(rest) {
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				continue
			}
			if at, ok := ends[of]; !ok || certificate.NotAfter.Unix() < at {
				ends[of] = certificate.NotAfter.Unix()
			}
		}
	}
	if state, err := s.Conn.TLSConnectionState(); err == nil {
		ends["server"] = state.PeerCertificates[0].NotAfter.Unix()
	}
	return ends
}
