package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvrecord"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) {
	testscript.Main(natstest.LeakChecked{M: natstest.Parallel(m, 4)}, map[string]func(){
		"expediter": func() {
			completeTime = time.Minute
			ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt)
			os.Exit(Run(ctx, Config{}, os.Args[1:]))
		},
	})
}

// enriching is `enriching`: it starts an enricher that goes by the names of the places, until the script ends, and sets ENRICHER to where
// it is. A place whose name has Late is pending when it is asked for first.
func enriching(ts *testscript.TestScript, _ bool, _ []string) {
	var mu sync.Mutex
	asked := map[string]bool{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		req, invalid := contracts.Decode[contracts.EnrichRequest](body)
		if err := errors.Join(err, invalid); err != nil || r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, fmt.Sprintf(`{"status":401,"detail":"no: %v"}`, err), http.StatusUnauthorized)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range req.Results {
			place := &req.Results[i]
			state := contracts.ProviderState{Status: contracts.StatusFound, URL: new("https://wolt.com/en/isr/haifa/restaurant/" + place.PlaceID)}
			switch {
			case strings.Contains(place.Name, "Outage"):
				http.Error(w, `{"detail":"out of order"}`, http.StatusServiceUnavailable)
				return
			case strings.Contains(place.Name, "Slow"), strings.Contains(place.Name, "Late") && !asked[place.PlaceID]:
				state = contracts.ProviderState{Status: contracts.StatusPending}
			case strings.Contains(place.Name, "Closed"):
				state = contracts.ProviderState{Status: contracts.StatusNotFound}
			}
			asked[place.PlaceID] = true
			place.SetState(contracts.ProviderWolt, state, false)
		}
		answer, err := contracts.Encode(contracts.EnrichResponse{RequestID: "r", Results: req.Results})
		ts.Check(err)
		_, _ = w.Write(answer) // the client fails
	}))
	ts.Defer(srv.Close)
	ts.Setenv("ENRICHER", srv.URL)
	ts.Setenv("EXPEDITER_KEY", "secret")
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		WorkdirRoot:         t.TempDir(),
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"emptyserver": emptyServer,
			"enriching":   enriching,
			"follows":     follows,
			"deadletters": deadLetters,
			"importing":   importing,
			"inserts":     inserts,
			"notifier":    startNotifier,
			"saved":       saved,
			// substitute FILE... replaces $VARIABLES in files.
			"substitute": func(ts *testscript.TestScript, _ bool, args []string) {
				for _, name := range args {
					ts.Check(os.WriteFile(ts.MkAbs(name), []byte(os.Expand(ts.ReadFile(name), ts.Getenv)), 0o600))
				}
			},
			"works": works,
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

// A server that does not answer, or has no streams, is unavailable to all commands.
func TestExitCodeOfASilentServer(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		nats.ErrNoResponders, nats.ErrTimeout, jetstream.ErrJetStreamNotEnabled, jetstream.ErrJetStreamNotEnabledForAccount, kvlock.ErrUnavailable,
		fmt.Errorf("%w: %w", jsapi.ErrNotReady, context.DeadlineExceeded), fmt.Errorf("%w: %w", kvrecord.ErrUnavailable, context.DeadlineExceeded),
	} {
		check.Equal(t, ExitCode(fmt.Errorf("list: %w", err)), ExitUnavailable, err.Error())
	}
}

// invocation is a command line in a document: up to its end for a shell, or for the text around it.
var invocation = regexp.MustCompile("(go run \\./cmd/expediter|\\./expediter|`expediter) +([a-z][^|`&;>\\n]*)")

// Every command and flag that a document shows exists.
func TestCommandLinesOfDocuments(t *testing.T) {
	t.Parallel()
	pages := check.Must(filepath.Glob("../../../../docs/*.md"))(t)
	shown := 0
	for _, page := range append(pages, "../../../../README.md", "../../../../deploy/nats/README.md", "../../../../bench/README.md") {
		text := check.Must(os.ReadFile(page))(t)
		for _, found := range invocation.FindAllStringSubmatch(string(text), -1) {
			shown++
			line, _, _ := strings.Cut(found[2], " #")
			err := checkCommandLine(strings.Fields(line), found[1][0] != '`')
			check.That(t, err == nil, "%s: %s: %v", filepath.Base(page), found[0], err)
		}
	}
	check.That(t, shown >= 25, "%d command lines are too few to be all", shown)
}

// checkCommandLine reports a command or a flag of a command line that does not exist, and arguments that are
// missing or too many in a whole one.
func checkCommandLine(words []string, whole bool) error {
	words[0] = strings.TrimRight(words[0], ".,:")
	root := newRoot(Config{Getenv: func(string) string { return "" }})
	cmd, rest, err := root.Find(words)
	switch {
	case err != nil:
		return fmt.Errorf("no such command: %w", err)
	case cmd == root:
		return fmt.Errorf("no such command: %q", words[0])
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil && whole {
		return fmt.Errorf("%s: %w", cmd.CommandPath(), err)
	}
	return nil
}
