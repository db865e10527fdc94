package gotest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// The results of tests and packages.
const (
	Pass = "pass"
	Fail = "fail"
	Skip = "skip"
)

// event is one line of the stream, as "go doc test2json" and "go help buildjson" describe it.
type event struct {
	Action      string `json:"Action"`
	FailedBuild string `json:"FailedBuild"`
	ImportPath  string `json:"ImportPath"`
	Output      string `json:"Output"`
	Package     string `json:"Package"`
	Test        string `json:"Test"`
}

// Package is one run of the tests of a package.
type Package struct {
	// Path is its import path.
	Path string

	// Result is Pass, Fail or Skip, or "" if the stream ended before the package did.
	Result string

	// Tests are its tests, with their subtests, in the order in which they began.
	Tests []*Test

	byName map[string]*Test
	lines  []*line
	open   *line // the last line that the package printed outside of its tests, while its end is missing
}

// Test is one run of a test or a subtest.
type Test struct {
	// Name is that of the test, with those of its parents.
	Name string

	// Result is Pass, Fail or Skip, or "" if the test did not end.
	Result string

	open   *line // the last line of the test, while its end is missing
	paused bool  // the test waits until others are done
}

// line is a line of output. The test is nil for what a package printed outside of its tests.
type line struct {
	test *Test
	text string
}

// Read reads a stream to its end and returns its packages. It calls ended with each package that ended, and text with each
// line that is not an event; both may be nil. A package that was passed to ended is forgotten: it is not returned.
func Read(r io.Reader, ended func(*Package), text func(string)) ([]*Package, error) {
	s := stream{build: map[string]string{}, packages: map[string]*Package{}}
	in := bufio.NewReader(r)
	for {
		raw, err := in.ReadBytes('\n')
		if len(raw) > 0 {
			var e event
			if json.Unmarshal(raw, &e) != nil || e.Action == "" {
				if text != nil {
					text(string(raw))
				}
			} else if p := s.take(e); p != nil && p.Result != "" && ended != nil {
				s.forget(p)
				ended(p)
			}
		}
		if errors.Is(err, io.EOF) {
			return s.order, nil
		}
		if err != nil {
			return s.order, fmt.Errorf("read the events of go test: %w", err)
		}
	}
}

// stream is what is known of the packages that are under way.
type stream struct {
	build    map[string]string // what the compiler printed, by what it compiled
	order    []*Package
	packages map[string]*Package
}

// take applies an event to its package and returns that, or nil for the event of a build.
func (s *stream) take(e event) *Package {
	if e.Package == "" {
		s.build[e.ImportPath] += e.Output
		return nil
	}
	p := s.packages[e.Package]
	if p == nil {
		p = &Package{Path: e.Package, byName: map[string]*Test{}}
		s.packages[e.Package], s.order = p, append(s.order, p)
	}
	if printed := s.build[e.FailedBuild]; printed != "" {
		// The line that says that the build failed is there already: it is last in a plain "go test" too.
		p.lines = append([]*line{{text: printed}}, p.lines...)
	}
	p.take(e)
	return p
}

func (s *stream) forget(p *Package) {
	delete(s.packages, p.Path)
	for i, other := range s.order {
		if other == p {
			s.order = append(s.order[:i], s.order[i+1:]...)
			return
		}
	}
}

func (p *Package) take(e event) {
	var t *Test
	if e.Test != "" {
		if t = p.byName[e.Test]; t == nil {
			t = &Test{Name: e.Test}
			p.byName[e.Test], p.Tests = t, append(p.Tests, t)
		}
	}
	switch e.Action {
	case "output":
		p.print(t, e.Output)
	case "pause", "cont":
		if t != nil {
			t.paused = e.Action == "pause"
		}
	case Pass, Fail, Skip:
		if t != nil {
			t.Result = e.Action
		} else {
			p.Result = e.Action
		}
	}
}

// print adds output to the lines of a test, or of the package for nil. Output comes in parts of lines, between which may be
// that of another test.
func (p *Package) print(t *Test, output string) {
	open := &p.open
	if t != nil {
		open = &t.open
	}
	if *open == nil {
		*open = &line{test: t}
		p.lines = append(p.lines, *open)
	}
	(*open).text += output
	if strings.HasSuffix(output, "\n") {
		*open = nil
	}
}

// End ends a package whose tests were run without "go test", as that does: by the error that their process ended with.
func (p *Package) End(err error, took time.Duration) {
	p.Result = Pass
	result := "ok  "
	if err != nil {
		p.Result, result = Fail, "FAIL"
		p.lines = append(p.lines, &line{text: err.Error() + "\n"})
	}
	p.lines = append(p.lines, &line{text: fmt.Sprintf("%s\t%s\t%.3fs\n", result, p.Path, took.Seconds())})
}
