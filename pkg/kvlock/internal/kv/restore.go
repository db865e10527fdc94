package kv

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
)

// MarkRestored makes the generation of a bucket greater than all earlier ones. Two round trips.
func MarkRestored(ctx context.Context, js jetstream.JetStream, bucket string) error {
	look, cancel := context.WithTimeout(ctx, jsapi.RetryWait) // operators seldom set a deadline
	defer cancel()
	info, err := StreamInfo(look, js, bucket, StreamName(bucket), Maker)
	if err != nil {
		return err
	}
	cfg := info.Config
	cfg.Metadata = maps.Clone(cfg.Metadata)
	if cfg.Metadata == nil {
		cfg.Metadata = map[string]string{}
	}
	generation := max(generationOf(info)+1, uint64(max(0, time.Now().UnixNano())))
	cfg.Metadata[generationMetadata] = strconv.FormatUint(generation, 10)
	err = jsapi.Retry(ctx, jsapi.RetryWait, func(ctx context.Context) error {
		_, err := js.UpdateStream(ctx, cfg)
		return err
	})
	if err != nil {
		return fmt.Errorf("kvlock: mark bucket %q as restored: %w", bucket, err)
	}
	return nil
}
