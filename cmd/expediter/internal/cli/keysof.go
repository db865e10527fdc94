package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
)

// mostLimits is the largest number of keys of limits that are listed.
const mostLimits = 10_000

func newLimits(g *globals) *cobra.Command {
	f := &natsFlags{globals: g}
	return f.asking("limits [BUCKET]", f.limits)
}

// limitRow is a key of a limit in a list.
type limitRow struct {
	Limit  string         `json:"limit"`
	Key    string         `json:"key"`
	Held   map[string]int `json:"held"`
	Queue  []string       `json:"queue,omitempty"`
	Next   time.Time      `json:"next,omitzero"`
	Bucket string         `json:"bucket"`
}

func (f *natsFlags) limits(ctx context.Context, js jetstream.JetStream, buckets []string, format string) error {
	one := len(buckets) == 1
	if !one {
		buckets = []string{contracts.BucketJobs, contracts.BucketLocks}
	}
	out := f.rows(format, "LIMIT", "KEY", "HELD", "IN LINE", "NEXT", "BUCKET")
	for _, bucket := range buckets {
		all, total, err := kvlock.ListLimits(ctx, js, bucket, mostLimits)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound) && !one:
			continue
		case errors.Is(err, jetstream.ErrStreamNotFound):
			return fmt.Errorf("%w: bucket %s: %w", ErrNotFound, bucket, err)
		case err != nil:
			return err
		}
		for _, l := range all {
			held := 0
			for _, n := range l.Held {
				held += n
			}
			out.Add(limitRow{l.Name, l.Key, l.Held, l.Queue, l.Next, bucket}, l.Name, fmt.Sprintf("%.12s", l.Key), held,
				len(l.Queue), l.Next, bucket)
		}
		if total > len(all) {
			f.notef("%d of %d keys of bucket %s are listed.\n", len(all), total, bucket)
		}
	}
	return out.Close()
}

func newResults(g *globals) *cobra.Command {
	f := &natsFlags{globals: g}
	return f.asking("results [BUCKET]", f.results)
}

// results lists the buckets, or counts the results of one.
func (f *natsFlags) results(ctx context.Context, js jetstream.JetStream, args []string, format string) error {
	if len(args) == 0 {
		return f.listStreams(ctx, js, format, func(cfg jetstream.StreamConfig) bool { return strings.HasPrefix(cfg.Name, "KV_") })
	}
	bucket := args[0]
	results, err := flight.New(ctx, js, flight.Config{Bucket: bucket, Logger: f.logger, OpTimeout: f.timeout})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fmt.Errorf("%w: bucket %s: %w", ErrNotFound, bucket, err)
	}
	if err != nil {
		return err
	}
	defer results.Close()
	s, err := results.Survey(ctx, "")
	if err != nil {
		return err
	}
	out := f.rows(format, "BUCKET", "DONE", "PENDING", "FAILED", "BYTES", "END IN A DAY", "OLDEST")
	row := struct {
		Bucket   string    `json:"bucket"`
		Done     int       `json:"done"`
		Pending  int       `json:"pending"`
		Failed   int       `json:"failed"`
		Bytes    int64     `json:"bytes"`
		Expiring int       `json:"expiring"`
		Oldest   time.Time `json:"oldest,omitzero"`
	}{bucket, s.Done, s.Pending, s.Failed, s.Bytes, s.Expiring, s.Oldest}
	out.Add(row, bucket, s.Done, s.Pending, s.Failed, s.Bytes, s.Expiring, s.Oldest)
	return out.Close()
}
