package redact_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/redact"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"http://svc:hunter2@host:80/path?token=hunter2#x": "http://host:80/path", "nats://hunter2@host:4222": "nats://host:4222",
		"nats://a:hunter2@h1,nats://b:hunter2@h2": "nats://h2", "nats://h1,nats://h2": "nats://h1,nats://h2", "u:hunter2@host:4222": "host:4222",
		"nats://u:p/hunter2@host": "nats://host", "nats://u:p?hunter2@host?x": "nats://host", "http://host?key=hunter2": "http://host", "": "", "host": "host",
	} {
		check.Equal(t, redact.URL(text), want, fmt.Sprintf("%q became", text))
	}
}

func TestTextsAreBoundedAtCharacters(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, clipped, shortened string
		most                     int
	}{
		{"", "", "", 0},
		{"abc", "abc", "abc", 3},
		{"abcd", "abc", "abc…", 3},
		{"aéb", "a", "a…", 2},
		{"aéb", "aé", "aé…", 3},
		{"a\xffb", "ab", "a\xffb", 3},
		{"a\xffbc", "ab", "ab…", 3},
		{"…", "", "…", 2},
	} {
		check.Equal(t, redact.Clip(c.text, c.most), c.clipped, fmt.Sprintf("%q clipped to %d", c.text, c.most))
		check.Equal(t, redact.Shorten(c.text, c.most), c.shortened, fmt.Sprintf("%q shortened to %d", c.text, c.most))
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	parse := func(text string) error { _, err := url.Parse(text); return err }
	for name, err := range map[string]error{
		"a request":       &url.Error{Op: "Post", URL: "http://svc:hunter2@host/x?key=hunter2", Err: io.EOF},
		"one that fails":  fmt.Errorf("resolve: %w", &url.Error{Op: "Get", URL: "http://hunter2@host", Err: errors.New("proxy http://a:hunter2@proxy refused")}),
		"no URL":          parse("nats://u:hunter2/x@host"),
		"no URL, a space": parse("http://u:p hunter2@host"),
		"a text":          errors.New(`dial "nats://u:hunter2@host:4222": refused, https://h/?t=hunter2`),
	} {
		got := redact.Error(err)
		check.That(t, !strings.Contains(got.Error(), "hunter2") && errors.Is(got, err) && got.Error() != "", "%s: %v", name, got)
	}
	check.That(t, redact.Error(nil) == nil, "nil became an error")
}

// failure is an error, nil or not, whose methods panic with a value.
type failure struct{ with any }

func (f *failure) Error() string   { panic(f.with) }
func (f *failure) String() string  { panic(f.with) }
func (f *failure) Is(error) bool   { panic(f.with) }
func (f *failure) As(any) bool     { panic(f.with) }
func (f *failure) Unwrap() []error { panic(f.with) }

// circle is an error that wraps itself, twice.
type circle struct{ failure }

func (c circle) Error() string   { return "circle" }
func (c circle) Is(error) bool   { return false }
func (c circle) As(any) bool     { return false }
func (c circle) Unwrap() []error { return []error{c, nil, c, fs.ErrExist} }

// vague is an error that says it is all others, and gives none.
type vague struct{}

func (vague) Error() string { return "vague" }
func (vague) As(any) bool   { return true }

func evil() (values []any) {
	own := &failure{}
	own.with = own // it panics with itself
	loop := map[string]any{}
	loop["loop"] = loop
	return []any{(*failure)(nil), (*fs.PathError)(nil), &failure{with: "boom"}, own, loop, circle{}}
}

func TestNoValueEndsTheProcess(t *testing.T) {
	t.Parallel()
	for _, v := range evil() {
		check.That(t, redact.Value(v) != "", "%T has no text", v)
		bad, ok := v.(error)
		if !ok {
			continue
		}
		err := fmt.Errorf("outer: %w", redact.Safe(errors.Join(errors.New("first"), bad, fs.ErrNotExist, &fs.PathError{Op: "open", Err: fs.ErrClosed})))
		path, ok := errors.AsType[*fs.PathError](err)
		check.That(t, ok && path.Op == "open", "%T hides another error", v)
		for _, target := range []error{bad, fs.ErrNotExist, fs.ErrClosed} {
			check.That(t, errors.Is(err, target), "%T hides %T", v, target)
		}
		check.That(t, !errors.Is(err, context.Canceled) && err.Error() != "", "%T: %v", v, err)
		_, ok = errors.AsType[*failure](redact.Safe(errors.Join((*failure)(nil), vague{})))
		check.That(t, !ok, "an error is a *failure without a value")
	}
	check.ErrorIs(t, redact.Safe(nil), nil)
}

func TestTextsAreClear(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 10_000)
	for _, tt := range []struct{ got, want string }{
		{redact.Value(fs.ErrExist), "file already exists"},
		{redact.Value("fire"), "fire"},
		{redact.Value(7), "7"},
		{redact.Value(slog.LevelWarn), "WARN"},
		{redact.Value([]int{7}), "[]int"},
		{redact.Value(nil), "<nil>"},
		{redact.Value((*failure)(nil)), "*redact_test.failure without a text: runtime error: invalid memory address or nil pointer dereference"},
		{redact.Value(&failure{with: "boom"}), "*redact_test.failure without a text: boom"},
		{redact.Quote("a\n\xff"), `"a\n\xff"`},
		{redact.Quote(long), `"` + long[:128] + `"… (10000 bytes)`},
	} {
		check.Equal(t, tt.got, tt.want, "text")
	}
	huge := redact.Value(errors.New(strings.Repeat(long, 1000)))
	check.That(t, len(huge) < 100_000, "a text of %d bytes", len(huge))
}

// broken is a handler that panics in each method but those that make another.
type broken struct{ slog.Handler }

func (broken) Enabled(context.Context, slog.Level) bool  { return true }
func (broken) Handle(context.Context, slog.Record) error { panic(&failure{}) }
func (b broken) WithAttrs([]slog.Attr) slog.Handler      { return b }
func (b broken) WithGroup(string) slog.Handler           { return b }

func TestCallbacksAndHandlersThatPanic(t *testing.T) {
	t.Parallel()
	redact.Logger(slog.New(broken{})).With("a", 1).WithGroup("g").Error("lost")
	var log bytes.Buffer
	for _, v := range evil() {
		func() {
			defer redact.Catch(slog.New(slog.NewTextHandler(&log, nil)), "Observe")
			panic(v)
		}()
	}
	check.Equal(t, strings.Count(log.String(), "callback=Observe"), len(evil()), "lines")
	check.Contains(t, log.String(), "redact_test.go") // the stack
}
