package doctor_test

import (
	"crypto/x509"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// set returns the mistake of other values of variables: NAME=value, or NAME for none.
func set(variables ...string) func(*site) {
	return func(s *site) {
		for _, v := range variables {
			name, value, found := strings.Cut(v, "=")
			if s.env[name] = value; !found {
				delete(s.env, name)
			}
		}
	}
}

// restore undoes set.
func restore(s *site) { s.env = maps.Clone(s.before) }

// rewrite returns the mistake of another text in the file that a variable names. The file is a new one.
func rewrite(variable, text string) func(*site) {
	return func(s *site) {
		s.env[variable] = filepath.Join(s.TempDir(), "file")
		check.OK(s.T, os.WriteFile(s.env[variable], []byte(text), 0o600))
	}
}

// mode returns the mistake of another mode of the file that a variable names.
func mode(variable string, to os.FileMode) func(*site) {
	return func(s *site) { check.OK(s.T, os.Chmod(s.env[variable], to)) }
}

// closed is an address where nothing listens.
const closed = "127.0.0.1:1"

var configMistakes = []mistake{
	{name: "a variable is misspelt", id: "config.unknown", make: set("NOTIFIER_RULEZ=rules.yaml"), undo: restore},
	{name: "a value is no number", id: "config.value", make: set("ENRICHER_CONCURRENCY=many"), undo: restore},
	{
		name: "everybody may use the service", id: "config.exposed",
		make: set("ENRICHER_KEYS", "ENRICHER_OIDC_ISSUER", "ENRICHER_OIDC_AUDIENCE"), undo: restore,
	},
	{name: "a catalogue cannot be read", id: "config.value", make: rewrite("ENRICHER_CATALOG", "{"), undo: restore},
	{
		name: "a channel that is none", id: "config.rules", undo: restore,
		make: rewrite("NOTIFIER_RULES", "version: 1\nevents:\n  HELLO:\n    CUSTOMER: {scope: user, channels: [pigeon]}\n"),
	},
	{name: "a text with a mistake", id: "config.texts", undo: restore, make: func(s *site) {
		s.env["NOTIFIER_TEMPLATES"] = s.TempDir()
		for name, text := range map[string]string{"default.subject": "Hello\n", "default.txt": "{{.Nothing\n"} {
			check.OK(s.T, os.MkdirAll(filepath.Join(s.env["NOTIFIER_TEMPLATES"], "HELLO"), 0o700))
			check.OK(s.T, os.WriteFile(filepath.Join(s.env["NOTIFIER_TEMPLATES"], "HELLO", name), []byte(text), 0o600))
		}
	}},
	{name: "no rules", id: "file.missing", make: set("NOTIFIER_RULES=nowhere.yaml"), undo: restore},
	{name: "no file of a secret", id: "file.missing", make: set("IMPORTER_OPENAI_KEY_FILE=nowhere"), undo: restore},
	{name: "no credentials", id: "file.missing", make: set("NATS_CREDS=nowhere.creds"), undo: restore},
	{name: "no authority", id: "connect.files", make: rewrite("NATS_CA", "none"), undo: restore},
	{name: "everybody reads the key of a certificate", id: "file.mode", make: mode("ENRICHER_TLS_KEY", 0o644)},
	{name: "everybody reads a secret", id: "file.mode", make: mode("IMPORTER_OPENAI_KEY_FILE", 0o644)},
	{name: "a certificate has ended", id: "file.expired", make: func(s *site) { certify(s, -time.Hour) }, undo: restore},
	{name: "a certificate ends soon", id: "file.expires", warns: true, make: func(s *site) { certify(s, time.Hour) }, undo: restore},
	{name: "a certificate can make others", id: "file.authority", make: func(s *site) { certify(s, 365*24*time.Hour, authority) }, undo: restore},
	{name: "the key of another certificate", id: "file.pair", make: func(s *site) {
		_, key := pair(s.T, time.Now().Add(time.Hour))
		rewrite("ENRICHER_TLS_KEY", key)(s)
	}, undo: restore},
	{name: "a file of keys with a mistake", id: "keys.invalid", make: rewrite("ENRICHER_KEYS", "{"), undo: restore},
	{
		name: "everybody writes the keys", id: "keys.invalid", make: mode("ENRICHER_KEYS", 0o666),
		undo: func(s *site) { mode("ENRICHER_KEYS", 0o600)(s) },
	},
	{name: "everybody reads a secret that signs tokens", id: "file.mode", make: func(s *site) {
		s.run(0, "keys", "signer", "--file", s.env["ENRICHER_KEYS"], "--algorithm", "HS256", "shop-1")
		mode("ENRICHER_KEYS", 0o644)(s)
	}},
	{name: "a key ends soon", id: "keys.expires", warns: true, make: func(s *site) {
		s.run(0, "keys", "add", "--file", s.env["ENRICHER_KEYS"], "--scope", "read", "--expires", "24h", "guest")
	}},

	{name: "no mail server", id: "far.unreachable", make: set("NOTIFIER_EMAIL_SERVER=" + closed), undo: restore},
	{
		name: "a mail server without a greeting", id: "far.unreachable", undo: restore,
		make: func(s *site) { s.env["NOTIFIER_EMAIL_SERVER"] = greeter(s.T, "") },
	},
	{
		name: "no mail server, but another one", id: "far.unreachable", undo: restore,
		make: func(s *site) { s.env["NOTIFIER_EMAIL_SERVER"] = greeter(s.T, "HTTP/1.1 400 Bad Request\r\n") },
	},
	{name: "no authority of the SMS gateway", id: "far.tls", make: set("NOTIFIER_ROOT_CAS"), undo: restore},
	{name: "no SMS gateway", id: "far.unreachable", make: set("NOTIFIER_SMS_URL=https://" + closed), undo: restore},
	{
		name: "no gateway", id: "far.unreachable", also: []string{"consumer.missing"}, undo: restore,
		make: set("NOTIFIER_GATEWAYS=pigeon:https://" + closed),
	},
	{
		name: "a gateway's channel has no consumer", id: "consumer.missing",
		make: func(s *site) { s.env["NOTIFIER_GATEWAYS"] = "pigeon:" + s.env["NOTIFIER_SMS_URL"] },
	},
	{name: "no provider of places", id: "far.unreachable", make: set("ENRICHER_CATALOG", "ENRICHER_PROVIDER_URL=http://"+closed, "ENRICHER_PROVIDER_KEY=confidential"), undo: restore},
	{name: "no model", id: "far.unreachable", make: set("IMPORTER_OPENAI_URL=http://" + closed), undo: restore},
	{name: "no recipe service", id: "far.unreachable", make: set("IMPORTER_RECIPE_SERVICE_URL=http://" + closed), undo: restore},
	{name: "no collector", id: "far.unreachable", make: set("OTEL_EXPORTER_OTLP_ENDPOINT=http://" + closed), undo: restore},
	{name: "no issuer", id: "far.unreachable", make: set("ENRICHER_OIDC_ISSUER=http://" + closed), undo: restore},
	{name: "another issuer", id: "far.unreachable", make: func(s *site) { s.env["ENRICHER_OIDC_ISSUER"] += "/" }, undo: restore},
	{name: "no database", id: "far.unreachable", make: set("DATABASE_URL=postgres://app:confidential@" + closed + "/app"), undo: restore},
}

// certify gives the enricher a certificate.
func certify(s *site, left time.Duration, change ...func(*x509.Certificate)) {
	cert, key := pair(s.T, time.Now().Add(left), change...)
	rewrite("ENRICHER_TLS_CERT", cert)(s)
	s.env["ENRICHER_TLS_KEY"] = filepath.Join(s.TempDir(), "key.pem")
	check.OK(s.T, os.WriteFile(s.env["ENRICHER_TLS_KEY"], []byte(key), 0o600))
}

func TestMistakesInConfigurations(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.healthy()
	checkAll(t, configMistakes)
	delete(s.env, "ENRICHER_CATALOG")
	s.env["ENRICHER_PROVIDER_URL"] = s.env["IMPORTER_OPENAI_URL"]
	s.healthy()
	set("ENRICHER_KEYS", "ENRICHER_OIDC_AUDIENCE", "ENRICHER_OIDC_ISSUER", "ENRICHER_INSECURE=true")(s)
	s.healthy()
}
