package kvrecord

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/internal/inbox"
	"github.com/expediter-io/expediter/pkg/internal/jsapi"
)

var (
	// ErrConflict is returned when the subject does not hold the record that the write was to replace. The error of Put is a
	// [*ConflictError].
	ErrConflict = errors.New("another record is there")

	// ErrUnavailable is returned when the stream did not answer in time, does not exist, or stores nothing for now. The
	// write may have been stored.
	ErrUnavailable = errors.New("the stream does not answer, or stores nothing for now")

	// ErrFull is returned, beside ErrUnavailable, when the stream, its account or the server is at its limit: an operator
	// has to remove records or to raise the limit. The write was not stored.
	ErrFull = errors.New("the stream is full")

	// ErrTooLarge is returned when the record is larger than the server or the stream accepts. The write was not stored.
	ErrTooLarge = errors.New("the record is too large")

	// ErrClosed is returned when the Client was closed. A write that was under way then may have been stored.
	ErrClosed = errors.New("the client of records is closed")
)

// ConflictError is returned when the subject does not hold the record that a write was to replace.
type ConflictError struct {
	// Found is the record that is there, as the stream's leader has it. Its Revision is 0 when there is none.
	Found Record

	// Unknown reports whether the write may have been stored all the same, and replaced or removed since: its
	// acknowledgement did not come, and the record that is there does not show it.
	Unknown bool
}

// Error names the subject and the revision that was found.
func (e *ConflictError) Error() string {
	if e.Found.Revision == 0 {
		return e.Found.Subject + ": the record to be replaced is gone"
	}
	return fmt.Sprintf("%s: %v, at revision %d", e.Found.Subject, ErrConflict, e.Found.Revision)
}

// Is reports whether target is ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// isPermanent reports whether the same request cannot succeed a moment later.
func isPermanent(err error) bool { return errors.Is(err, inbox.ErrClosed) || jsapi.IsPermanent(err) }

// refused explains the error of an operation's last request: what the server answered, or, like failed, why no answer came.
func (s *Stream) refused(ctx context.Context, op string, err error) error {
	switch {
	case jsapi.IsTooLarge(err):
		return fmt.Errorf("kvrecord: %s in stream %s: %w: %w", op, s.name, ErrTooLarge, err)
	case jsapi.IsRefused(err):
		return fmt.Errorf("kvrecord: %s in stream %s: %w: %w", op, s.name, ErrConflict, err)
	case jsapi.IsFull(err):
		return fmt.Errorf("kvrecord: %s in stream %s: %w: %w: %w", op, s.name, ErrFull, ErrUnavailable, err)
	case isPermanent(err) && jsapi.IsAnswer(err) && !jsapi.IsNoStream(err):
		return fmt.Errorf("kvrecord: %s in stream %s: %w", op, s.name, err)
	default:
		return s.failed(ctx, op, err)
	}
}

// failed explains the error after which an operation was given up: the end of the Client or of ctx, or the server.
func (s *Stream) failed(ctx context.Context, op string, err error) error {
	op = fmt.Sprintf("kvrecord: %s in stream %s", op, s.name)
	switch {
	case s.ended.Err() != nil, errors.Is(err, inbox.ErrClosed):
		return fmt.Errorf("%s: %w", op, ErrClosed)
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("%s: %w: %w", op, context.Cause(ctx), err)
	}
	// The server leaves a request that is not permitted unanswered, and reports the refusal to the connection.
	if last := s.nc.LastError(); errors.Is(last, nats.ErrPermissionViolation) {
		err = fmt.Errorf("%w (the connection's last error: %w)", err, last)
	}
	return fmt.Errorf("%s: %w: %w", op, ErrUnavailable, err)
}
