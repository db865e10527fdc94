package service

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/expediter-io/expediter/internal/limited"
	"github.com/expediter-io/expediter/internal/meters"
)

// showCertificates exports when the certificates end on which connections depend, until the service stops. Each is read when the metrics
// are, as it may have been replaced. One that cannot be read is left out.
func (s *Service) showCertificates() error {
	if s.Config.Exports == nil {
		return nil
	}
	m := meters.New(s.Config.Exports.Meters.Meter(scope))
	ends := m.Gauge("certificate.expiration.timestamp", "s", "When a certificate ends, in Unix time.")
	stop, err := m.Observe(func(_ context.Context, o metric.Observer) error {
		for of, at := range s.certificates() {
			o.ObserveInt64(ends, at.Unix(), metric.WithAttributes(attribute.String("certificate", of)))
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("service: %w", err)
	}
	s.unobserve = append(s.unobserve, stop)
	return nil
}

// certificates returns the ends of the certificates: of the service's HTTP, of it as a client of NATS, of the authority that it trusts, and
// of the server to which it is connected.
func (s *Service) certificates() map[string]time.Time {
	ends := map[string]time.Time{}
	for of, path := range map[string]string{"http": s.Config.TLSCert, "client": s.Config.NATSCert, "authority": s.Config.NATSCA} {
		data, err := limited.ReadFile(path, limited.MaxPEM)
		for block, rest := pem.Decode(data); err == nil && block != nil; block, rest = pem.Decode(rest) {
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				continue
			}
			if at, ok := ends[of]; !ok || certificate.NotAfter.Before(at) {
				ends[of] = certificate.NotAfter
			}
		}
	}
	if state, err := s.Conn.TLSConnectionState(); err == nil {
		ends["server"] = state.PeerCertificates[0].NotAfter
	}
	return ends
}
