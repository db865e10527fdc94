// Package cas keeps records in a bucket and changes them under the condition that nobody else did.
package cas

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	// ErrConflict is returned when the key was changed since it was read.
	ErrConflict = errors.New("importer: the record was changed by somebody else")

	// ErrUnavailable is returned when the bucket did not answer in time. A write may have been applied.
	ErrUnavailable = errors.New("importer: the bucket does not answer")
)

const (
	// tryTimeout bounds one request, so that a lost answer leaves time for another.
	tryTimeout = 2 * time.Second

	// opTimeout bounds one operation.
	opTimeout = 5 * time.Second
)

// Bucket is a KV bucket. Make it with [Open].
type Bucket struct {
	js   jetstream.JetStream
	name string
}

// Open binds to a bucket that exists. One round trip.
func Open(ctx context.Context, js jetstream.JetStream, name string) (*Bucket, error) {
	if _, err := js.KeyValue(ctx, name); err != nil {
		return nil, fmt.Errorf("importer: bind bucket %q: %w", name, err)
	}
	return &Bucket{js: js, name: name}, nil
}

// Entry is a record as it was read.
type Entry struct {
	// Revision is 0 when the key was never written. A key that was deleted has one all the same.
	Revision uint64

	// Value is empty when there is no record.
	Value []byte
}

// Get reads a key from the stream's leader. That there is none is no error. One round trip.
func (b *Bucket) Get(ctx context.Context, key string) (Entry, error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	body, err := json.Marshal(map[string]string{"last_by_subj": b.subject(key)})
	if err != nil {
		return Entry{}, fmt.Errorf("importer: encode request for a record: %w", err)
	}
	for {
		try, done := context.WithTimeout(ctx, tryTimeout)
		reply, err := b.js.Conn().RequestWithContext(try, jetstream.DefaultAPIPrefix+"STREAM.MSG.GET.KV_"+b.name, body)
		done()
		switch {
		case err == nil:
			return b.entry(key, reply.Data)
		case errors.Is(err, nats.ErrConnectionClosed):
			return Entry{}, fmt.Errorf("%w: read %s: %w", ErrUnavailable, key, err)
		case !pause(ctx):
			return Entry{}, fmt.Errorf("%w: read %s: %w", ErrUnavailable, key, errors.Join(err, context.Cause(ctx)))
		}
	}
}

func (b *Bucket) entry(key string, answer []byte) (Entry, error) {
	var got struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Data     []byte `json:"data"`
			Sequence uint64 `json:"seq"`
		} `json:"message"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return Entry{}, fmt.Errorf("importer: the server's answer about %s is not JSON: %w", key, err)
	}
	switch {
	case got.Error == nil:
		return Entry{Revision: got.Message.Sequence, Value: got.Message.Data}, nil
	case got.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return Entry{}, nil
	default:
		return Entry{}, fmt.Errorf("importer: read %s: %w", key, got.Error)
	}
}

// Put writes a record if the key is still at the revision, and returns the new one. ttl is how long the record lives, in
// whole seconds, 0 for ever. The value has to be one that nobody else writes: a write whose answer is lost, or that the
// server refuses though it was applied, is recognised by it. One round trip.
func (b *Bucket) Put(ctx context.Context, key string, value []byte, revision uint64, ttl time.Duration) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	options := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(revision)}
	if ttl > 0 {
		options = append(options, jetstream.WithMsgTTL(ttl))
	}
	for {
		try, done := context.WithTimeout(ctx, tryTimeout)
		ack, err := b.js.Publish(try, b.subject(key), value, options...)
		done()
		if err == nil {
			return ack.Sequence, nil
		}
		var api *jetstream.APIError
		if errors.As(err, &api) && !isConflict(api) {
			return 0, fmt.Errorf("importer: write %s: %w", key, err)
		}
		if errors.Is(err, nats.ErrMaxPayload) {
			return 0, fmt.Errorf("importer: write %s: %w", key, err)
		}
		if errors.Is(err, nats.ErrConnectionClosed) { // maybe after it was sent
			return 0, fmt.Errorf("%w: write %s: %w", ErrUnavailable, key, err)
		}
		found, getErr := b.Get(ctx, key)
		switch {
		case getErr != nil:
			return 0, fmt.Errorf("%w: write %s: %w", ErrUnavailable, key, errors.Join(err, getErr))
		case bytes.Equal(found.Value, value):
			return found.Revision, nil
		case found.Revision != revision:
			return 0, fmt.Errorf("%w: %s is at revision %d, not %d", ErrConflict, key, found.Revision, revision)
		case !pause(ctx):
			return 0, fmt.Errorf("%w: write %s: %w", ErrUnavailable, key, err)
		}
	}
}

func (b *Bucket) subject(key string) string { return "$KV." + b.name + "." + key }

// isConflict says that the server compared revisions and found another one. A replicated stream has a code of its own.
func isConflict(err *jetstream.APIError) bool {
	return err.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || err.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// pause waits a moment, and reports whether ctx is still there after it.
func pause(ctx context.Context) bool {
	timer := time.NewTimer(50 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
