package kv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/internal/partition"
)

// MarkRestored makes the generation of a bucket greater than all earlier ones, and then the generations of its partitions. Two round trips
// for each partition.
func MarkRestored(ctx context.Context, js jetstream.JetStream, bucket string) error {
	if err := markRestored(ctx, js, bucket); err != nil {
		return fmt.Errorf("kvlock: mark bucket %q as restored: %w", bucket, err)
	}
	return nil
}

// markRestored marks a bucket or a partition. Partitions are marked after the first, so that their tokens are greater: keys move from the
// first to others. A partition that is restored after the first is marked by itself.
func markRestored(ctx context.Context, js jetstream.JetStream, bucket string) error {
	info, err := infoOf(ctx, js, bucket)
	if err != nil {
		return err
	}
	if partition.Is(info.Config) {
		least := uint64(0)
		first, err := infoOf(ctx, js, bucket[:strings.LastIndexByte(bucket, '-')])
		switch {
		case err == nil:
			least = generationOf(first)
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			return err
		}
		_, err = markGeneration(ctx, js, info, least)
		return err
	}
	least, err := markGeneration(ctx, js, info, 0)
	for p := 1; err == nil && p < partition.Count(info.Config); p++ {
		var part *jetstream.StreamInfo
		switch part, err = infoOf(ctx, js, partition.Name(bucket, p)); {
		case err == nil:
			_, err = markGeneration(ctx, js, part, least)
		case errors.Is(err, jetstream.ErrStreamNotFound):
			err = nil
		}
	}
	return err
}

// markGeneration gives a stream a generation above its earlier ones, and above that of another stream.
func markGeneration(ctx context.Context, js jetstream.JetStream, info *jetstream.StreamInfo, least uint64) (generation uint64, err error) {
	cfg := info.Config
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if cfg.Metadata == nil {
		cfg.Metadata = map[string]string{}
	}
	generation = max(generationOf(info)+1, least+1, uint64(max(0, time.Now().UnixNano())))
	cfg.Metadata[generationMetadata] = strconv.FormatUint(generation, 10)
	return generation, update(ctx, js, cfg)
}
