package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/expediter-io/expediter/cmd/expediter/internal/cli"
	"github.com/expediter-io/expediter/cmd/expediter/internal/demo"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// The tests run programs, which are this one under other names; they stand first in PATH. Beside the program itself
// these are one whose provider is asked twice, and as much of curl and of the nats command line as `up` tells its user
// to type.
func TestMain(m *testing.M) {
	testscript.Main(natstest.LeakChecked{M: natstest.Parallel(m, 2)}, map[string]func(){
		"curl":            func() { exit(curl(os.Args[1:])) },
		"expediter":       main,
		"expediter-hasty": hastyMain,
		"nats":            func() { exit(natsRequest(os.Args[1:])) },
	})
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// hasty asks its provider twice for everything.
type hasty struct{ provider.Provider }

func (h hasty) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	if _, err := h.Provider.Search(ctx, place); err != nil {
		return nil, err
	}
	return h.Provider.Search(ctx, place)
}

func hastyMain() {
	os.Exit(cli.Run(context.Background(), cli.Config{
		Demo: func(ctx context.Context, cfg demo.Config) (demo.Report, error) {
			cfg.Interpose = func(p provider.Provider) provider.Provider { return hasty{p} }
			return demo.Run(ctx, cfg)
		},
	}, os.Args[1:]))
}

// clientTimeout bounds the wait of a client.
const clientTimeout = 20 * time.Second

// curl is `curl -s URL -d BODY` and `curl -sN URL`.
func curl(args []string) error {
	method, body, target := http.MethodGet, "", ""
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-s" || args[i] == "-sN":
		case args[i] == "-d" && i+1 < len(args):
			i++
			method, body = http.MethodPost, args[i]
		case strings.HasPrefix(args[i], "http://") && target == "":
			target = args[i]
		default:
			return fmt.Errorf("curl: %q", args[i:])
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), clientTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if err != nil {
		return err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded") // as curl does
	}
	resp, err := (&http.Client{}).Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}

// natsRequest is `nats --server URL request SUBJECT BODY`.
func natsRequest(args []string) error {
	if len(args) != 5 || args[0] != "--server" || args[2] != "request" {
		return fmt.Errorf("nats: %q", args)
	}
	if _, err := url.Parse(args[1]); err != nil {
		return err
	}
	nc, err := nats.Connect(args[1])
	if err != nil {
		return err
	}
	defer nc.Close()
	m, err := nc.Request(args[3], []byte(args[4]), clientTimeout)
	if err != nil {
		return err
	}
	if text := m.Header.Get("Nats-Service-Error"); text != "" {
		return fmt.Errorf("nats: %s: %s", text, m.Data)
	}
	_, err = os.Stdout.Write(m.Data)
	return err
}

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

// reply returns the status and body of an answer that is bounded, 0 for none.
func reply(r *http.Request) (int, string) {
	resp, err := (&http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}
