package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// The tests run this program under several names, first in PATH: as itself, and as the parts of curl and of the nats command line that `up`
// prints.
func TestMain(m *testing.M) {
	natsrun.NodeMain()
	testscript.Main(natstest.LeakChecked{M: natstest.Parallel(m, 2)}, map[string]func(){
		"curl":      func() { exit(curl(os.Args[1:])) },
		"expediter": main,
		"nats":      func() { exit(natsRequest(os.Args[1:])) },
	})
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
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

// The demo keeps what is promised, and ends with its figures.
func TestDemo(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "expediter", "demo", "-o", "json").Output()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	check.Require(t, err == nil && strings.Count(string(out), "✓") == 16 && !strings.Contains(string(out), "✗"), "%v: %s", err, out)
	var figures struct {
		OK       bool               `json:"ok"`
		Enricher map[string]float64 `json:"enricher"`
		Notifier map[string]float64 `json:"notifier"`
	}
	check.OK(t, json.Unmarshal([]byte(lines[len(lines)-1]), &figures))
	e := figures.Enricher
	check.That(t, figures.OK && e["distinct"] >= 60 && e["places"] >= 5*e["distinct"] && e["jobs"] == e["distinct"] && e["provider_calls"] == e["distinct"] && e["found"] > 0 && e["not_found"] > 0,
		"the figures are %s", lines[len(lines)-1])
	for name, want := range map[string]float64{
		"lost": 0, "duplicate_sends": 0, "failed": 0, "dead_letters": 0, "refused": 1, "devices": 2, "device_messages": 2,
		"events": 25, "duplicates_dropped": 25, "notifications": 1136, "suppressed": 15, "sent": 1121,
	} {
		got, found := figures.Notifier[name]
		check.That(t, found && got == want, "%s is %v, want %v", name, got, want)
	}
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
