package service

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/contracts"
)

const (
	// With pingEvery and pingsLost a silent connection counts as dead when the third ping has gone unanswered for pingEvery. A server whose
	// machine is gone does not close its connections, and the client's own bound is six minutes. This is soon enough for an alert within 30
	// seconds, of which Prometheus takes 20.
	pingEvery = 3 * time.Second
	pingsLost = 2
)

// connect returns a connection that reconnects until it is closed. Answers arrive under _INBOX_<name>, for which the permissions in
// deploy/nats allow subscriptions.
func (cfg BaseConfig) connect(name string) (*nats.Conn, error) {
	options, err := cfg.natsOptions(name)
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(cfg.NATSURL, options...)
	if err != nil {
		return nil, fmt.Errorf("%s: connect to %s: %w (is the server running? set NATS_URL)", name, redact.URL(cfg.NATSURL), redact.Error(err))
	}
	return nc, nil
}

func (cfg BaseConfig) natsOptions(name string) ([]nats.Option, error) {
	options, err := cfg.Options()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	lines := newSparse()
	return append(options,
		nats.Name(name), nats.MaxReconnects(-1), nats.CustomInboxPrefix("_INBOX_"+name), nats.PermissionErrOnSubscribe(true),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if left, ok := lines.turn(); ok {
				cfg.Logger.Error(name+": NATS", "error", err, "unlogged", left)
			}
		}),
	), nil
}

// NATSConfig names a NATS server, and the files with which a client and the server authenticate each other. The files, except that of
// NATSNkey, are reread for each connection, so that they may be replaced.
type NATSConfig struct {
	// NATSCA is a file with the certificates of the authorities for the server's certificate. Defaults to those of the system.
	NATSCA string `env:"NATS_CA"`

	// NATSCert is a file with the client's certificate, for a server that verifies clients. Defaults to none.
	NATSCert string `env:"NATS_CERT"`

	// NATSCreds is a file with credentials. Defaults to none.
	NATSCreds string `env:"NATS_CREDS"`

	// NATSKey is a file with the key of NATSCert. Defaults to none.
	NATSKey string `env:"NATS_KEY"`

	// NATSNkey is a file with an nkey seed, which is read once. Defaults to none.
	NATSNkey string `env:"NATS_NKEY"`

	// NATSURL is the address of the server. Defaults to nats://127.0.0.1:4222.
	NATSURL string `env:"NATS_URL"`
}

// Options returns the options of a client that gives up a connection on which nothing arrives for 12 seconds. The error names every file
// that cannot be used, with its environment variable.
func (cfg NATSConfig) Options() ([]nats.Option, error) {
	options := []nats.Option{refuseAuthorities, nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(pingsLost)}
	var errs []error
	use := func(variable string, option nats.Option) {
		if err := option(&nats.Options{}); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", variable, err))
		}
		options = append(options, option)
	}
	if cfg.NATSCreds != "" {
		use("NATS_CREDS", nats.UserCredentials(cfg.NATSCreds))
	}
	if cfg.NATSCA != "" {
		use("NATS_CA", nats.RootCAs(cfg.NATSCA))
	}
	switch {
	case cfg.NATSCert != "" && cfg.NATSKey != "":
		use("NATS_CERT, NATS_KEY", nats.ClientCert(cfg.NATSCert, cfg.NATSKey))
	case cfg.NATSCert != "" || cfg.NATSKey != "":
		errs = append(errs, fmt.Errorf("NATS_CERT is %q and NATS_KEY %q: want two files, or neither", cfg.NATSCert, cfg.NATSKey))
	}
	if cfg.NATSNkey != "" {
		nkey, err := nkeyOption(cfg.NATSNkey)
		if err != nil {
			errs = append(errs, fmt.Errorf("NATS_NKEY: %w", err))
		}
		options = append(options, nkey)
	}
	return options, errors.Join(errs...)
}

// AuthorityError is returned for a server whose certificate is one of an authority. Whoever holds the key of such a certificate can make
// others, and pose as any server.
type AuthorityError struct {
	// Subject is the subject of the certificate.
	Subject string
}

// Error implements error.
func (e *AuthorityError) Error() string {
	return fmt.Sprintf("the certificate of the server (%s) is one of an authority: "+
		"make one with basicConstraints CA:FALSE, as deploy/nats/README.md says", e.Subject)
}

// refuseAuthorities is the option of a client that has no server with the certificate of an authority.
func refuseAuthorities(o *nats.Options) error {
	if o.TLSConfig == nil {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS13}
	}
	o.TLSConfig.VerifyConnection = func(state tls.ConnectionState) error {
		if server := state.PeerCertificates[0]; IsAuthority(server) {
			return &AuthorityError{Subject: server.Subject.String()}
		}
		return nil
	}
	return nil
}

// IsAuthority reports whether other certificates can be made with this one.
func IsAuthority(c *x509.Certificate) bool {
	return c.IsCA || c.KeyUsage&x509.KeyUsageCertSign != 0
}

// nkeyOption returns the option that signs with the present seed in a file. [nats.NkeyOptionFromSeed] would read the file again to sign,
// but use the former public key.
func nkeyOption(path string) (nats.Option, error) {
	data, err := private.ReadFile(path, private.MaxPEM)
	if err != nil {
		return nil, err
	}
	pair, err := nkeys.ParseDecoratedNKey(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	public, err := pair.PublicKey()
	return nats.Nkey(public, pair.Sign), err
}

// prepare checks the named streams and buckets. With CreateAssets it makes missing ones; otherwise a missing one is an error. A difference
// from the declaration is logged, unless the setting is larger than declared. Existing streams and buckets stay as they are.
func (cfg BaseConfig) prepare(ctx context.Context, js jetstream.JetStream, name string, streams []string) error {
	all := contracts.Assets(contracts.AssetOptions{MaxBytes: cfg.MaxBytes, Replicas: cfg.Replicas, Storage: cfg.Storage})
	ours := slices.DeleteFunc(all, func(c jetstream.StreamConfig) bool { return !slices.Contains(streams, c.Name) })
	changes, err := provision.Apply(ctx, js, ours, provision.Options{CreateOnly: true, DryRun: !cfg.CreateAssets})
	if err != nil {
		return fmt.Errorf("%s: prepare streams and buckets: %w", name, err)
	}
	var missing []error
	for _, c := range changes {
		if c.Action == provision.Create {
			if !cfg.CreateAssets {
				missing = append(missing, fmt.Errorf("%s: stream %s is missing: have an administrator run expediter apply, or set %s_CREATE_ASSETS",
					name, c.Stream, strings.ToUpper(name)))
			}
			continue
		}
		for _, d := range c.Differences {
			if d.Shrinks {
				continue // an administrator has made the stream larger, or given it more replicas
			}
			cfg.Logger.WarnContext(ctx, name+": a stream is not as declared",
				"stream", d.Stream, "setting", d.Field, "is", d.Got, "declared", d.Want)
		}
	}
	return errors.Join(missing...)
}
