package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/expediter-io/expediter/internal/lazyregexp"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/importer"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/rules"
	"github.com/expediter-io/expediter/services/notifier/template"
)

type fileKind int

const (
	anyFile fileKind = iota
	secretFile
	certificateFile // of authorities
	identityFile    // the certificate of a server or a client, and those above it
	keysFile
)

// fileKinds are the variables that name files, without the name of the service.
var fileKinds = map[string]fileKind{
	"CATALOG": anyFile, "KEYS": keysFile, "ROOT_CAS": certificateFile, "RULES": anyFile, "TEMPLATES": anyFile, "TLS_CERT": identityFile,
	"TLS_KEY": secretFile, "NATS_CA": certificateFile, "NATS_CERT": identityFile, "NATS_CREDS": secretFile, "NATS_KEY": secretFile,
	"NATS_NKEY": secretFile,
}

// checkEnvironment checks the files that the environment names, and lets each service with variables check its
// configuration.
func (e *examination) checkEnvironment(context.Context) {
	missing := false
	for _, variable := range slices.Sorted(maps.Keys(e.Environment)) {
		name := variable
		for _, s := range contracts.Services() {
			name = strings.TrimPrefix(name, strings.ToUpper(s)+"_")
		}
		kind, ok := fileKinds[name]
		if path, file := strings.CutSuffix(variable, "_FILE"); file && name != variable {
			kind, ok = secretFile, true
			if !secretName.MatchString(path) {
				kind = anyFile
			}
		}
		if path := e.Environment[variable]; ok && path != "" && (name != variable || strings.HasPrefix(name, "NATS_")) {
			missing = e.checkFile(variable, path, kind) || missing
		}
	}
	for _, s := range []struct {
		name  string
		check func(map[string]string) (service.BaseConfig, error)
	}{
		{contracts.ServiceEnricher, enricher.Check}, {contracts.ServiceImporter, importer.Check}, {contracts.ServiceNotifier, notifier.Check},
	} {
		if e.configures(s.name) {
			cfg, err := s.check(e.Environment)
			e.checkConfig(s.name, cfg, err, missing)
		}
	}
}

// configures reports whether the environment has variables of a service.
func (e *examination) configures(name string) bool {
	for variable := range e.Environment {
		if strings.HasPrefix(variable, strings.ToUpper(name)+"_") {
			return true
		}
	}
	return false
}

// checkConfig adds the mistakes that a service has found in its configuration.
func (e *examination) checkConfig(name string, cfg service.BaseConfig, err error, missing bool) {
	of := "configuration of " + name
	for _, mistake := range flatten(err) {
		text := strings.TrimPrefix(mistake.Error(), name+": ")
		id, cure := "config.value", "${EDITOR:-vi} "+name+"/env # as docs/operate.md and services/"+name+"/config.go say, then start it again"
		switch _, unknown, found := strings.Cut(text, "unknown environment variable "); {
		case errors.Is(mistake, fs.ErrNotExist) && missing:
			continue // the file is reported with its variable
		case found:
			variable, _, _ := strings.Cut(unknown, ":")
			id, cure = "config.unknown", "unset "+variable+" # or spell it as docs/operate.md does"
		case isType[*rules.Error](mistake), isType[*template.Error](mistake):
			if id = "config.rules"; isType[*template.Error](mistake) {
				id = "config.texts"
			}
			cure = "expediter rules check " + operate.Quote(e.Environment["NOTIFIER_RULES"])
			if texts := e.Environment["NOTIFIER_TEMPLATES"]; texts != "" {
				cure += " --templates " + operate.Quote(texts)
			}
		}
		e.add(id, Error, of, cure, "%s", strings.ReplaceAll(text, "\n", "; "))
	}
	if cfg.TLSCert != "" && cfg.TLSKey != "" {
		if _, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey); err != nil && !errors.Is(err, fs.ErrNotExist) {
			e.add("file.pair", Error, of, fmt.Sprintf("openssl x509 -noout -pubkey -in %s && openssl pkey -pubout -in %s # have to be the same",
				operate.Quote(cfg.TLSCert), operate.Quote(cfg.TLSKey)), "%s with %s: %v", cfg.TLSCert, cfg.TLSKey, err)
		}
	}
	local := cfg.Listen == service.None || !strings.HasPrefix(cfg.Listen, ":") && isLoopback("http://"+cfg.Listen)
	if !local && cfg.Keys == "" && cfg.OIDCIssuer == "" && !cfg.Insecure {
		variable := strings.ToUpper(name)
		e.add("config.exposed", Error, of,
			fmt.Sprintf("expediter keys add --file keys.json --scope read,publish NAME && export %s_KEYS=keys.json", variable),
			"it does not start: %s_LISTEN is %s, which others reach, and there are neither %[1]s_KEYS nor %[1]s_OIDC_ISSUER", variable, cfg.Listen)
	}
}

func flatten(err error) []error {
	switch joined, ok := err.(interface{ Unwrap() []error }); {
	case err == nil:
		return nil
	case ok && !strings.Contains(fmt.Sprintf("%T", err), "fmt."):
		var all []error
		for _, one := range joined.Unwrap() {
			all = append(all, flatten(one)...)
		}
		return all
	}
	return []error{err}
}

// checkFile checks a file that a variable names, and reports whether it is missing.
func (e *examination) checkFile(variable, path string, kind fileKind) (missing bool) {
	of := variable
	info, err := os.Stat(path)
	if err != nil {
		e.add("file.missing", Error, of, "export "+variable+"=FILE # one that is there", "%v", err)
		return true
	}
	if kind == secretFile && info.Mode().Perm()&0o004 != 0 {
		e.add("file.mode", Error, of, "chmod 600 "+operate.Quote(path), "%s has a secret, and everybody on this machine may read it", path)
	}
	switch kind {
	case keysFile:
		e.checkKeys(of, path, info.Mode().Perm())
	case certificateFile, identityFile:
		data, _ := private.ReadFile(path, private.MaxPEM) // its service reports a file that cannot be read
		first := true
		for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				continue
			}
			e.checkExpiry("file", of, certificate, "openssl x509 -noout -subject -enddate -in "+operate.Quote(path)+" # replace it")
			if first && kind == identityFile && service.IsAuthority(certificate) {
				e.add("file.authority", Error, of, fmt.Sprintf(leaf, operate.Quote(path)),
					"the certificate in %s is one of an authority: whoever has its key can pose as any server", path)
			}
			first = false
		}
	case anyFile, secretFile:
	}
	return false
}

func (e *examination) checkKeys(of, path string, mode fs.FileMode) {
	f, err := access.ReadFile(path)
	if err != nil {
		e.add("keys.invalid", Error, of, "expediter keys list --file "+operate.Quote(path), "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	secret := slices.ContainsFunc(f.Signers, func(s access.Signer) bool { return s.Algorithm() == jose.HS256 })
	if secret && mode&0o004 != 0 {
		e.add("file.mode", Error, of, "chmod 600 "+operate.Quote(path),
			"%s has a secret with which anybody can sign tokens of every user, and everybody on this machine may read it", path)
	}
	for _, k := range f.Keys {
		if left := time.Until(k.Expires); !k.Expires.IsZero() && left < expiresSoon {
			e.add("keys.expires", Warning, of, fmt.Sprintf("expediter keys revoke --file %s %s", operate.Quote(path), operate.Quote(k.Name)),
				"the key %s ends on %s: add another one", k.Name, day(k.Expires))
		}
	}
}

// secretName matches a variable with a secret, but not one with the name of a file.
var secretName = lazyregexp.New(`(PASSWORD|SECRETS?|TOKEN|OPENAI_KEY|PROVIDER_KEY|WEBPUSH_KEY|_PROXY)$`)

// secrets returns the values of the environment that must not be shown: the values of secret variables, the contents of files
// with secrets, and the users and queries of addresses.
func secrets(environment map[string]string) (all []string) {
	const short = 4 // any text may contain so short a value
	add := func(values ...string) {
		for _, v := range values {
			if v = strings.TrimSpace(v); len(v) >= short {
				all = append(all, v)
			}
		}
	}
	for name, value := range environment {
		if path, file := strings.CutSuffix(name, "_FILE"); file && secretName.MatchString(path) {
			if info, err := os.Stat(value); err == nil && info.Mode().IsRegular() {
				data, _ := private.ReadFile(value, private.MaxPEM) // a check finds mistakes
				add(strings.Split(string(data), "\n")...)
			}
		}
		if secretName.MatchString(name) {
			add(value)
			add(strings.Split(value, ",")...)
		}
		for address := range strings.SplitSeq(value, ",") {
			u, err := url.Parse(address)
			if err != nil || u.Host == "" {
				continue
			}
			password, _ := u.User.Password()
			add(password, u.RawQuery)
			for _, values := range u.Query() {
				add(values...)
			}
		}
	}
	return all
}

func (e *examination) clean(text string) string {
	for _, s := range e.secrets {
		text = strings.ReplaceAll(text, s, "...")
	}
	return text
}
