package imports

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock/flight"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/services/importer/source"
)

const (
	// fileStep names a file among the shared steps. The number of a period follows it.
	fileStep = "file-v1-"

	// keptStep names the record of what an owner keeps among the shared steps.
	keptStep = "kept-v1"

	// keptShare is the part of the bucket, one of so many, that an owner gets, and keptEach counts for each value in addition to its bytes.
	keptShare, keptEach = 4, 1 << 10

	// fileTimeout bounds one operation on the bucket: a file is up to 8 MiB.
	fileTimeout = 10 * time.Second
)

// errShare is returned for a value that is not kept because its owner keeps enough.
var errShare = errors.New("importer: the owner keeps as many files as one owner may")

// isShare reports whether a value was not kept because of its owner, which may be that of a job in another process.
func isShare(err error) bool {
	failed, ok := errors.AsType[*flight.FailedError](err)
	return errors.Is(err, errShare) || ok && strings.HasPrefix(failed.Reason, errShare.Error())
}

// Files keeps the files that clients send with jobs, so that any worker can read them: in the bucket of shared steps, by the SHA-256
// of the content, each once however often it is sent. It is a [source.Files], and safe for concurrent use. Close ends it.
type Files struct {
	flight   *flight.Flight
	maxBytes int64
	records  *kvrecord.Stream
	share    int64 // bytes
	ttl      time.Duration
}

var _ source.Files = (*Files)(nil)

// OpenFiles binds to the bucket. A file has at most maxBytes, and is kept for ttl, in whole seconds. Three round trips.
func OpenFiles(ctx context.Context, js jetstream.JetStream, logger *slog.Logger, maxBytes int64, ttl time.Duration) (*Files, error) {
	results, err := flight.New(ctx, js, flight.Config{
		Bucket: contracts.BucketImportSteps, Logger: logger, OpTimeout: fileTimeout, LargeValueBucket: contracts.ObjectsImportSteps,
	})
	if err != nil {
		return nil, fmt.Errorf("importer: open the files: %w", err)
	}
	var large jetstream.Stream
	var records *kvrecord.Client
	err = jsapi.Retry(ctx, jsapi.RetryWait, func(ctx context.Context) (err error) {
		large, err = js.Stream(ctx, "OBJ_"+contracts.ObjectsImportSteps)
		return err
	})
	if err == nil {
		records, err = kvrecord.New(kvrecord.Config{JetStream: js})
	}
	if err != nil {
		results.Close()
		return nil, fmt.Errorf("importer: open the files: %w", err)
	}
	room := large.CachedInfo().Config.MaxBytes
	if room <= 0 { // no bound
		room = 1 << 30
	}
	return &Files{
		flight: results, maxBytes: maxBytes, records: records.Bucket(contracts.BucketImportSteps),
		share: max(room/keptShare, 2*maxBytes), ttl: ttl,
	}, nil
}

// Close ends the store's work in the background.
func (s *Files) Close() {
	s.flight.Close()
	s.records.Close()
}

// Charge counts bytes that are about to be kept for an owner, over all instances. The record of the owner is the time at which the whole
// share is free again: what is used comes back evenly within the TTL, so an owner keeps two shares at most. The error wraps errShare when
// there is no room. Two round trips.
func (s *Files) Charge(ctx context.Context, ownerID string, size int) error {
	key, err := stepKey(ownerID, keptStep)
	if err != nil {
		return fmt.Errorf("importer: name an owner: %w", err)
	}
	over, err := s.records.Latest(ctx, s.records.Key(key))
	for err == nil {
		now, free := time.Now().UTC(), time.Time{}
		_ = free.UnmarshalText(over.Data) // there is none at first
		if free.Before(now) {
			free = now
		}
		free = free.Add(time.Duration(float64(s.ttl) * float64(size+keptEach) / float64(s.share)))
		used := free.Sub(now)
		if wait := used - s.ttl; wait > 0 {
			return fmt.Errorf("%w: %w", errShare, service.OverQuota("FILES",
				fmt.Sprintf("%d MiB, of which a part is free again with each hour: there is room for this file in %s",
					s.share>>20, wait.Round(time.Second)), wait))
		}
		_, err = s.records.Put(ctx, kvrecord.Write{
			Subject: over.Subject, Data: free.AppendFormat(nil, time.RFC3339Nano), Over: over, TTL: used.Truncate(time.Second) + time.Second,
		})
		conflict, ok := errors.AsType[*kvrecord.ConflictError](err)
		if !ok {
			break
		}
		over, err = conflict.Found, nil
	}
	if err != nil {
		return fmt.Errorf("importer: count what an owner keeps: %w", err)
	}
	return nil
}

// Put keeps a file of an owner and returns its URL. A file that is sent again is stored again once half of its TTL has passed, so a client
// finds the file for at least that long. The error wraps contracts.ErrTooLarge for a file that is too large, and errShare for one that is
// too much for its owner. Four round trips, one when the content is stored already.
func (s *Files) Put(ctx context.Context, ownerID, name string, content []byte) (url string, err error) {
	if int64(len(content)) > s.maxBytes {
		return "", fmt.Errorf("%w: the file has %d bytes, at most %d are taken", contracts.ErrTooLarge, len(content), s.maxBytes)
	}
	file := contracts.NewFile(name, content)
	key, err := s.keyOf(file.Digest, s.period())
	if err != nil {
		return "", err
	}
	var mine atomic.Bool
	_, err = s.flight.Do(ctx, key, func(ctx context.Context) ([]byte, error) {
		mine.Store(true)
		return content, s.Charge(ctx, ownerID, len(content))
	}, flight.DoOptions{TTL: s.ttl})
	switch {
	case isShare(err) && !mine.Load(): // of another owner, who sent the same file at the same moment
		return s.Put(ctx, ownerID, name, content)
	case isShare(err):
		return "", err
	case err != nil:
		return "", fmt.Errorf("%w: keep a file: %w", kvrecord.ErrUnavailable, err)
	}
	return file.URL(), nil
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
	key, err := stepKey(hex.EncodeToString(digest[:]), fileStep+strconv.FormatInt(period, 10))
	if err != nil {
		return "", fmt.Errorf("importer: name a file: %w", err)
	}
	return key, nil
}
