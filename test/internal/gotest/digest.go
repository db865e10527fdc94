package gotest

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// module is what the import paths of the workspace begin with.
const module = "github.com/expediter-io/expediter/"

// Short returns the import path of a package as its folder in the workspace.
func Short(path string) string { return strings.TrimPrefix(path, module) }

// Digest reads a stream. It writes a line for each package that has tests when the package ends, as "go test" does, and at
// the end which tests were skipped and why, what was printed outside of the logs of tests, and the output of the tests that
// failed. All that the packages printed is written to log. Digest reports whether all packages passed.
func Digest(r io.Reader, w io.Writer, log io.Writer) (passed bool, err error) {
	var d digest
	show := func(text string) {
		if _, failed := io.WriteString(w, text); err == nil {
			err = failed
		}
	}
	ended := func(p *Package) {
		if d.add(p) {
			show(p.Summary())
		}
		if _, failed := io.WriteString(log, p.Output()); err == nil {
			err = failed
		}
	}
	left, failed := Read(r, ended, show)
	for _, p := range left {
		p.Result = Fail
		p.lines = append(p.lines, &line{text: fmt.Sprintf("FAIL\t%s [the stream ended before it]\n", p.Path)})
		ended(p)
	}
	if err == nil {
		err = failed
	}
	show(d.skips.String())
	show(d.outside.String())
	for _, p := range d.failed {
		show("\n" + p.Failed())
	}
	return len(d.failed) == 0, err
}

type digest struct {
	failed  []*Package
	outside strings.Builder
	skips   Skips
}

// add keeps what is to be told of a package at the end, and reports whether its line is worth telling now.
func (d *digest) add(p *Package) bool {
	d.skips.Add(p)
	if p.Result == Fail {
		d.failed = append(d.failed, p)
	} else if text := p.Outside(); text != "" {
		fmt.Fprintf(&d.outside, "\n%s printed outside of the logs of its tests:\n%s", Short(p.Path), text)
	}
	return p.Result != Skip
}

// Skips are the tests that were skipped in any number of runs, by their reasons.
type Skips struct {
	cached  bool
	reasons []string // in the order in which they came
	tests   map[string][]string
}

// Add adds those of a package.
func (s *Skips) Add(p *Package) {
	if s.tests == nil {
		s.tests = map[string][]string{}
	}
	for _, skip := range p.Skips() {
		if s.tests[skip.Reason] == nil {
			s.reasons = append(s.reasons, skip.Reason)
		}
		name := Short(p.Path) + " " + skip.Test
		if p.Cached() {
			s.cached, name = true, name+" (cached)"
		}
		if !slices.Contains(s.tests[skip.Reason], name) {
			s.tests[skip.Reason] = append(s.tests[skip.Reason], name)
		}
	}
}

// String returns a paragraph for each reason, or "" if nothing was skipped.
func (s *Skips) String() string {
	var b strings.Builder
	for _, reason := range s.reasons {
		fmt.Fprintf(&b, "\nskipped: %s\n", reason)
		for _, name := range s.tests[reason] {
			fmt.Fprintf(&b, "    %s\n", name)
		}
	}
	if s.cached {
		b.WriteString("\n(cached) is the result of an earlier run; -count=1 runs all tests again.\n")
	}
	return b.String()
}
