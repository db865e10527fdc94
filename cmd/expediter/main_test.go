package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
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

// clientTimeout bounds what a client waits for.
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
