package check_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder is a test that notes how it failed.
type recorder struct {
	testing.TB

	log   string
	ended bool
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) { r.log += fmt.Sprintf(format, args...) + "\n" }

func (r *recorder) Fatal(args ...any) {
	r.ended, r.log = true, r.log+fmt.Sprintln(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) { r.Fatal(fmt.Sprintf(format, args...)) }

// record returns how a test with f fails; log is "" when it passes.
func record(t *testing.T, f func(r *recorder)) *recorder {
	t.Helper()
	r, done := &recorder{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r
}

type pair struct{ a, b any }

// Each function passes what is as it should be, and fails all else, with both values in the message.
func TestFunctions(t *testing.T) {
	t.Parallel()
	some := errors.New("some error")
	empty, table := filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "table")
	if err := errors.Join(os.WriteFile(empty, nil, 0o600), os.WriteFile(table, []byte("# a b\n\n1\t2\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		passes, fails func(r *recorder)
		says          []string
		ends          bool
	}{
		"OK":      {func(r *recorder) { check.OK(r, nil) }, func(r *recorder) { check.OK(r, some) }, []string{"some error"}, true},
		"Err":     {func(r *recorder) { check.OK(r, check.Err(1, nil)) }, func(r *recorder) { check.OK(r, check.Err(1, some)) }, nil, true},
		"Must":    {func(r *recorder) { check.Must(1, nil)(r) }, func(r *recorder) { check.Must(1, some)(r) }, []string{"some error"}, true},
		"That":    {func(r *recorder) { check.That(r, true, "x") }, func(r *recorder) { check.That(r, false, "%d %%", 7) }, []string{"7 %"}, false},
		"Require": {func(r *recorder) { check.Require(r, true, "x") }, func(r *recorder) { check.Require(r, false, "%d", 7) }, []string{"7"}, true},
		"ErrorIs": {
			func(r *recorder) { check.ErrorIs(r, fmt.Errorf("x: %w", some), some) },
			func(r *recorder) { check.ErrorIs(r, some, nil, "the", "call") },
			[]string{"the call: got error some error, want <nil>"},
			false,
		},
		"ErrorIs of none": {
			func(r *recorder) { check.ErrorIs(r, nil, nil) }, func(r *recorder) { check.ErrorIs(r, nil, some) }, []string{"want some error"}, false,
		},
		"ErrorContains": {
			func(r *recorder) { check.ErrorContains(r, some, "some", "error") },
			func(r *recorder) { check.ErrorContains(r, some, "some", "one", "two") },
			[]string{`want "one"`, `want "two"`},
			false,
		},
		"ErrorContains of none": {
			func(r *recorder) { check.ErrorContains(r, nil) }, func(r *recorder) { check.ErrorContains(r, nil, "one") }, []string{"<nil>"}, false,
		},
		"Contains": {
			func(r *recorder) { check.Contains(r, "abc", "a", "c") }, func(r *recorder) { check.Contains(r, "abc", "a", "d") },
			[]string{`got "abc", want "d"`},
			false,
		},
		"Until": {
			func(r *recorder) { n := 0; check.Until(r, time.Minute, "x", func() bool { n++; return n == 2 }) },
			func(r *recorder) { check.Until(r, time.Millisecond, "it rains", func() bool { return false }) },
			[]string{"it rains"},
			true,
		},
		"Rows": {func(r *recorder) { check.Rows(r, table) }, func(r *recorder) { check.Rows(r, empty) }, []string{"no rows"}, true},
	} {
		if r := record(t, tt.passes); r.log != "" {
			t.Errorf("%s: failed with %q", name, r.log)
		}
		r := record(t, tt.fails)
		if r.log == "" || r.ended != tt.ends {
			t.Errorf("%s: %q, ended %t, want a failure, ended %t", name, r.log, r.ended, tt.ends)
		}
		for _, text := range tt.says {
			if !strings.Contains(r.log, text) {
				t.Errorf("%s: %q lacks %q", name, r.log, text)
			}
		}
	}
}

// Equal tells values apart, and its message shows in what they differ.
func TestEqual(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		got, want any
		says      []string // nothing when they are equal
	}{
		"numbers":           {1, 2, []string{"got 1, want 2"}},
		"texts":             {"a", "b", []string{"got a, want b"}},
		"equal structs":     {pair{1, []int{2}}, pair{1, []int{2}}, nil},
		"unexported fields": {pair{1, []int{2}}, pair{1, []int{3}}, []string{"2", "3"}},
		"nil and empty":     {[]int(nil), []int{}, []string{"nil"}},
		"kinds":             {1, "1", []string{"int", "string"}},
		"sizes of kinds":    {1, int64(1), []string{"int64"}},
		"parts of texts":    {[]string{"a b"}, []string{"a", "b"}, []string{`"a b"`, `"b"`}},
		"no number":         {math.NaN(), math.NaN(), []string{"NaN"}},
		"long":              {strings.Repeat("a", 300), strings.Repeat("a", 299) + "b", []string{"want"}},
		"errors":            {os.ErrExist, os.ErrExist, nil},
		"times":             {time.Unix(1, 0), time.Unix(1, 0).UTC(), nil},
	} {
		r := record(t, func(r *recorder) { check.Equal(r, tt.got, tt.want, "of", name) })
		if (r.log == "") != (tt.says == nil) || r.ended || r.log != "" && !strings.HasPrefix(r.log, "of "+name+": ") {
			t.Errorf("%s: %q", name, r.log)
		}
		for _, text := range tt.says {
			if !strings.Contains(r.log, text) {
				t.Errorf("%s: %q lacks %q", name, r.log, text)
			}
		}
	}
	if r := record(t, func(r *recorder) { check.Equal(r, "a b", "c") }); r.log != "got \"a b\", want \"c\"\n" {
		t.Errorf("texts are %q", r.log)
	}
}
