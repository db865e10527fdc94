package doctor

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/outbox"
)

// remotes are the variables with the addresses that services call.
var remotes = []string{
	"ENRICHER_PROVIDER_URL", "IMPORTER_OPENAI_URL", "IMPORTER_ORCHESTRATOR_URL", "IMPORTER_RECIPE_SERVICE_URL",
	"NOTIFIER_SMS_URL", "OTEL_EXPORTER_OTLP_ENDPOINT",
}

// gatewaysVariable names further channels, and the URL of each.
const gatewaysVariable = "NOTIFIER_GATEWAYS"

// gateways returns the gateways in the environment, by channel. An entry that is no pair is a mistake that the
// configuration reports.
func gateways(environment map[string]string) map[string]string {
	all := map[string]string{}
	for pair := range strings.SplitSeq(environment[gatewaysVariable], ",") {
		if name, address, ok := strings.Cut(pair, ":"); ok {
			all[strings.TrimSpace(name)] = address
		}
	}
	return all
}

// backlogAge is the largest age of the oldest row of an outbox.
const backlogAge = 5 * time.Minute

// checkRemotes connects to all remote services that the environment names. It sends no request, except for the keys of an
// issuer.
func (e *examination) checkRemotes(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*once)
	defer cancel()
	var asking sync.WaitGroup
	ask := func(variable, value string, check func(context.Context, string, string)) {
		if value = strings.TrimSpace(value); value != "" {
			asking.Go(func() { check(ctx, variable, value) })
		}
	}
	each := func(variable string, check func(context.Context, string, string)) {
		ask(variable, e.Environment[variable], check)
	}
	for _, variable := range remotes {
		each(variable, e.checkURL)
	}
	for _, address := range gateways(e.Environment) {
		ask(gatewaysVariable, address, e.checkURL)
	}
	each("NOTIFIER_EMAIL_SERVER", e.checkMail)
	each("DATABASE_URL", e.checkDatabase)
	for _, s := range contracts.Services() {
		each(strings.ToUpper(s)+"_OIDC_ISSUER", e.checkIssuer)
	}
	asking.Wait()
}

func (e *examination) unreachable(variable, address, cure string, err error) {
	id := "far.unreachable"
	if isType[*tls.CertificateVerificationError](err) {
		id = "far.tls"
	}
	e.add(id, Error, variable, cure, "%s: %v", redact.URL(address), redact.Error(err))
}

// checkURL connects to the host of an address, or to the proxy before it.
func (e *examination) checkURL(ctx context.Context, variable, value string) {
	u, err := url.Parse(value)
	if err != nil || u.Host == "" {
		return // the configuration reports it
	}
	cure := "curl -sSI " + operate.Quote(u.Scheme+"://"+u.Host) + " # has to answer on the machine of the service"
	host, secure := u, u.Scheme == "https"
	if r, err := http.NewRequestWithContext(ctx, http.MethodHead, value, http.NoBody); err == nil {
		if proxy, err := http.ProxyFromEnvironment(r); err == nil && proxy != nil {
			host, secure = proxy, proxy.Scheme == "https"
		}
	}
	port := cmp.Or(host.Port(), map[bool]string{true: "443", false: "80"}[secure])
	conn, err := dial(ctx, net.JoinHostPort(host.Hostname(), port), secure, host.Hostname(), e.roots(variable))
	if err != nil {
		e.unreachable(variable, value, cure, err)
		return
	}
	conn.Close()
}

// roots returns the authorities that a service trusts, nil for the system's.
func (e *examination) roots(variable string) *x509.CertPool {
	if !strings.HasPrefix(variable, "NOTIFIER_") || e.Environment["NOTIFIER_ROOT_CAS"] == "" {
		return nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		return nil
	}
	if data, err := private.ReadFile(e.Environment["NOTIFIER_ROOT_CAS"], private.MaxPEM); err == nil {
		pool.AppendCertsFromPEM(data)
	}
	return pool
}

func dial(ctx context.Context, address string, secure bool, name string, roots *x509.CertPool) (net.Conn, error) {
	if secure {
		dialer := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: name}}
		return dialer.DialContext(ctx, "tcp", address)
	}
	var dialer net.Dialer
	return dialer.DialContext(ctx, "tcp", address)
}

// checkMail waits for the greeting of a mail server.
func (e *examination) checkMail(ctx context.Context, variable, value string) {
	host, _, err := net.SplitHostPort(value)
	if err != nil {
		return // the configuration reports it
	}
	cure := "openssl s_client -starttls smtp -connect " + operate.Quote(value) + " # has to answer on the machine of the notifier"
	conn, err := dial(ctx, value, e.Environment["NOTIFIER_EMAIL_SECURITY"] == "tls", host, e.roots(variable))
	if err == nil {
		defer conn.Close()
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		defer stop()
		var line string
		if line, err = bufio.NewReader(conn).ReadString('\n'); err == nil && !strings.HasPrefix(line, "220") {
			err = fmt.Errorf("it greets with %.60q, want 220", strings.TrimSpace(line))
		} else if ctx.Err() != nil {
			err = errors.New("no greeting")
		}
	}
	if err != nil {
		e.unreachable(variable, value, cure, err)
	}
}

// checkIssuer requests the keys that check tokens.
func (e *examination) checkIssuer(ctx context.Context, variable, value string) {
	issuer, err := access.NewOIDC(access.OIDCConfig{Audience: "doctor", Issuer: value, Name: "doctor"})
	if err != nil {
		return // the configuration reports it
	}
	if err := issuer.Reach(ctx); err != nil {
		e.unreachable(variable, value, "curl -sSf "+operate.Quote(strings.TrimSuffix(value, "/")+"/.well-known/openid-configuration"), err)
	}
}

func (e *examination) checkDatabase(ctx context.Context, variable, value string) {
	conn, err := pgx.Connect(ctx, value)
	if err != nil {
		e.unreachable(variable, value, `psql "$DATABASE_URL" -c 'SELECT 1' # has to answer on the machine of the relay`, err)
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	backlog, err := outbox.ReadBacklog(ctx, conn)
	if err != nil {
		e.add("outbox.schema", Error, variable, `expediter relay --print-schema | psql "$DATABASE_URL"`, "%v", redact.Error(err))
		return
	}
	if backlog.SetAside > 0 {
		e.add("outbox.aside", Warning, variable, "expediter relay --requeue # once the reason of the refusals is fixed",
			"%d rows of the outbox are set aside", backlog.SetAside)
	}
	if backlog.Oldest > backlogAge {
		e.add("outbox.waits", Error, variable, "expediter relay "+e.Flags, "%d rows of the outbox wait, the oldest for %s: does a relay run?",
			backlog.Rows, backlog.Oldest.Round(time.Second))
	}
}
