package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/expediter-io/expediter/test/internal/gotest"
)

// report counts what the runs found.
type report struct {
	options

	mu     sync.Mutex
	err    error                  // of writing
	failed map[row]map[string]int // how often, by kind
	ran    map[row]map[string]int // how often a test, or a package under no test, came to its end
	skips  gotest.Skips
	took   map[string][]spent
	w      io.Writer
}

// row is a line of the table. The test is "" for a package.
type row struct{ pkg, test string }

func newReport(o options, w io.Writer) *report {
	return &report{options: o, failed: map[row]map[string]int{}, ran: map[row]map[string]int{}, took: map[string][]spent{}, w: w}
}

func (r *report) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(r.w, format, args...); r.err == nil {
		r.err = err
	}
}

// add makes the n-th run of a kind and reports what it found.
func (r *report) add(ctx context.Context, k kind, n int, run tests) error {
	packages, took, err := run(ctx, k)
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() == nil {
		if err != nil {
			return err
		}
		r.took[k.name] = append(r.took[k.name], took)
		r.printf("%s %d of %d: %s, CPU %s\n", k.name, n, k.runs, round(took.wall), round(took.cpu))
	}
	for _, p := range packages {
		if err := r.count(k, n, p); err != nil {
			return err
		}
	}
	return nil
}

// count counts what one package found, and keeps the output of what failed.
func (r *report) count(k kind, n int, p *gotest.Package) error {
	up := func(counts map[row]map[string]int, at row) {
		if counts[at] == nil {
			counts[at] = map[string]int{}
		}
		counts[at][k.name]++
	}
	r.skips.Add(p)
	pkg := gotest.Short(p.Path)
	if p.Result != "" {
		up(r.ran, row{pkg: pkg})
	}
	for _, t := range p.Tests {
		if t.Result == gotest.Pass || t.Result == gotest.Fail {
			up(r.ran, row{pkg, t.Name})
		}
	}
	for _, f := range p.Failures() {
		up(r.failed, row{pkg, f.String()})
		file, err := r.keep(k, n, p, f)
		if err != nil {
			return err
		}
		r.printf("    FAIL %s %s: %s\n", pkg, f, file)
	}
	return nil
}

var (
	seed   = regexp.MustCompile(`(?i)\bseed\b`)
	unsafe = regexp.MustCompile(`[^A-Za-z0-9_.=-]+`)
)

// keep writes the output of what failed, and of all else that its package printed, into a file.
func (r *report) keep(k kind, n int, p *gotest.Package, f gotest.Failure) (file string, err error) {
	if err := r.folder(); err != nil {
		return "", err
	}
	pkg := gotest.Short(p.Path)
	name := unsafe.ReplaceAllString(fmt.Sprintf("%s-%03d-%s-%s", k.name, n, strings.ReplaceAll(pkg, "/", "."), f), ".")
	file = filepath.Join(r.out, strings.TrimRight(name[:min(len(name), 200)], ".")+".txt")
	own := p.Failed()
	if f.Test != "" {
		own = p.TestOutput(f.Test)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s failed in run %d of %d, %s\n", pkg, f, n, k.runs, k.name)
	for line := range strings.Lines(own) {
		if seed.MatchString(line) {
			text.WriteString(line)
		}
	}
	fmt.Fprintf(&text, "\n%s\nAll that %s printed:\n\n%s", own, pkg, p.Output())
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return "", fmt.Errorf("keep the output of a failure: %w", err)
	}
	return file, nil
}

// folder makes the folder for the output of failures, if it is not there.
func (r *report) folder() (err error) {
	if r.out == "" {
		r.out, err = os.MkdirTemp("", "test-again-")
	} else {
		err = os.MkdirAll(r.out, 0o750)
	}
	if err != nil {
		return fmt.Errorf("make a folder for the output of failures: %w", err)
	}
	return nil
}

// summary prints what was skipped, how long the runs took and what failed, and reports whether anything did.
func (r *report) summary() (failed bool) {
	r.printf("%s\n", r.skips.String())
	table := tabwriter.NewWriter(r.w, 0, 0, 2, ' ', 0)
	printf := func(format string, args ...any) {
		if _, err := fmt.Fprintf(table, format, args...); r.err == nil {
			r.err = err
		}
	}
	printf("\truns\twall: least\tmedian\tmost\tCPU: least\tmedian\tmost\n")
	for _, k := range r.kinds {
		printf("%s\t%d", k.name, len(r.took[k.name]))
		least, median, most := spread(r.took[k.name], func(s spent) time.Duration { return s.wall })
		printf("\t%s\t%s\t%s", round(least), round(median), round(most))
		least, median, most = spread(r.took[k.name], func(s spent) time.Duration { return s.cpu })
		printf("\t%s\t%s\t%s\n", round(least), round(median), round(most))
	}
	if len(r.failed) == 0 {
		printf("\nnothing failed\n")
	} else {
		r.table(printf)
	}
	if err := table.Flush(); r.err == nil {
		r.err = err
	}
	return len(r.failed) > 0
}

// table prints how often each test failed, the most frequent first.
func (r *report) table(printf func(format string, args ...any)) {
	printf("\npackage\ttest that failed")
	for _, k := range r.kinds {
		printf("\t%s", k.name)
	}
	total := func(of row) (n int) {
		for _, failures := range r.failed[of] {
			n += failures
		}
		return n
	}
	for _, of := range slices.SortedFunc(maps.Keys(r.failed), func(a, b row) int {
		return cmp.Or(total(b)-total(a), strings.Compare(a.pkg, b.pkg), strings.Compare(a.test, b.test))
	}) {
		runs := r.ran[of]
		if runs == nil { // a package ended in the midst of its tests
			runs = r.ran[row{pkg: of.pkg}]
		}
		printf("\n%s\t%s", of.pkg, of.test)
		for _, k := range r.kinds {
			printf("\t%d of %d", r.failed[of][k.name], runs[k.name])
		}
	}
	printf("\n\nThe output of each failure is in %s\n", r.out)
}

func spread(all []spent, of func(spent) time.Duration) (least, median, most time.Duration) {
	if len(all) == 0 {
		return 0, 0, 0
	}
	var sorted []time.Duration
	for _, s := range all {
		sorted = append(sorted, of(s))
	}
	slices.Sort(sorted)
	return sorted[0], sorted[len(sorted)/2], sorted[len(sorted)-1]
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}
