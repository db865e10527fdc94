package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/expediter-io/expediter/cmd/expediter/internal/enrich"
	"github.com/expediter-io/expediter/cmd/expediter/internal/imports"
	"github.com/expediter-io/expediter/cmd/expediter/internal/notify"
	"github.com/expediter-io/expediter/pkg/worker/deadletter"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
)

// The exit codes. They are part of the command's interface and do not change.
const (
	// ExitOK says that everything was done.
	ExitOK = 0

	// ExitFailure says that something failed, or that a part of the input could not be used.
	ExitFailure = 1

	// ExitUsage says that the command line is wrong.
	ExitUsage = 2

	// ExitNotFound says that a file, a letter or a stream that was named does not exist.
	ExitNotFound = 3

	// ExitTimeout says that not everything was known in time, such as how an import ends.
	ExitTimeout = 4

	// ExitUnavailable says that a service did not answer or refused to work.
	ExitUnavailable = 5
)

// ErrNotFound is to be wrapped by a command that was asked about something that does not exist; it ends with
// ExitNotFound.
var ErrNotFound = errors.New("not found")

// errUnavailable is wrapped by a command that gets no answer of a server; the exit code is then ExitUnavailable.
var errUnavailable = errors.New("unavailable")

// UsageError is returned when the command line is wrong.
type UsageError struct {
	// Err is the mistake.
	Err error
}

// Error implements error.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *UsageError) Unwrap() error { return e.Err }

// usage returns a [UsageError] for the mistakes that are not nil, or nil.
func usage(mistakes ...error) error {
	if err := errors.Join(mistakes...); err != nil {
		return &UsageError{Err: err}
	}
	return nil
}

// refuse returns the mistake that the format says, if it was made.
func refuse(made bool, format string, args ...any) error {
	if made {
		return fmt.Errorf(format, args...)
	}
	return nil
}

// codeError ends a command with an exit code of its own.
type codeError struct {
	code int
	err  error // is reported unless it is nil
}

// Error implements error.
func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

// Unwrap returns the error that is reported.
func (e *codeError) Unwrap() error { return e.err }

// ExitCode returns the code that a command ends with when it returns err.
func ExitCode(err error) int {
	var usage *UsageError
	var own *codeError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &own):
		return own.code
	case errors.As(err, &usage):
		return ExitUsage
	case errors.Is(err, ErrNotFound), errors.Is(err, fs.ErrNotExist), errors.Is(err, deadletter.ErrNotFound),
		errors.Is(err, deadletter.ErrNoStream), errors.Is(err, imports.ErrNotFound),
		errors.Is(err, notify.ErrNotFound), errors.Is(err, inapp.ErrNotFound):
		return ExitNotFound
	case errors.Is(err, notify.ErrUnavailable): // also by its own deadline
		return ExitUnavailable
	case errors.Is(err, enrich.ErrTimeout), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errStillRunning),
		errors.Is(err, notify.ErrNotEnded):
		return ExitTimeout
	case errors.Is(err, enrich.ErrUnavailable), errors.Is(err, errUnavailable), errors.Is(err, imports.ErrUnavailable):
		return ExitUnavailable
	}
	return ExitFailure
}
