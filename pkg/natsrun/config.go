package natsrun

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	deploy "github.com/expediter-io/expediter/deploy/nats"
	"github.com/expediter-io/expediter/internal/validate"
)

const (
	defaultReadyTimeout = 10 * time.Second
	defaultServerName   = "expediter"
	maxPort             = 65535
)

// Config configures one embedded server. The zero value stands for a server without a network listener, with its store in a temporary
// directory.
type Config struct {
	// ConfigFile is the path of a server configuration that replaces the embedded single.conf. This Config still sets
	// the listeners and the store directory. Defaults to "", the embedded single.conf.
	ConfigFile string

	// Dir is the directory of JetStream's files. It is created if it does not exist and locked against a second server, and Stop keeps it.
	// One in which other users could put or exchange files is refused.
	// Defaults to "", a temporary directory that Stop removes.
	Dir string

	// Listen opens a TCP listener on 127.0.0.1. In-process connections work
	// with and without it. Defaults to false.
	Listen bool

	// Logger receives the server's log. Defaults to nil, which discards the log; the reason of a failed start is part
	// of the error in any case.
	Logger *slog.Logger

	// Memory puts the temporary directory on a RAM file system where there is one with room (/dev/shm). File streams
	// work as usual, survive Restart and never wait for a disk. It cannot be combined with Dir. Defaults to false.
	Memory bool

	// Port is the TCP port to listen on; anything but 0 implies Listen. Restart keeps the port. Defaults to 0, a free
	// port.
	Port int

	// ReadyTimeout bounds the wait of Start and Restart for the server. The recovery of a large store takes longer. Defaults to 10 seconds.
	ReadyTimeout time.Duration

	// ServerName is the name of the server, for display. Defaults to "expediter".
	ServerName string

	// Users turns on accounts.conf. It maps each user's name to the user's public nkey ("U..."):
	// admin, backup_enricher, backup_importer, backup_notifier, console, enricher, importer,
	// notifier, publisher, sys. All are required. Clients then authenticate, with nats.Nkey for
	// instance, and have the permissions of production. Defaults to nil: no users, all allowed.
	Users map[string]string

	// changes are the functions passed to ChangeOptions. Each takes a *server.Options.
	changes []func(options any)
}

// ChangeOptions makes change be called with the server's options at the very end, after everything in c has been applied, and after
// earlier changes. It runs once; Restart uses the same options.
//
// It is not a field of Config, because every package that uses a Config would then compile the generic types of the server again.
func ChangeOptions(c *Config, change func(*server.Options)) {
	c.changes = append(slices.Clip(c.changes), func(options any) {
		if o, ok := options.(*server.Options); ok {
			change(o)
		}
	})
}

// withDefaults returns a copy in which every unset field has its default.
func (c Config) withDefaults() Config {
	c.ReadyTimeout = cmp.Or(c.ReadyTimeout, defaultReadyTimeout)
	c.ServerName = cmp.Or(c.ServerName, defaultServerName)
	c.Listen = c.Listen || c.Port != 0
	return c
}

// validate returns an error that names all mistakes in the configuration.
func (c Config) validate() error {
	return errors.Join(
		validate.If(c.Memory && c.Dir != "", "natsrun: Memory and Dir %q exclude each other: clear one", c.Dir),
		validate.If(c.Port < 0 || c.Port > maxPort, "natsrun: Port %d is not between 0 (any free port) and %d", c.Port, maxPort),
		validate.If(c.ReadyTimeout < 0, "natsrun: ReadyTimeout %s is negative", c.ReadyTimeout),
		validate.If(c.Users != nil && c.ConfigFile != "", "natsrun: Users and ConfigFile exclude each other: include the accounts in the file"))
}

const (
	loopback   = "127.0.0.1"
	randomPort = -1
	singleConf = "single.conf"
)

// serverOptions reads the configuration file and overrides the settings that belong to an embedded server: listener, store
// directory and name.
func serverOptions(cfg Config, storeDir string) (*server.Options, error) {
	opts, err := readConfig(cfg)
	if err != nil {
		return nil, err
	}
	opts.ServerName = cfg.ServerName
	opts.StoreDir = storeDir
	embed(opts)
	opts.DontListen = !cfg.Listen
	opts.Host = loopback
	opts.Port = cfg.Port
	if cfg.Port == 0 {
		opts.Port = randomPort
	}
	for _, change := range cfg.changes {
		change(opts)
	}
	return opts, nil
}

// embed turns off the ports for operators, and features that need a separate process.
func embed(opts *server.Options) {
	opts.DisableJetStreamBanner = true
	opts.HTTPHost, opts.HTTPPort, opts.HTTPSPort = "", 0, 0
	opts.LogFile, opts.PidFile, opts.PortsFileDir = "", "", ""
	opts.NoSigs = true
}

func readConfig(cfg Config) (*server.Options, error) {
	if cfg.ConfigFile != "" {
		opts, err := server.ProcessConfigFile(cfg.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("natsrun: read ConfigFile %s: %w", cfg.ConfigFile, err)
		}
		return opts, nil
	}
	text, err := configText(singleConf, cfg.Users)
	if err != nil {
		return nil, err
	}
	return parse(text, singleConf)
}

const (
	accountsConf = "accounts.conf"
	tlsConf      = "tls.conf"
	nkeyVariable = "NATS_NKEY_"
)

// configText returns the embedded configuration name as one text, without TLS,
// with accounts.conf and its variables if there are users. The variables are defined in the text and not in this process's environment,
// which all servers in the process share.
func configText(name string, users map[string]string, variables ...string) (string, error) {
	text, err := deploy.Text(name, accountsConf, tlsConf)
	if err != nil {
		return "", fmt.Errorf("natsrun: %w", err)
	}
	if users != nil {
		accounts, err := accountsText(users)
		if err != nil {
			return "", err
		}
		text += accounts
	}
	return strings.Join(variables, "\n") + "\n" + text, nil
}

// accountsText returns accounts.conf after the definitions of its variables.
func accountsText(users map[string]string) (string, error) {
	known, err := deploy.Variables(accountsConf)
	if err != nil {
		return "", fmt.Errorf("natsrun: %w", err)
	}
	keys := make(map[string]string, len(users))
	for name, nkey := range users {
		keys[nkeyVariable+strings.ToUpper(name)] = nkey
	}
	var b strings.Builder
	var mistakes []error
	for _, name := range known {
		mistakes = append(mistakes, validate.If(!nkeys.IsValidPublicUserKey(keys[name]), "natsrun: Users: %s is no public key of a user", name))
		b.WriteString(define(name, keys[name]) + "\n")
		delete(keys, name)
	}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		mistakes = append(mistakes, fmt.Errorf("natsrun: Users: %s has no user for %s", accountsConf, name))
	}
	if err := errors.Join(mistakes...); err != nil {
		return "", err
	}
	accounts, err := deploy.Text(accountsConf)
	if err != nil {
		return "", fmt.Errorf("natsrun: %w", err)
	}
	return b.String() + accounts, nil
}

// define returns the line that gives a variable a value.
func define(name, value string) string { return fmt.Sprintf("%s: %q", name, value) }

// parse reads a whole configuration text with the server's own parser.
func parse(text, name string) (*server.Options, error) {
	opts := &server.Options{}
	if err := opts.ProcessConfigString(text); err != nil {
		return nil, fmt.Errorf("natsrun: embedded %s: %w", name, err)
	}
	return opts, nil
}

var (
	// ErrDirInUse is returned when another server, in this process or in any other of the machine, has locked the store
	// directory. Two servers on one directory would destroy each other's streams.
	ErrDirInUse = errors.New("natsrun: store directory is in use")

	// ErrDirUnusable is returned when the store directory cannot be created or written. The cause is wrapped too (for
	// example os.ErrPermission).
	ErrDirUnusable = errors.New("natsrun: store directory cannot be used")

	// ErrNoLeader is returned when no node leads the stream, because it does not
	// exist or because the nodes have not elected one.
	ErrNoLeader = errors.New("natsrun: stream has no leader")

	// ErrNoNodeMain is returned when a program that has not called NodeMain starts a cluster: its child processes would
	// run the whole program instead of a node.
	ErrNoNodeMain = errors.New("natsrun: NodeMain was not called")

	// ErrNotReady is returned when a server or a cluster did not become ready in time. The message has the missing
	// condition.
	ErrNotReady = errors.New("natsrun: not ready in time")

	// ErrPortInUse is returned when another program listens on the requested port.
	ErrPortInUse = errors.New("natsrun: port is in use")

	// ErrStopped is returned by operations on a server that is stopped, and by
	// in-process connections while it restarts.
	ErrStopped = errors.New("natsrun: server is stopped")
)
