package cli

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"bare":      bare,
			"follows":   follows,
			"graveyard": graveyard,
			"importing": importing,
			"notifying": notifying,
			"saved":     saved,
			// exits CODE COMMAND ARG... checks the exit code exactly.
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
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
			},
		},
	})
}

func ExampleExitCode() {
	fmt.Println(ExitCode(nil), ExitCode(&UsageError{Err: errors.New("--wait=maybe")}), ExitCode(fmt.Errorf("job 7: %w", ErrNotFound)))
	// Output: 0 2 3
}
