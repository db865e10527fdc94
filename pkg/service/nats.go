package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
)

const (
	// pingEvery and pingsLost say how soon a connection counts as dead on which nothing arrives: when the third ping has gone
	// unanswered as long. A server whose machine is gone says no farewell, and the client's own bound is six minutes.
	pingEvery = 5 * time.Second
	pingsLost = 2
)

// DefaultURL is where NATS is looked for when nothing else is said.
const DefaultURL = "nats://127.0.0.1:4222"

// NATS says how a service connects.
type NATS struct {
	// CA is a file with the certificates of the authorities that the server's is checked against. Defaults to those of
	// the system.
	CA string

	// Creds is a file with credentials. Defaults to none.
	Creds string

	// Logger gets what goes wrong on the connection. Required.
	Logger *slog.Logger

	// Name is the service's. Required.
	Name string

	// Nkey is a file with an nkey seed. Defaults to none.
	Nkey string

	// URL is where the server is. Required.
	URL string
}

// Connect returns a connection that comes back for as long as it is not closed. Answers arrive under _INBOX_<name>, which
// is what the permissions in deploy/nats let a service subscribe to.
func (cfg NATS) Connect() (*nats.Conn, error) {
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(cfg.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("%s: connect to %s: %w (is the server running? set NATS_URL)", cfg.Name, cfg.URL, err)
	}
	return nc, nil
}

func (cfg NATS) options() ([]nats.Option, error) {
	options := []nats.Option{
		nats.Name(cfg.Name), nats.MaxReconnects(-1), nats.CustomInboxPrefix("_INBOX_" + cfg.Name), nats.PermissionErrOnSubscribe(true),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(pingsLost),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			cfg.Logger.Error(cfg.Name+": NATS", "error", err) //nolint:sloglint // begins with the service's name
		}),
	}
	if cfg.Creds != "" {
		options = append(options, nats.UserCredentials(cfg.Creds))
	}
	if cfg.CA != "" {
		options = append(options, nats.RootCAs(cfg.CA))
	}
	if cfg.Nkey != "" {
		nkey, err := nats.NkeyOptionFromSeed(cfg.Nkey)
		if err != nil {
			return nil, fmt.Errorf("%s: NATS_NKEY: %w", cfg.Name, err)
		}
		options = append(options, nkey)
	}
	return options, nil
}

// Assets are the streams and buckets that a service works with.
type Assets struct {
	// Create makes all that is declared, when it is missing. Defaults to false: it is checked.
	Create bool

	// Logger gets what is set otherwise than declared. Required.
	Logger *slog.Logger

	// Name is the service's. Required.
	Name string

	// Options say how Create stores them.
	Options contracts.AssetOptions

	// Streams are the names of those that the service works with. A bucket's is "KV_" and its name.
	Streams []string
}

// Prepare makes the streams and buckets, or checks those that the service works with: one that is missing is an error,
// one that is set otherwise than declared is logged.
func (a Assets) Prepare(ctx context.Context, js jetstream.JetStream) error {
	all := contracts.Assets(a.Options)
	if a.Create {
		if _, err := contracts.Apply(ctx, js, all, contracts.ApplyOptions{}); err != nil {
			return fmt.Errorf("%s: create streams and buckets: %w", a.Name, err)
		}
		return nil
	}
	ours := slices.DeleteFunc(all, func(c jetstream.StreamConfig) bool { return !slices.Contains(a.Streams, c.Name) })
	differences, err := contracts.Check(ctx, js, ours)
	if err != nil {
		return fmt.Errorf("%s: check streams and buckets: %w", a.Name, err)
	}
	var missing []error
	for _, d := range differences {
		if d.Missing {
			missing = append(missing, fmt.Errorf("%s: stream %s is missing: have an administrator make it, or set %s_CREATE_ASSETS",
				a.Name, d.Stream, strings.ToUpper(a.Name)))
			continue
		}
		a.Logger.WarnContext(ctx, a.Name+": a stream is not as declared", "difference", d) //nolint:sloglint // begins with the service's name
	}
	return errors.Join(missing...)
}
