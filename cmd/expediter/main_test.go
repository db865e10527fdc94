package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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
	testscript.Main(natstest.LeakChecked{M: natstest.Parallel(m, 4)}, map[string]func(){
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
	client := &http.Client{Timeout: clientTimeout}
	var resp *http.Response
	var err error
	switch {
	case len(args) == 2 && strings.HasPrefix(args[0], "-s"):
		resp, err = client.Get(args[1])
	case len(args) == 4 && args[0] == "-s" && args[2] == "-d":
		resp, err = client.Post(args[1], "application/x-www-form-urlencoded", strings.NewReader(args[3])) // as curl does
	case len(args) == 4 && args[0] == "-s" && args[1] == "-d":
		resp, err = client.Post(args[3], "application/x-www-form-urlencoded", strings.NewReader(args[2]))
	default:
		err = fmt.Errorf("curl: %q", args)
	}
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
	nc, err := nats.Connect(args[1])
	if err != nil {
		return err
	}
	defer nc.Close()
	m, err := nc.Request(args[3], []byte(args[4]), clientTimeout)
	if err == nil && m.Header.Get("Nats-Service-Error") != "" {
		err = fmt.Errorf("nats: %q: %s", m.Header, m.Data)
	}
	if err == nil {
		_, err = os.Stdout.Write(m.Data)
	}
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
