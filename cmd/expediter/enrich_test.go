package main

import (
	"bytes"
	"encoding/csv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/cmd/expediter/internal/sample"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// statuses runs a command that writes CSV and counts its statuses.
func statuses(t *testing.T, args ...string) map[string]int {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "expediter", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	check.Require(t, err == nil, "%q: %v: %s", args, err, &stderr)
	rows := check.Must(csv.NewReader(bytes.NewReader(out)).ReadAll())(t)
	counts := map[string]int{}
	for _, row := range rows[1:] {
		counts[row[2]]++
	}
	return counts
}

// The answers of a service that is up are those of an embedded pipeline. A service is not waited for unless that is
// asked for.
func TestEnrichAsksARunningService(t *testing.T) {
	t.Parallel()
	places := filepath.Join(t.TempDir(), "places.json")
	data := check.Must(io.ReadAll(sample.Places()))(t)
	check.OK(t, os.WriteFile(places, data, 0o600))
	r := up(t)
	service := strings.Fields(r.find(t, `enrichers  http://127\.0\.0\.1:\d+`))[1]
	first := statuses(t, "enrich", "--url", service, "-o", "csv", places)
	check.That(t, first["PENDING"] != 0, "the first answer waits for the provider: %v", first)
	asked := statuses(t, "enrich", "--url", service, "--wait", "-o", "csv", places)
	embedded := statuses(t, "enrich", "--catalog", "internal/sample/catalog.json", "-o", "csv", places)
	for _, status := range []string{"FOUND", "NOT_FOUND", "PENDING"} { // ambiguous ones stay pending
		check.Require(t, asked[status] == embedded[status] && asked["FOUND"] != 0 && asked["NOT_FOUND"] != 0,
			"the service answers %v, an embedded pipeline %v", asked, embedded)
	}
	r.Interrupt()
}
