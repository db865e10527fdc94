package main

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits,
			"last":  last,
		},
	})
}

// exits is `exits CODE COMMAND ARG...`: it checks the exit code exactly.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%v exits with %d, want %d", args[1:], got, want)
	}
}

// last is `last EXPRESSION...`: it reads the last line of the standard output as JSON and checks equations such as
// `enricher.jobs=enricher.distinct` and `ok=true`.
func last(ts *testscript.TestScript, neg bool, args []string) {
	lines := strings.Split(strings.TrimSuffix(ts.ReadFile("stdout"), "\n"), "\n")
	var report any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &report); err != nil {
		ts.Fatalf("the last line is not JSON: %v: %s", err, lines[len(lines)-1])
	}
	for _, expression := range args {
		left, right, _ := strings.Cut(expression, "=")
		a, found := lookUp(report, left)
		if !found {
			ts.Fatalf("no %s in %v", left, report)
		}
		b, found := lookUp(report, right)
		if !found {
			ts.Check(json.Unmarshal([]byte(right), &b))
		}
		if (a == b) == neg {
			ts.Fatalf("%s is %v, %s is %v", left, a, right, b)
		}
	}
}

// lookUp follows a path of names, such as enricher.jobs.
func lookUp(value any, path string) (any, bool) {
	for name := range strings.SplitSeq(path, ".") {
		object, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		if value, ok = object[name]; !ok {
			return nil, false
		}
	}
	return value, true
}
