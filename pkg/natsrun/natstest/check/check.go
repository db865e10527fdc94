// Package check compares values with the values that a test wants, in one line each.
package check

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// OK ends the test when there is an error.
func OK(t testing.TB, err error) { //nolint:thelper // Helper costs more than some operations that a benchmark measures
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// Must returns the value of a call, as in check.Must(call())(t), and ends the test when the call returns an error.
func Must[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T { //nolint:thelper // as OK
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
		return value
	}
}

// That fails the test, which goes on, unless ok is true. The message has the value that the test got, and the input.
func That(t testing.TB, ok bool, format string, args ...any) { //nolint:goprintffuncname,thelper // read as sentences; as OK
	if !ok {
		t.Helper()
		t.Errorf(format, args...)
	}
}

// Require is That, and ends the test.
func Require(t testing.TB, ok bool, format string, args ...any) { //nolint:goprintffuncname,thelper // read as sentences; as OK
	if !ok {
		t.Helper()
		t.Fatalf(format, args...)
	}
}

// ErrorIs fails the test, which goes on, unless [errors.Is] reports err as want, which may be nil. The message begins with about.
func ErrorIs(t testing.TB, err, want error, about ...any) { //nolint:thelper // as OK
	if !errors.Is(err, want) {
		t.Helper()
		t.Errorf("%sgot error %v, want %v", prefix(about), err, want)
	}
}

// ErrorContains fails the test, which goes on, for each of the texts that err does not contain; for all of them when err is nil.
func ErrorContains(t testing.TB, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got error %v, want %q in it", err, text)
		}
	}
}

// Contains fails the test, which goes on, for each of the texts that got does not contain.
func Contains(t testing.TB, got string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(got, text) {
			t.Errorf("got %q, want %q in it", got, text)
		}
	}
}

// Equal fails the test, which goes on, unless got equals want by == or by [cmp.Equal], which compares unexported fields here too. The
// message begins with about, and has both values, or the difference of those that are long or have parts.
func Equal[T any](t testing.TB, got, want T, about ...any) { //nolint:thelper // as OK
	if reflect.ValueOf(&got).Elem().Comparable() && any(got) == any(want) {
		return
	}
	diff := cmp.Diff(want, got, cmp.Exporter(func(reflect.Type) bool { return true }))
	if diff == "" {
		return
	}
	t.Helper()
	verb := "%+v"
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Map, reflect.Slice: // may hold itself, which fmt follows without an end
		t.Errorf("%s(-want +got):\n%s", prefix(about), diff)
		return
	case reflect.String:
		verb = "%q"
	}
	text, wanted := fmt.Sprintf(verb, got), fmt.Sprintf(verb, want)
	message := fmt.Sprintf("got %s, want %s", text, wanted)
	if len(message) > 200 || strings.ContainsAny(text, "[{") || text == wanted { // nil and empty, or 1 and "1", look the same
		message = "(-want +got):\n" + diff
	}
	t.Errorf("%s%s", prefix(about), message)
}

// prefix returns the words before a message.
func prefix(about []any) string {
	if len(about) == 0 {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintln(about...), "\n") + ": "
}

// Until waits until a condition holds, and ends the test with the condition's name when it does not within patience.
func Until(t testing.TB, patience time.Duration, condition string, done func() bool) {
	t.Helper()
	giveUp := time.NewTimer(patience)
	defer giveUp.Stop()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-giveUp.C:
			t.Fatalf("waited in vain: %s", condition)
		}
	}
}

// Err returns the error of a call that has another result, for the other functions: check.OK(t, check.Err(f())).
func Err[T any](_ T, err error) error { return err }

// Rows returns the cells of a table in a file: a row to a line, with tabs between the cells. Empty lines, and lines that begin with #, are
// left out.
func Rows(t testing.TB, path string) (rows [][]string) {
	t.Helper()
	data := Must(os.ReadFile(path))(t)
	for line := range strings.SplitSeq(string(data), "\n") {
		if line != "" && !strings.HasPrefix(line, "#") {
			rows = append(rows, strings.Split(line, "\t"))
		}
	}
	Require(t, len(rows) > 0, "%s has no rows", path)
	return rows
}
