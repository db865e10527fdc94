package natsrun

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	defaultReadyTimeout = 10 * time.Second
	defaultServerName   = "expediter"
	maxPort             = 65535
)

// Config says how one embedded server runs. The zero value is a server without
// a network listener whose store is a temporary directory.
type Config struct {
	// ConfigFile is the path of a server configuration that is used in place of
	// the embedded single.conf. Its listeners and its store directory are still
	// decided by this Config. Defaults to "", the embedded single.conf.
	ConfigFile string

	// Dir is where JetStream keeps its files. It is created if need be, locked
	// against a second server, and kept by Stop. Defaults to "", a temporary
	// directory that Stop removes.
	Dir string

	// Listen opens a TCP listener on 127.0.0.1. In-process connections work
	// with and without it. Defaults to false.
	Listen bool

	// Logger receives what the server logs. Defaults to nil, which discards it;
	// what prevents a start is part of the error in any case.
	Logger *slog.Logger

	// Memory puts the temporary directory on a RAM file system where there is
	// one with room (/dev/shm). File streams then work as ever, survive Restart
	// and never wait for a disk. It excludes Dir. Defaults to false.
	Memory bool

	// Port is the TCP port to listen on; anything but 0 implies Listen. The
	// port stays the same over Restart. Defaults to 0, one that is free.
	Port int

	// ReadyTimeout bounds how long Start and Restart wait for the server; one
	// with a large store needs longer to recover it. Defaults to 10 seconds.
	ReadyTimeout time.Duration

	// ServerName is the name that the server shows. Defaults to "expediter".
	ServerName string

	// Users turns accounts.conf on: the public nkey ("U...") of each of its
	// users, by name: admin, enricher, importer, notifier, publisher, sys. All
	// must be there. Clients then authenticate, with nats.Nkey for instance, and
	// may do what production lets them. Defaults to nil: no users, all allowed.
	Users map[string]string

	// changes are those of ChangeOptions. Each takes a *server.Options.
	changes []func(options any)
}

// ChangeOptions has change work on the server's options at the very end, after
// everything in c has been applied, and after earlier changes. It runs once;
// Restart uses the same options.
//
// It is no field of Config, because every package that sees a Config would then
// compile the generic types of the server anew.
func ChangeOptions(c *Config, change func(*server.Options)) {
	c.changes = append(slices.Clip(c.changes), func(options any) {
		if o, ok := options.(*server.Options); ok {
			change(o)
		}
	})
}

// withDefaults returns a copy in which every unset field has its default.
func (c Config) withDefaults() Config {
	if c.ReadyTimeout == 0 {
		c.ReadyTimeout = defaultReadyTimeout
	}

	if c.ServerName == "" {
		c.ServerName = defaultServerName
	}

	c.Listen = c.Listen || c.Port != 0

	return c
}

// validate reports everything that is wrong with the configuration at once.
func (c Config) validate() error {
	var errs []error

	if c.Memory && c.Dir != "" {
		errs = append(errs, fmt.Errorf("natsrun: Memory and Dir %q exclude each other: clear one", c.Dir))
	}

	if c.Port < 0 || c.Port > maxPort {
		errs = append(errs, fmt.Errorf("natsrun: Port %d is not between 0 (any free port) and %d", c.Port, maxPort))
	}

	if c.ReadyTimeout < 0 {
		errs = append(errs, fmt.Errorf("natsrun: ReadyTimeout %s is negative", c.ReadyTimeout))
	}

	if c.Users != nil && c.ConfigFile != "" {
		errs = append(errs, errors.New("natsrun: Users and ConfigFile exclude each other: include the accounts in the file"))
	}

	return errors.Join(errs...)
}
