package check_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// failures keeps the failures of a test, and goes on after Fatal.
type failures struct {
	testing.TB

	texts []string
}

func (*failures) Helper() {}

func (f *failures) Fatal(args ...any) { f.texts = append(f.texts, "fatal: "+fmt.Sprint(args...)) }

func (f *failures) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

func (f *failures) Errorf(format string, args ...any) {
	f.texts = append(f.texts, fmt.Sprintf(format, args...))
}

func TestDifferencesAreReported(t *testing.T) {
	t.Parallel()
	wrapped := fmt.Errorf("read the file: %w", io.EOF)
	for name, tt := range map[string]struct {
		look func(t *failures)
		want []string
	}{
		"OK of nil":        {func(t *failures) { check.OK(t, nil) }, nil},
		"OK of an error":   {func(t *failures) { check.OK(t, io.EOF) }, []string{"fatal: EOF"}},
		"Must":             {func(t *failures) { check.Same(t, "n", check.Must(1, nil)(t), 1) }, nil},
		"Must of an error": {func(t *failures) { check.Must(1, io.EOF)(t) }, []string{"fatal: EOF"}},
		"Is of the same":   {func(t *failures) { check.Is(t, wrapped, io.EOF); check.Is(t, nil, nil) }, nil},
		"Is of another":    {func(t *failures) { check.Is(t, io.EOF, errors.ErrUnsupported) }, []string{"got error EOF, want unsupported operation"}},
		"Is about a key":   {func(t *failures) { check.Is(t, io.EOF, nil, "key", 5) }, []string{"key 5\ngot error EOF, want <nil>"}},
		"Is of nil":        {func(t *failures) { check.Is(t, nil, io.EOF) }, []string{"got error <nil>, want EOF"}},
		"Is where nil is":  {func(t *failures) { check.Is(t, io.EOF, nil) }, []string{"got error EOF, want <nil>"}},
		"Contains all":     {func(t *failures) { check.Contains(t, wrapped, "read", "EOF") }, nil},
		"Contains some":    {func(t *failures) { check.Contains(t, wrapped, "write", "EOF", "x") }, []string{`got error read the file: EOF, want "write" in it`, `got error read the file: EOF, want "x" in it`}},
		"Contains of nil":  {func(t *failures) { check.Contains(t, nil, "EOF") }, []string{`got error <nil>, want "EOF" in it`}},
		"Failsf":           {func(t *failures) { check.Failsf(t, io.EOF, "%d is taken", 1) }, nil},
		"Failsf of nil":    {func(t *failures) { check.Failsf(t, nil, "%d is taken", 1) }, []string{"1 is taken"}},
		"Says all":         {func(t *failures) { check.Says(t, "a b", "a", "b") }, nil},
		"Says some":        {func(t *failures) { check.Says(t, "a b", "a", "c") }, []string{`got "a b", want "c" in it`}},
		"Equal":            {func(t *failures) { check.Equal(t, []int{1}, []int{1}); check.Equal(t, 1, 2, cmpopts.IgnoreTypes(0)) }, nil},
		"Equal of another": {func(t *failures) { check.Equal(t, 1, 2) }, []string{"(-want +got):\n  int(\n- \t1,\n+ \t2,\n  )\n"}},
		"Same":             {func(t *failures) { check.Same(t, "sum", 2, 2) }, nil},
		"Same of another":  {func(t *failures) { check.Same(t, "sum", 1, 2); check.Same(t, "text", "", "a") }, []string{"sum: got 1, want 2", `text: got "", want "a"`}},
		"That":             {func(t *failures) { check.That(t, true, "%d", 1); check.That(t, false, "got %d", 1) }, []string{"got 1"}},
		"Require":          {func(t *failures) { check.Require(t, true, "%d", 1); check.Require(t, false, "got %d", 1) }, []string{"fatal: got 1"}},
		"Until it is":      {func(t *failures) { check.Until(t, time.Minute, "it is", func() bool { return true }) }, nil},
		"Until it never is": {
			func(t *failures) {
				over := true // at the second look, because Fatal does not end the wait here
				check.Until(t, time.Nanosecond, "it is", func() bool { over = !over; return over })
			},
			[]string{"fatal: waited in vain: it is"},
		},
		"Err": {func(t *failures) { check.Is(t, check.Err(1, io.EOF), io.EOF); check.Is(t, check.Err(1, nil), nil) }, nil},
	} {
		got := &failures{}
		tt.look(got)
		for i, text := range got.texts {
			got.texts[i] = strings.ReplaceAll(text, "\u00a0", " ") // cmp prints either
		}
		if !slices.Equal(got.texts, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got.texts, tt.want)
		}
	}
}
