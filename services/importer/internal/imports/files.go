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

// FilesConfig configures how files are kept.
type FilesConfig struct {
	// Logger gets the errors that no caller receives. Defaults to slog.Default().
	Logger *slog.Logger

	// MaxBytes is the size limit of a file. Required.
	MaxBytes int64

	// TTL is the time for which a file is kept, in whole seconds. Required.
	TTL time.Duration
}

// Files keeps the files that clients send with jobs, so that any worker can read them: in the bucket of shared steps, by the SHA-256
// of the content, each once however often it is sent. It is a [source.Files], and safe for concurrent use. Close ends it.
type Files struct {
	cfg    FilesConfig
	flight *flight.Flight
}

var _ source.Files = (*Files)(nil)

// OpenFiles binds to the bucket. Two round trips.
func OpenFiles(ctx context.Context, js jetstream.JetStream, cfg FilesConfig) (*Files, error) {
	results, err := flight.New(ctx, js, flight.Config{
		Bucket: contracts.BucketImportSteps, Logger: cfg.Logger, OpTimeout: fileTimeout, LargeValueBucket: contracts.ObjectsImportSteps,
	})
	if err != nil {
		return nil, fmt.Errorf("importer: open the files: %w", err)
	}
	return &Files{cfg: cfg, flight: results}, nil
}

// Close ends the store's work in the background.
func (s *Files) Close() { s.flight.Close() }

// Put keeps a file and returns its URL. A file that is sent again is stored again once half of its TTL has passed, so a client finds the
// file for at least that long. The error wraps contracts.ErrTooLarge for a file that is too large. Two round trips, one when the content
// is stored already.
func (s *Files) Put(ctx context.Context, name string, content []byte) (url string, err error) {
	if int64(len(content)) > s.cfg.MaxBytes {
		return "", s.tooLarge(len(content), nil)
	}
	file := contracts.NewFile(name, content)
	key, err := s.keyOf(file.Digest, s.period())
	if err != nil {
		return "", err
	}
	_, err = s.flight.Do(ctx, key, func(context.Context) ([]byte, error) { return content, nil },
		flight.DoOptions{TTL: s.cfg.TTL})
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
	return fmt.Errorf("%w: the file has %d bytes, at most %d are taken", contracts.ErrTooLarge, size, s.cfg.MaxBytes)
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
func (s *Files) period() int64 { return time.Now().UnixNano() / int64(s.cfg.TTL/2) }

// keyOf returns the key of a file that is stored in a period. Each period has its own key: a stored result cannot be prolonged, and
// replacing it would hide the file from readers in the meantime.
func (s *Files) keyOf(digest [sha256.Size]byte, period int64) (string, error) {
	key, err := contracts.ImportStepKey(hex.EncodeToString(digest[:]), fileStep+strconv.FormatInt(period, 10))
	if err != nil {
		return "", fmt.Errorf("importer: name a file: %w", err)
	}
	return key, nil
}
