// Command proof runs the crash suites of all services and libraries against three NATS servers for a given time, prints what they found in
// one table, and writes it to a file:
//
//	./run proof --for 30m
//	./run proof --for 10m --seed 7 --file /tmp/proof.md
//
// It fails, and writes no file, when an effect was lost, was repeated after its record or came out of order, and when a part did not run,
// accepted nothing or met no fault.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
)

// parts are the suites, their shares of the time, and what an effect is.
var parts = []struct {
	name, pkg string
	share     int
	effect    string
}{
	{"jobs", "./pkg/worker/workertest/crash", 8, "a job has run to its end, or a step of one: the handler has told a receiver outside"},
	{"locks", "./pkg/kvlock/internal/chaos", 2, "a lock is held, or a value computed once for all processes"},
	{"outbox", "./pkg/outbox", 2, "an event that Postgres committed is published"},
	{"notifications", "./services/notifier", 2, "a provider has taken a message"},
	{"imports", "./services/importer", 2, "a job has created its recipe"},
	{"lookups", "./test/enricher", 2, "a provider has looked up a place"},
	{"replays", "./test/console/restart", 2, "a dead letter is a job again"},
}

func main() {
	flags := flag.NewFlagSet("proof", flag.ExitOnError) // package crash has flags of the same names for tests
	total := flags.Duration("for", 10*time.Minute, "how long all parts take together")
	seed := flags.Uint64("seed", 0, "make the choices of the run with this seed; 0 takes one at random")
	file := flags.String("file", "docs/proof.md", "where the table is written")
	_ = flags.Parse(os.Args[1:]) // exits
	if flags.NArg() > 0 || *total <= 0 {
		fmt.Fprintf(flags.Output(), "proof: --for %s and arguments %q: want a positive time, and flags alone\n", *total, flags.Args())
		flags.Usage()
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := prove(ctx, *total, *seed, *file); err != nil {
		fmt.Fprintln(os.Stderr, "proof:", err)
		cancel()
		os.Exit(1) //nolint:gocritic // cancel was called
	}
}

func prove(ctx context.Context, total time.Duration, seed uint64, file string) error {
	if seed == 0 {
		seed = rand.Uint64() //nolint:gosec // it is printed
	}
	dir, err := os.MkdirTemp("", "proof-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	shares := 0
	for _, p := range parts {
		shares += p.share
	}
	var reports []crash.Report
	var failed []error
	for _, p := range parts {
		share := total * time.Duration(p.share) / time.Duration(shares)
		fmt.Fprintf(os.Stderr, "%s: %s, seed %d\n", p.name, share.Round(time.Second), seed)
		report, err := run(ctx, p.name, p.pkg, share, seed, dir)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", p.name, err))
		}
		reports = append(reports, report)
		if ctx.Err() != nil {
			return errors.Join(failed...)
		}
	}
	text, err := table(ctx, total, seed, reports)
	if err != nil {
		return err
	}
	fmt.Print(text) //nolint:forbidigo // the result of a command
	if failed != nil {
		return fmt.Errorf("%w\n%s was not written", errors.Join(failed...), file)
	}
	return os.WriteFile(file, []byte(text), 0o644) //nolint:gosec // a document
}

// run runs one part, whose log is printed when it fails.
func run(ctx context.Context, name, pkg string, share time.Duration, seed uint64, dir string) (r crash.Report, err error) {
	r.Part = name
	path, log := filepath.Join(dir, name+".json"), filepath.Join(dir, name+".log")
	out, err := os.Create(log)
	if err != nil {
		return r, err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=0", "-v", "-run=^TestProof$", pkg,
		"-args", "-for", share.String(), "-seed", strconv.FormatUint(seed, 10), "-report", path)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdout, cmd.Stderr = out, out
	// A part that is skipped proves nothing. One that is interrupted removes nothing, so its files are in dir.
	cmd.Env = append(os.Environ(), "EXPEDITER_REQUIRE_PROGRAMS=1", "TMPDIR="+dir)
	failed := cmd.Run()
	if data, err := os.ReadFile(path); err == nil {
		failed = errors.Join(failed, json.Unmarshal(data, &r))
	} else {
		failed = errors.Join(failed, fmt.Errorf("it wrote no report: %w", err))
	}
	r.Failed = failed != nil
	if failed != nil {
		if text, err := os.Open(log); err == nil {
			_, _ = io.Copy(os.Stderr, text) // the error is shown in any case
			_ = text.Close()                // it was read
		}
	}
	return r, failed
}

// table writes the reports as a page.
func table(ctx context.Context, total time.Duration, seed uint64, reports []crash.Report) (string, error) {
	versions, err := versions(ctx)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# Proof

Seven crash suites, against three NATS servers in separate processes, while faults are injected. `+"`./run proof --for %s --seed %d`"+`
on %s, %s.

| part | seconds | effects accepted | lost | repeated after record | out of order | repeated before record | take-over p50 | p99 | faults |
|---|---|---|---|---|---|---|---|---|---|
`, total, seed, time.Now().UTC().Format("2006-01-02"), versions)
	sum, faults := crash.Report{Part: "**all**", Faults: map[string]int{}}, 0
	line := func(r crash.Report) {
		took := [2]string{"–", "–"}
		if r.TakeOvers > 0 {
			took = [2]string{fmt.Sprintf("%.2f s", r.TakeOverP50), fmt.Sprintf("%.2f s", r.TakeOverP99)}
		}
		n := 0
		for _, times := range r.Faults {
			n += times
		}
		fmt.Fprintf(&b, "| %s | %.0f | %d | %d | %d | %d | %d | %s | %s | %d |\n",
			r.Part, r.Seconds, r.Effects+r.Lost, r.Lost, r.Repeated, r.OutOfOrder, r.Unrecorded, took[0], took[1], n)
	}
	for _, r := range reports {
		if r.Failed {
			r.Part, sum.Part = "FAILED: "+r.Part, "**FAILED**"
		}
		line(r)
		sum.Seconds += r.Seconds
		sum.Effects += r.Effects
		sum.Lost += r.Lost
		sum.Repeated += r.Repeated
		sum.OutOfOrder += r.OutOfOrder
		sum.Unrecorded += r.Unrecorded
		for name, n := range r.Faults {
			sum.Faults[name] += n
			faults += n
		}
	}
	line(sum)
	fmt.Fprintf(&b, "\n%d faults of %d kinds:\n\n| fault | times |\n|---|---|\n", faults, len(sum.Faults))
	for _, name := range slices.Sorted(maps.Keys(sum.Faults)) {
		fmt.Fprintf(&b, "| %s | %d |\n", name, sum.Faults[name])
	}
	b.WriteString("\nWhat an effect is:\n\n| part | effect |\n|---|---|\n")
	for _, p := range parts {
		fmt.Fprintf(&b, "| %s | %s |\n", p.name, p.effect)
	}
	b.WriteString(`
An effect is lost when it was accepted and never happened. It is repeated before its record when its process died, was frozen or was cut
off between the effect and its record: [guarantees](guarantees.md) names, for each effect, how the receiver recognises that repetition.
Take-over is the time from a fault of a process until another process continues its work.
`)
	return b.String(), nil
}

// versions names what the proof ran on.
func versions(ctx context.Context) (string, error) {
	commit, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "", fmt.Errorf("name the commit: %w", err)
	}
	modules, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Path}} {{.Version}}",
		"github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go").Output()
	if err != nil {
		return "", fmt.Errorf("name the versions: %w", err)
	}
	found := strings.Fields(strings.ReplaceAll(string(modules), "github.com/nats-io/", ""))
	if len(found) != 4 {
		return "", fmt.Errorf("go list -m prints %q", modules)
	}
	return fmt.Sprintf("commit %s, %s %s, %s %s, %s, %d cores of %s/%s", strings.TrimSpace(string(commit)),
		strings.TrimSuffix(found[0], "/v2"), found[1], found[2], found[3], runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH), nil
}
