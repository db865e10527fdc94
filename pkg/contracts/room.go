package contracts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The server's errors for a stream that does not fit, beside those that nats.go has.
const (
	codeNoPeers      jetstream.ErrorCode = 10005 // in a cluster: no node is fit, and the text says why
	codeStoreFull    jetstream.ErrorCode = 10047
	codeStreamTooBig jetstream.ErrorCode = 10122
)

// RoomError is returned for a stream whose size a limit of its account, or of the server, has no room for. The stream stays as it
// is.
type RoomError struct {
	// Stream is the name of the stream.
	Stream string
	// Size is how many bytes were to be reserved for it.
	Size int64
	// Limit is the setting of the server that is too small: "disk_max_stream_bytes" or "max_file" of the account, or
	// "max_file_store".
	Limit string
	// Most is its value in bytes, 0 where the server does not say.
	Most int64
	// Cause is the server's error.
	Cause error
}

// Error names the stream, its size, the limit, and what to do.
func (e *RoomError) Error() string {
	limit := e.Limit + " of the server"
	if e.Limit != "max_file_store" {
		limit = e.Limit + " of the account"
	}
	if e.Most > 0 {
		limit += fmt.Sprintf(", which is %d", e.Most)
	}
	return fmt.Sprintf("there is no room for a size of %d bytes in %s: raise it in the server's configuration and restart the server, "+
		"or reserve less (MaxBytes, --max-bytes): %v", e.Size, limit, e.Cause)
}

// Unwrap returns the server's error.
func (e *RoomError) Unwrap() error { return e.Cause }

// explain returns a *RoomError when the server had no room for a stream, and other errors as they are. One round trip for those of
// an account.
func explain(ctx context.Context, js jetstream.StreamManager, want jetstream.StreamConfig, err error) error {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return err
	}
	room := &RoomError{Stream: want.Name, Size: want.MaxBytes, Limit: "max_file_store", Cause: err}
	switch api.ErrorCode {
	case codeNoPeers:
		if !strings.Contains(api.Description, "insufficient storage") {
			return err
		}
	case codeStreamTooBig:
		room.Limit, room.Most = "disk_max_stream_bytes", limits(ctx, js).StoreMaxStreamBytes
	case codeStoreFull:
		if most := limits(ctx, js).MaxStore; most > 0 {
			room.Limit, room.Most = "max_file", most
		}
	default:
		return err
	}
	return room
}

// limitsWait is how long to wait for the limits of an account, whatever the try that failed has left.
const limitsWait = 5 * time.Second

// limits returns those of the account, zeros where the server does not say.
func limits(ctx context.Context, js jetstream.StreamManager) jetstream.AccountLimits {
	all, ok := js.(interface {
		AccountInfo(ctx context.Context) (*jetstream.AccountInfo, error)
	})
	if !ok {
		return jetstream.AccountLimits{}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limitsWait)
	defer cancel()
	info, err := all.AccountInfo(ctx)
	if err != nil {
		return jetstream.AccountLimits{}
	}
	return info.Limits
}
