package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
)

const (
	// defaultURL is the address of a server on this machine.
	defaultURL = "nats://127.0.0.1:4222"

	// pingEvery and pingsLost say when a silent connection counts as dead: when the third ping has gone unanswered for
	// pingEvery. A server whose machine is gone closes nothing, and the client's own bound is six minutes.
	pingEvery = 5 * time.Second
	pingsLost = 2
)

// connect returns a connection that reconnects until it is closed. Answers arrive under _INBOX_<name>, the subjects that
// the permissions in deploy/nats let a service subscribe to.
func (cfg BaseConfig) connect(name string) (*nats.Conn, error) {
	options, err := cfg.natsOptions(name)
	if err != nil {
		return nil, err
	}
	nc, err := nats.Connect(cfg.NATSURL, options...)
	if err != nil {
		return nil, fmt.Errorf("%s: connect to %s: %w (is the server running? set NATS_URL)", name, cfg.NATSURL, err)
	}
	return nc, nil
}

func (cfg BaseConfig) natsOptions(name string) ([]nats.Option, error) {
	options := []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1), nats.CustomInboxPrefix("_INBOX_" + name), nats.PermissionErrOnSubscribe(true),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(pingsLost),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			cfg.Logger.Error(name+": NATS", "error", err) //nolint:sloglint // begins with the service's name
		}),
	}
	if cfg.NATSCreds != "" {
		options = append(options, nats.UserCredentials(cfg.NATSCreds))
	}
	if cfg.NATSCA != "" {
		options = append(options, nats.RootCAs(cfg.NATSCA))
	}
	if cfg.NATSNkey != "" {
		nkey, err := nats.NkeyOptionFromSeed(cfg.NATSNkey)
		if err != nil {
			return nil, fmt.Errorf("%s: NATS_NKEY: %w", name, err)
		}
		options = append(options, nkey)
	}
	return options, nil
}

// prepare makes those of the named streams and buckets that are missing, with CreateAssets, and checks the others: a missing one
// is an error, a difference from its declaration is logged. It changes none that is there.
func (cfg BaseConfig) prepare(ctx context.Context, js jetstream.JetStream, name string, streams []string) error {
	if cfg.CreateAssets {
		streams = append(slices.Clone(streams), contracts.StreamDead) // elsewhere the worker checks it: the permissions need not include it
	}
	all := contracts.Assets(contracts.AssetOptions{MaxBytes: cfg.MaxBytes, Replicas: cfg.Replicas, Storage: cfg.Storage})
	ours := slices.DeleteFunc(all, func(c jetstream.StreamConfig) bool { return !slices.Contains(streams, c.Name) })
	changes, err := contracts.Apply(ctx, js, ours, contracts.ApplyOptions{CreateOnly: true, DryRun: !cfg.CreateAssets})
	if err != nil {
		return fmt.Errorf("%s: prepare streams and buckets: %w", name, err)
	}
	var missing []error
	for _, c := range changes {
		if c.Action == contracts.ActionCreate {
			if !cfg.CreateAssets {
				missing = append(missing, fmt.Errorf("%s: stream %s is missing: have an administrator run expediter apply, or set %s_CREATE_ASSETS",
					name, c.Stream, strings.ToUpper(name)))
			}
			continue
		}
		for _, d := range c.Differences {
			cfg.Logger.WarnContext(ctx, name+": a stream is not as declared", "difference", d) //nolint:sloglint // begins with the service's name
		}
	}
	return errors.Join(missing...)
}
