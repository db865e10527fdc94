package service

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/natsotel/export"
	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/internal/service/access"
)

// BaseConfig is the part of the configuration that all services share. A service embeds it in its own Config. The tags
// name the environment variables that [Read] reads; SERVICE stands for the service's name, as in ENRICHER_LISTEN.
// A variable with _FILE behind its name has the path of a file with the value.
type BaseConfig struct {
	// LimitConfig bounds the callers of the HTTP API.
	LimitConfig

	// NATSConfig names the server, which [Start] does not use.
	NATSConfig

	// AdminListen is the address of a separate listener for the probes, /metrics and the routes that need the scope operate. Listen then does
	// not have these routes. "-" leaves them out. Defaults to none: Listen has all routes.
	AdminListen string `env:"SERVICE_ADMIN_LISTEN"`

	// AckWait is the time after which another process takes up the work of a killed one. Defaults to 5 seconds.
	AckWait time.Duration `env:"SERVICE_ACK_WAIT"`

	// Concurrency is the number of jobs that a worker handles at a time. Each service has its own default.
	Concurrency int `env:"SERVICE_CONCURRENCY"`

	// CreateAssets makes missing streams, buckets and consumers, for development, and changes no existing ones. In production an
	// administrator makes all of them, and the service only checks them. Defaults to false.
	CreateAssets bool `env:"SERVICE_CREATE_ASSETS"`

	// Exports take traces, and the metrics of /metrics. A caller that sets Exports also stops them. Defaults to the exporters that the
	// environment names for [Run], see the package export, and to none for [Start].
	Exports *export.Exports `env:"-"`

	// Hosts are further hosts that requests may name, with the wildcards of path.Match. The check refuses requests of pages whose host
	// resolves to this address only later (DNS rebinding). Defaults to addresses and localhost, and with Keys or OIDCIssuer to all hosts,
	// because a foreign page has no key.
	Hosts []string `env:"SERVICE_HOSTS"`

	// Insecure lets the service listen beyond this machine without Keys and OIDCIssuer: everybody who reaches it may do everything. Defaults
	// to false.
	Insecure bool `env:"SERVICE_INSECURE"`

	// Keys is the file with the keys of the callers of the HTTP API, and with the keys with which applications sign tokens of their users,
	// see the package access. It is read again when it changes. Defaults to none. Without Keys and OIDCIssuer everybody may do everything, and
	// the service starts only on a loopback address.
	Keys string `env:"SERVICE_KEYS"`

	// Listen is the address of the HTTP API, such as ":8080" or "127.0.0.1:0". "-" is none. Each service has its
	// own default.
	Listen string `env:"SERVICE_LISTEN"`

	// Listener takes the connections of the HTTP API instead of Listen. A started service closes it. Defaults to none.
	Listener net.Listener `env:"-"`

	// Logger gets the log. [Read] sets a logger that writes lines of JSON to the standard error, from LogLevel on. Defaults to
	// slog.Default().
	Logger *slog.Logger `env:"-"`

	// LogLevel is the lowest level that the Logger of [Read] writes: debug, info, warn or error. It has no effect on another Logger. Defaults
	// to info.
	LogLevel slog.Level `env:"SERVICE_LOG_LEVEL"`

	// MaxBytes is the space that all streams of CreateAssets may reserve together. Defaults to the declared sizes.
	MaxBytes int64 `env:"SERVICE_MAX_BYTES"`

	// OIDCAudience has to be among the audiences of a token. Required with OIDCIssuer.
	OIDCAudience string `env:"SERVICE_OIDC_AUDIENCE"`

	// OIDCIssuer is the address of the issuer of OpenID Connect whose access tokens are accepted, in addition to Keys. It has to be exactly as
	// in the claim iss, with https unless on this machine. See the package access for the contents of a token. Defaults to none.
	OIDCIssuer string `env:"SERVICE_OIDC_ISSUER"`

	// OIDCScopeClaim is the claim that has the scopes, as a list or with spaces between them. Defaults to "scope".
	OIDCScopeClaim string `env:"SERVICE_OIDC_SCOPE_CLAIM"`

	// Origins are the origins of pages, such as https://app.example.com, that may use the service like its own pages: read answers (CORS),
	// change things and open WebSockets. Defaults to none.
	Origins []string `env:"SERVICE_ORIGINS"`

	// Replicas is the number of servers that keep the streams of CreateAssets, 1 to 5. Defaults to 1.
	Replicas int `env:"SERVICE_REPLICAS"`

	// Storage is the storage of the streams of CreateAssets. Defaults to files.
	Storage jetstream.StorageType `env:"-"`

	// TLSCert and TLSKey are the PEM files with the certificate of the HTTP interface, followed by intermediate certificates, and with its
	// key. Both are read again when they change. Defaults to none: HTTP without TLS.
	TLSCert string `env:"SERVICE_TLS_CERT"`
	TLSKey  string `env:"SERVICE_TLS_KEY"`

	// TokenAudience has to be among the audiences of a token that an application signs for one of its users, with a key of Keys. Defaults to
	// the name of the service, such as "notifier".
	TokenAudience string `env:"SERVICE_TOKEN_AUDIENCE"`

	// UpdateConsumers makes CreateAssets also change existing consumers to the settings that the service needs, on a server of the program's
	// own. Defaults to false.
	UpdateConsumers bool `env:"-"`

	// Version is the semantic version that /version and `nats micro info` show. Defaults to the version of the main module, or "0.0.0-dev"
	// for a program without one.
	Version string `env:"-"`
}

// base is the part of a Config that all services share.
func (cfg *BaseConfig) base() *BaseConfig { return cfg }

// NewLogger returns a logger that writes lines of JSON, from level on.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
}

// WithDefaults returns the configuration with its defaults, two of which are the service's own.
func (cfg BaseConfig) WithDefaults(listen string, concurrency int) BaseConfig {
	cfg.AckWait = cmp.Or(cfg.AckWait, 5*time.Second)
	cfg.Concurrency = cmp.Or(cfg.Concurrency, concurrency)
	cfg.Listen = cmp.Or(cfg.Listen, listen)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	cfg.NATSURL = cmp.Or(cfg.NATSURL, nats.DefaultURL)
	cfg.Replicas = cmp.Or(cfg.Replicas, 1)
	if info, ok := debug.ReadBuildInfo(); ok && strings.HasPrefix(info.Main.Version, "v") {
		cfg.Version = cmp.Or(cfg.Version, info.Main.Version[1:])
	}
	cfg.Version = cmp.Or(cfg.Version, "0.0.0-dev")
	return cfg
}

// minAckWait is the time that the server needs to tell a dead worker from a slow one.
const minAckWait = 100 * time.Millisecond

// Validate returns an error that names every mistake, each with its environment variable.
func (cfg BaseConfig) Validate(name string) error {
	var errs []error
	bad := func(field, variable string, value any, want string) {
		errs = append(errs, fmt.Errorf("%s: %s (%s_%s) is %v: want %s", name, field, strings.ToUpper(name), variable, value, want))
	}
	if cfg.AckWait < minAckWait {
		bad("AckWait", "ACK_WAIT", cfg.AckWait, "at least "+minAckWait.String())
	}
	if cfg.Concurrency < 1 {
		bad("Concurrency", "CONCURRENCY", cfg.Concurrency, "a positive number")
	}
	if cfg.Insecure && (cfg.Keys != "" || cfg.OIDCIssuer != "") {
		bad("Insecure", "INSECURE", cfg.Insecure, fmt.Sprintf("false where %s_KEYS or %[1]s_OIDC_ISSUER is set", strings.ToUpper(name)))
	}
	cfg.validate(bad)
	if cfg.OIDCIssuer+cfg.OIDCAudience+cfg.OIDCScopeClaim != "" {
		if !access.IsIssuer(cfg.OIDCIssuer) {
			bad("OIDCIssuer", "OIDC_ISSUER", cfg.OIDCIssuer, "the https address of an issuer, as the claim iss has it")
		}
		if cfg.OIDCAudience == "" {
			bad("OIDCAudience", "OIDC_AUDIENCE", `""`, "the audience of the tokens for this service")
		}
	}
	if cfg.MaxBytes < 0 {
		bad("MaxBytes", "MAX_BYTES", cfg.MaxBytes, "a positive number")
	}
	if cfg.Replicas < 1 || cfg.Replicas > 5 {
		bad("Replicas", "REPLICAS", cfg.Replicas, "1 to 5")
	}
	if cfg.TokenAudience != "" && cfg.Keys == "" {
		bad("TokenAudience", "TOKEN_AUDIENCE", cfg.TokenAudience, "none without the file of keys in "+strings.ToUpper(name)+"_KEYS")
	}
	if (cfg.TLSCert == "") != (cfg.TLSKey == "") {
		bad("TLSCert", "TLS_CERT", cfg.TLSCert, "a file, with another one in "+strings.ToUpper(name)+"_TLS_KEY, or neither")
	}
	return errors.Join(append(errs, checkHosts(name, cfg.Hosts), checkOrigins(name, cfg.Origins))...)
}

const (
	// fileSuffix ends the name of a variable that has the path of a file with the value of another variable.
	fileSuffix = "_FILE"

	// maxValue bounds the file, in bytes.
	maxValue = 64 << 10
)

// readValue returns the value in a file, without its last line breaks.
func readValue(path string) (string, error) {
	data, err := private.ReadFile(path, maxValue)
	value := strings.TrimRight(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	if err == nil && value == "" {
		err = fmt.Errorf("%s is empty", path)
	}
	return value, err
}

// placeholder stands for the service's name in the tags of [BaseConfig].
const placeholder = "SERVICE_"

// Config is a pointer to a struct that embeds [BaseConfig].
type Config interface{ base() *BaseConfig }

// FromEnvironment is [Read] with the environment and the standard error of this process.
func FromEnvironment(name string, cfg Config) error {
	return Read(name, env.ToMap(os.Environ()), os.Stderr, cfg)
}

// Read fills in the fields of a configuration whose tags name environment variables, and sets its Logger, which writes
// to stderr. A variable with _FILE behind its name has the path of a file with the value. The error names every value that cannot be read,
// every unknown variable that begins with the service's name in capitals, and each that begins with SERVICE as in the documents.
func Read(name string, environment map[string]string, stderr io.Writer, cfg Config) error {
	prefix := strings.ToUpper(name) + "_"
	known, set := map[string]string{}, map[string]string{} // variables by the names of fields; values by the names in tags
	var errs []error
	for _, field := range reflect.VisibleFields(reflect.TypeOf(cfg).Elem()) {
		tag := field.Tag.Get("env")
		if tag == "" || tag == "-" {
			continue
		}
		variable := tag
		if rest, shared := strings.CutPrefix(tag, placeholder); shared { // and not IMPORTER_RECIPE_SERVICE_URL
			variable = prefix + rest
		}
		known[field.Name] = variable
		value, ok := environment[variable]
		if path, named := environment[variable+fileSuffix]; named {
			var err error
			if value, err = readValue(path); ok {
				err = fmt.Errorf("%s is set, too", variable)
			}
			if field.Type.Kind() == reflect.Slice {
				value = strings.ReplaceAll(value, "\n", ",") // a line for each element
			}
			if ok = err == nil; !ok {
				errs = append(errs, fmt.Errorf("%s: %s: %w", name, variable+fileSuffix, err))
			}
		}
		if ok {
			set[tag] = value
		}
	}
	errs = append(errs, unreadable(name, env.ParseWithOptions(cfg, env.Options{Environment: set}), known, environment)...)
	variables := slices.Collect(maps.Values(known))
	for _, variable := range slices.Sorted(maps.Keys(environment)) {
		rest, documented := strings.CutPrefix(strings.TrimSuffix(variable, fileSuffix), placeholder)
		switch {
		case strings.HasPrefix(variable, prefix) && !slices.Contains(variables, strings.TrimSuffix(variable, fileSuffix)):
			errs = append(errs, fmt.Errorf("%s: unknown environment variable %s: is it misspelt?", name, variable))
		case documented && slices.Contains(variables, prefix+rest): // as documents write it that hold for every service
			errs = append(errs, fmt.Errorf("%s: environment variable %s: SERVICE stands for the name of the service: set %s",
				name, variable, prefix+strings.TrimPrefix(variable, placeholder)))
		}
	}
	base := cfg.base()
	base.Logger = NewLogger(stderr, base.LogLevel)
	return errors.Join(errs...)
}

// unreadable replaces the names of fields in the parser's errors by those of variables.
func unreadable(name string, err error, names, environment map[string]string) []error {
	all, ok := errors.AsType[env.AggregateError](err)
	if !ok {
		return []error{err}
	}
	errs := make([]error, len(all.Errors))
	for i, err := range all.Errors {
		errs[i] = fmt.Errorf("%s: %w", name, err)
		if parse, ok := errors.AsType[env.ParseError](err); ok {
			want := "a value of the kind " + parse.Type.String()
			if parse.Type == reflect.TypeFor[slog.Level]() {
				want = "debug, info, warn or error"
			}
			variable := names[parse.Name]
			errs[i] = fmt.Errorf("%s: %s is %q: want %s: %w", name, variable, environment[variable], want, parse.Err)
		}
	}
	return errs
}
