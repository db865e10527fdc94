package doctor

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/denied"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
)

const (
	minMajor, minMinor = 2, 15 // of the servers that are supported

	expiresSoon = 30 * 24 * time.Hour         // before a certificate or a key ends
	farAway     = 250 * time.Millisecond      // round trip
	maxDrift    = 2 * time.Second             // between two clocks
	maxSync     = 10 * time.Second            // sync_interval of a single server
	fullNoted   = 0.80                        // as in readiness
	maxAnswer   = 1 << 20                     // of a server's monitoring
	stall       = 250 * time.Millisecond      // after one answer, for another one
	onceMore    = "nats-server --signal stop" // then start, for settings that a reload does not change
)

// reload returns the cure for a server's configuration: an edit, and a signal.
func reload(when string) string { return "nats-server --signal reload # when " + when }

// restart returns the cure for settings that need a restart.
func restart(when string) string {
	return onceMore + " # one server at a time, and start it again, when " + when
}

// connect connects to the server, and reports whether it did. A failure is a finding.
func (e *examination) connect(ctx context.Context) bool {
	options := []nats.Option{nats.ErrorHandler(e.note), nats.NoReconnect(), nats.Timeout(once)}
	if e.As != "" {
		options = append(options, nats.CustomInboxPrefix("_INBOX_"+e.As))
	}
	// Connect reads files, which may hang.
	type answer struct {
		nc  *nats.Conn
		err error
	}
	answers := make(chan answer, 1)
	go func() { nc, err := e.Connect(options...); answers <- answer{nc, err} }()
	var err error
	select {
	case a := <-answers:
		if e.nc, err = a.nc, a.err; err == nil {
			return true
		}
	case <-ctx.Done():
		err = ctx.Err()
	}
	id, cure := "connect.refused", "nats-server -c deploy/nats/single.conf # or set NATS_URL to where the server runs; "+
		"the end of its log says why it does not start, such as a full or read-only disk"
	var certificate x509.CertificateInvalidError
	switch text := err.Error(); {
	case errors.Is(err, fs.ErrNotExist):
		return false // a missing file is reported with its variable
	case strings.HasPrefix(text, "NATS_"):
		id, cure = "connect.files", "(umask 077; set -C; nk -gen user >user.nk) && export NATS_NKEY=user.nk"+
			" # and the servers get its public key, as deploy/nats/README.md says"
	case strings.Contains(text, "nkeys not supported"):
		id, cure = "connect.auth", "unset NATS_NKEY # or include accounts.conf in the server's configuration, and restart it"
	case errors.Is(err, nats.ErrAuthorization), strings.Contains(strings.ToLower(text), "authorization violation"):
		id, cure = "connect.auth", `nk -inkey "$NATS_NKEY" -pubout # the servers' NATS_NKEY_<USER> has to be what this prints`
	case errors.As(err, &certificate) && certificate.Reason == x509.Expired:
		id, cure = "tls.expired", renew
	case isType[*service.AuthorityError](err):
		id, cure = "tls.leaf", fmt.Sprintf(leaf, "cert.pem")
	case isType[x509.HostnameError](err):
		id, cure = "tls.name", renew
	case isType[x509.UnknownAuthorityError](err):
		id, cure = "tls.authority", "export NATS_CA=ca.pem # the authority of the server's certificate"
	case strings.Contains(text, "read tcp") && os.IsTimeout(err):
		cure = locked
	case strings.Contains(text, "tls") || strings.Contains(text, "secure"):
		id, cure = "connect.tls", "export NATS_CA=ca.pem NATS_CERT=cert.pem NATS_KEY=key.pem # or the address with tls://"
	}
	e.add(id, Error, "server "+redact.URL(e.Server), cure, "no connection: %v", redact.Error(err))
	return false
}

// locked is the cure for a server that does not answer on an open connection.
const locked = "df -h /data; df -i /data # on its machine: a full disk may lock nats-server 2.15.2; make room, kill it, and start it again"

func isType[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// renew is the cure for a server's certificate.
const renew = "openssl x509 -noout -subject -enddate -ext subjectAltName -in cert.pem" +
	" # on the server: make another one, as deploy/nats/README.md does, and restart it"

// leaf is the cure for a certificate that is one of an authority.
const leaf = "openssl x509 -noout -subject -ext basicConstraints,keyUsage -in %s" +
	" # make another one, with CA:FALSE, as deploy/nats/README.md does"

// note records the subjects that the server has denied.
func (e *examination) note(_ *nats.Conn, _ *nats.Subscription, err error) {
	if subject, _, ok := denied.Subject(err); ok {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.denied = append(e.denied, subject)
	}
}

// checkConnection checks the version, limits and TLS that the server announces when a client connects.
func (e *examination) checkConnection(ctx context.Context) {
	of := "server " + redact.URL(e.nc.ConnectedUrl())
	e.checkVersion(of, e.nc.ConnectedServerVersion())
	e.checkPayload(of, e.nc.MaxPayload())
	switch took, err := e.roundTrip(ctx); {
	case err != nil:
		e.add("server.silent", Error, of, locked, "it does not answer a ping: %v", err)
	case took > farAway:
		e.add("server.rtt", Warning, of, "nats rtt "+e.Flags, "a round trip takes %s, want less than %s", took.Round(time.Millisecond), farAway)
	}
	state, err := e.nc.TLSConnectionState()
	switch away := !isLoopback(e.nc.ConnectedUrl()); {
	case err == nil && len(state.PeerCertificates) > 0:
		e.checkExpiry("tls", of, state.PeerCertificates[0], renew)
	case away:
		e.add("tls.plain", Error, of, restart(`its configuration includes tls.conf, and set NATS_CA`), "other machines reach it without TLS")
	}
	if !isLoopback(e.nc.ConnectedUrl()) && !e.nc.AuthRequired() {
		e.add("server.open", Error, of, restart("its configuration includes accounts.conf"), "everybody who reaches it may do everything")
	}
}

// roundTrip returns the shortest time of some round trips, because on a busy machine each may have to wait.
func (e *examination) roundTrip(ctx context.Context) (least time.Duration, err error) {
	const pings = 10
	ctx, cancel := context.WithTimeout(ctx, once)
	defer cancel()
	for i := range pings {
		begun := time.Now()
		if err := e.nc.FlushWithContext(ctx); err != nil {
			if i > 0 {
				break
			}
			return 0, err
		}
		if took := time.Since(begun); i == 0 || took < least {
			least = took
		}
	}
	return least, nil
}

func (e *examination) checkVersion(of, version string) {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, errA := strconv.Atoi(major)
	b, errB := strconv.Atoi(minor)
	if errA != nil || errB != nil || a < minMajor || a == minMajor && b < minMinor {
		e.add("server.version", Error, of, "go install github.com/nats-io/nats-server/v2@v2.15.2 # and restart it",
			"it is of version %q, want %d.%d or later", version, minMajor, minMinor)
	}
}

func (e *examination) checkPayload(of string, limit int64) {
	if limit < contracts.MaxBody {
		e.add("server.max_payload", Error, of, reload("max_payload is 1MB in its configuration"),
			"max_payload is %d, want at least %d: larger messages are refused", limit, contracts.MaxBody)
	}
}

// checkExpiry adds the finding of a certificate that ends soon, or has ended.
func (e *examination) checkExpiry(kind, of string, certificate *x509.Certificate, cure string) {
	left := time.Until(certificate.NotAfter)
	switch {
	case left <= 0:
		e.add(kind+".expired", Error, of, cure, "its certificate ended on %s", day(certificate.NotAfter))
	case left < expiresSoon:
		e.add(kind+".expires", Warning, of, cure, "its certificate ends on %s", day(certificate.NotAfter))
	}
}

func day(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// isLoopback reports whether an address is on this machine, or on no network.
func isLoopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.Hostname() == "localhost" {
		return err == nil
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && ip.IsLoopback()
}
