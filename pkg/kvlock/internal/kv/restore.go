package kv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/jsretry"
)

// MarkRestored makes the generation of a bucket greater than all earlier ones. Two round trips.
func MarkRestored(ctx context.Context, js jetstream.JetStream, bucket string) error {
	if err := markRestored(ctx, js, bucket); err != nil {
		return fmt.Errorf("kvlock: mark bucket %q as restored: %w", bucket, err)
	}
	return nil
}

func markRestored(ctx context.Context, js jetstream.JetStream, bucket string) error {
	var info *jetstream.StreamInfo
	// StreamInfo would try until the deadline, which operators seldom set.
	err := jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error {
		stream, err := js.Stream(ctx, StreamName(bucket))
		if err == nil {
			info = stream.CachedInfo()
		}
		return err //nolint:wrapcheck // below
	})
	if last := js.Conn().LastError(); errors.Is(err, jsretry.ErrNotReady) && errors.Is(last, nats.ErrPermissionViolation) {
		err = fmt.Errorf("%w (the connection's last error: %w)", err, last)
	}
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", StreamName(bucket), err)
	}
	cfg := info.Config
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if cfg.Metadata == nil {
		cfg.Metadata = map[string]string{}
	}
	generation := max(generationOf(info)+1, uint64(max(0, time.Now().UnixNano())))
	cfg.Metadata[generationMetadata] = strconv.FormatUint(generation, 10)
	err = jsretry.Do(ctx, jsretry.Wait, func(ctx context.Context) error {
		_, err := js.UpdateStream(ctx, cfg)
		return err //nolint:wrapcheck // below
	})
	if err != nil {
		return fmt.Errorf("update stream %s: %w", cfg.Name, err)
	}
	return nil
}
