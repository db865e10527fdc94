package imports

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/importer/source"
)

const (
	// fileStep names a file among the shared steps. The number of a period follows it.
	fileStep = "file-v1-"

	// fileTimeout bounds one operation on the bucket: a file is up to 8 MiB.
	fileTimeout = 10 * time.Second
)

// Files keeps the files that clients send with jobs, so that any worker can read them: in the bucket of shared steps, by the SHA-256
// of the content, each once however often it is sent. It is a [source.Files], and safe for concurrent use. Close ends it.
type Files struct {
	flight   *flight.Flight
	maxBytes int64
	ttl      time.Duration
}

var _ source.Files = (*Files)(nil)

// OpenFiles binds to the bucket. A file has at most maxBytes, and is kept for ttl, in whole seconds. Two round trips.
func OpenFiles(ctx context.Context, js jetstream.JetStream, logger *slog.Logger, maxBytes int64, ttl time.Duration) (*Files, error) {
	results, err := flight.New(ctx, js, flight.Config{
		Bucket: contracts.BucketImportSteps, Logger: logger, OpTimeout: fileTimeout, LargeValueBucket: contracts.ObjectsImportSteps,
	})
	if err != nil {
		return nil, fmt.Errorf("importer: open the files: %w", err)
	}
	return &Files{flight: results, maxBytes: maxBytes, ttl: ttl}, nil
}

// Close ends the store's work in the background.
func (s *Files) Close() { s.flight.Close() }

// Put keeps a file and returns its URL. A file that is sent again is stored again once half of its TTL has passed, so a client finds the
// file for at least that long. The error wraps contracts.ErrTooLarge for a file that is too large. Two round trips, one when the content
// is stored already.
func (s *Files) Put(ctx context.Context, name string, content []byte) (url string, err error) {
	if int64(len(content)) > s.maxBytes {
		return "", s.tooLarge(len(content), nil)
	}
	file := contracts.NewFile(name, content)
	key, err := s.keyOf(file.Digest, s.period())
	if err != nil {
		return "", err
	}
	_, err = s.flight.Do(ctx, key, func(context.Context) ([]byte, error) { return content, nil },
		flight.DoOptions{TTL: s.ttl})
	switch {
	case errors.Is(err, kvlock.ErrTooLarge):
		return "", s.tooLarge(len(content), err)
	case err != nil:
		return "", fmt.Errorf("%w: keep a file: %w", kvrecord.ErrUnavailable, err)
	}
	return file.URL(), nil
}

func (s *Files) tooLarge(size int, err error) error {
	if err != nil {
		return fmt.Errorf("%w: the file has %d bytes, more than the store takes at once: %w", contracts.ErrTooLarge, size, err)
	}
	return fmt.Errorf("%w: the file has %d bytes, at most %d are taken", contracts.ErrTooLarge, size, s.maxBytes)
}

// Get implements [source.Files]. One round trip.
func (s *Files) Get(ctx context.Context, digest [sha256.Size]byte) ([]byte, error) {
	var keys []string
	// A file is kept for two periods, so the last three may have it; the next one is that of a client whose clock is ahead.
	for period := s.period() - 2; period < s.period()+2; period++ {
		key, err := s.keyOf(digest, period)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	found, err := s.flight.GetMany(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("importer: read a file back: %w", err)
	}
	for _, entry := range found {
		if entry.State == flight.Done && sha256.Sum256(entry.Value) == digest {
			return entry.Value, nil
		}
	}
	return nil, fmt.Errorf("%w: %x", source.ErrNoFile, digest)
}

// period returns the number of the present period. A period is half of the TTL.
func (s *Files) period() int64 { return time.Now().UnixNano() / int64(s.ttl/2) }

// keyOf returns the key of a file that is stored in a period. Each period has its own key: a stored result cannot be prolonged, and
// replacing it would hide the file from readers in the meantime.
func (s *Files) keyOf(digest [sha256.Size]byte, period int64) (string, error) {
	key, err := contracts.ImportStepKey(hex.EncodeToString(digest[:]), fileStep+strconv.FormatInt(period, 10))
	if err != nil {
		return "", fmt.Errorf("importer: name a file: %w", err)
	}
	return key, nil
}
