package redact

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

const (
	maxText   = 64 << 10 // bounds the text of a value, in bytes
	maxQuoted = 128      // bounds a quoted text, in bytes
	maxErrors = 1000     // bounds the errors of one tree, which may lead back to its root
)

// Quote returns text in quotes, for an error or a log. It clips a long text, and adds its length.
func Quote(text string) string {
	if len(text) <= maxQuoted {
		return strconv.Quote(text)
	}
	return fmt.Sprintf("%q… (%d bytes)", text[:maxQuoted], len(text))
}

// Value returns the text of a value: of an error, of a [fmt.Stringer], of a text or a number. Of all others it returns the type, because
// they may contain themselves.
func Value(v any) string { return text(v, 2) }

// text names the panic of v's method in the text, and the panics within for as many levels.
func text(v any, levels int) (s string) {
	defer func() {
		if p := recover(); p != nil {
			s = fmt.Sprintf("%T without a text", v)
			if levels > 0 {
				s += ": " + text(p, levels-1)
			}
		}
	}()
	switch kind := reflect.ValueOf(v).Kind(); v := v.(type) {
	case error:
		s = v.Error()
	case fmt.Stringer:
		s = v.String()
	default:
		if s = fmt.Sprintf("%T", v); kind <= reflect.Complex128 || kind == reflect.String {
			s = fmt.Sprint(v)
		}
	}
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "…"
	}
	return s
}

// Safe returns an error with the text of err, which matches what err matches, but no nil pointer as an error. The methods of err and of
// the errors that it wraps are called under recover. A nil err stays nil.
func Safe(err error) error {
	if err == nil {
		return nil
	}
	t := &treeError{errors: []error{err}, text: Value(err)}
	for i := 0; i < len(t.errors) && len(t.errors) < maxErrors; i++ {
		t.errors = append(t.errors, unwrap(t.errors[i])...)
	}
	return t
}

// treeError is an error and the errors that it wraps, the outer before the inner.
type treeError struct {
	errors []error
	text   string
}

// Error implements error.
func (t *treeError) Error() string { return t.text }

// Is reports whether one of the errors is target.
func (t *treeError) Is(target error) bool {
	return t.some(func(err error) bool {
		if reflect.TypeOf(target).Comparable() && err == target {
			return true
		}
		matcher, ok := err.(interface{ Is(err error) bool })
		return ok && matcher.Is(target)
	})
}

// As sets target to the first of the errors that can be assigned to it, and is no nil pointer: the caller would use it.
func (t *treeError) As(target any) bool {
	empty := func(v reflect.Value) bool {
		return (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil()
	}
	return t.some(func(err error) bool {
		to, of := reflect.ValueOf(target).Elem(), reflect.ValueOf(err)
		if !empty(of) && of.Type().AssignableTo(to.Type()) {
			to.Set(of)
			return true
		}
		matcher, ok := err.(interface{ As(target any) bool })
		return ok && matcher.As(target) && !empty(to)
	})
}

// some reports whether one of the errors matches. An error that panics does not.
func (t *treeError) some(match func(error) bool) bool {
	safely := func(err error) (ok bool) {
		defer func() { ok = recover() == nil && ok }()
		return match(err)
	}
	return slices.ContainsFunc(t.errors, safely)
}

// unwrap returns the errors that err wraps; none when its method panics.
func unwrap(err error) (wrapped []error) {
	defer func() { _ = recover() }()
	switch err := err.(type) { //nolint:errorlint // of this error alone
	case interface{ Unwrap() error }:
		return slices.DeleteFunc([]error{err.Unwrap()}, isNil)
	case interface{ Unwrap() []error }:
		return slices.DeleteFunc(slices.Clone(err.Unwrap()), isNil)
	}
	return nil
}

func isNil(err error) bool { return err == nil }

// Catch logs the panic of a user's callback. Defer it.
func Catch(log *slog.Logger, callback string) {
	if v := recover(); v != nil {
		log.Error("callback panicked", "callback", callback, "panic", Value(v), "stack", string(debug.Stack()))
	}
}

// Logger returns a logger that writes to log. A panic of log's handler loses the line, and is reported to the standard error output.
func Logger(log *slog.Logger) *slog.Logger { return slog.New(handler{log.Handler()}) }

type handler struct{ slog.Handler }

// Enabled implements [slog.Handler].
func (h handler) Enabled(ctx context.Context, level slog.Level) bool {
	defer report()
	return h.Handler.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h handler) Handle(ctx context.Context, r slog.Record) error {
	defer report()
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return handler{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h handler) WithGroup(name string) slog.Handler { return handler{h.Handler.WithGroup(name)} }

func report() {
	if v := recover(); v != nil {
		fmt.Fprintf(os.Stderr, "the handler of a logger panicked: %s\n%s\n", Value(v), debug.Stack())
	}
}
