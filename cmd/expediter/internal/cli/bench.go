package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/cmd/expediter/internal/measure"
	"github.com/expediter-io/expediter/pkg/redact"
)

// benchFlags are the flags of bench.
type benchFlags struct {
	natsFlags

	callers  int
	format   string
	lasts    time.Duration
	replicas int
}

func newBench(g *globals) *cobra.Command {
	f := &benchFlags{natsFlags: natsFlags{globals: g}}
	cmd := &cobra.Command{
		Use:       "bench [PART...]",
		Args:      cobra.OnlyValidArgs,
		ValidArgs: measure.Parts(),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := f.usage(checkReplicas(f.replicas),
				refuse(f.callers < 1 || f.callers > 4096, "--callers %d: want 1 to 4096", f.callers),
				refuse(f.lasts <= 0, "--for %s: want a positive duration", f.lasts))
			if err != nil {
				return err
			}
			if len(args) == 0 {
				args = measure.Parts()
			}
			return f.bench(cmd.Context(), args)
		},
	}
	flags := cmd.Flags()
	f.register(flags)
	flags.IntVar(&f.callers, "callers", 64, "operations under way at a time")
	flags.DurationVar(&f.lasts, "for", 3*time.Second, "how long each operation is done")
	flags.IntVar(&f.replicas, "replicas", 1, "servers that keep each stream: 1, 3 or 5")
	f.outputFlag(cmd, &f.format, listFormats...)
	return cmd
}

func (f *benchFlags) bench(ctx context.Context, parts []string) error {
	server, opts, err := f.options(ctx, "expediter bench")
	if err != nil {
		return err
	}
	venues, err := openCatalog("")
	if err != nil {
		return err
	}
	out := f.rows(f.format, "PART", "OPERATION", "CALLERS", "A SECOND", "P50 MS", "P99 MS", "CPU µS")
	connect := func(more ...nats.Option) (*nats.Conn, error) {
		nc, err := nats.Connect(server, slices.Concat(opts, more)...)
		if err != nil {
			return nil, fmt.Errorf("%w: NATS at %s: %w (set --server or NATS_URL)", errUnavailable, redact.URL(server), redact.Error(err))
		}
		return nc, nil
	}
	err = f.describe(connect)
	if err == nil {
		err = measure.Run(ctx, measure.Config{
			Callers: f.callers, Connect: connect, Lasts: f.lasts, Parts: parts,
			Logger:   slog.New(slog.DiscardHandler), // it would only warn about small streams; a failed operation ends the command
			Provider: venues, Replicas: f.replicas,
			Each: func(r measure.Row) error {
				ms := func(micros float64) string { return fmt.Sprintf("%.2f", micros/1000) }
				return out.Write(r, r.Part, r.Operation, strconv.Itoa(r.Callers), fmt.Sprintf("%.0f", r.PerSecond), ms(r.P50), ms(r.P99),
					fmt.Sprintf("%.0f", r.CPU))
			},
		})
	}
	return errors.Join(err, out.Close())
}

// describe describes the servers that are measured.
func (f *benchFlags) describe(connect func(...nats.Option) (*nats.Conn, error)) error {
	nc, err := connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	trip, err := nc.RTT()
	if err != nil {
		return fmt.Errorf("ask the server: %w", err)
	}
	f.notef("Server %s, cluster %s, version %s, messages of up to %d KiB, %s for a round trip; streams on %d servers.\n",
		nc.ConnectedServerName(), cmp.Or(nc.ConnectedClusterName(), "none"), nc.ConnectedServerVersion(), nc.MaxPayload()>>10,
		trip.Round(time.Microsecond), f.replicas)
	return nil
}
