package gotest

import (
	"regexp"
	"slices"
	"strings"
)

// Failure is what failed in a package.
type Failure struct {
	// Test is the name of the test, or "" if it was none, or if it is not known which of several it was.
	Test string

	// Reason says in which way the package failed, or is "" if the test failed like any other.
	Reason string
}

// String returns the test and the reason.
func (f Failure) String() string {
	switch {
	case f.Reason == "":
		return f.Test
	case f.Test == "":
		return "(" + f.Reason + ")"
	default:
		return f.Test + " (" + f.Reason + ")"
	}
}

// Skipped is a test that was skipped.
type Skipped struct{ Test, Reason string }

// crashes are the beginnings of lines that are printed when a package ends in the midst of its tests.
var crashes = []struct{ prefix, reason string }{
	{"panic: test timed out after ", "timed out"},
	{"*** Test killed", "timed out"},
	{"panic: ", "panicked"},
	{"fatal error: ", "panicked"},
	{"signal: ", "killed"},
}

// Failures returns what failed. A test with a subtest that failed is left out for that. A package that ended in the midst of
// its tests has a failure with a reason; its test is known if it said so, or if no other was under way.
func (p *Package) Failures() []Failure {
	var all []Failure
	var under []string
	for _, t := range p.Tests {
		switch {
		case p.innerFailed(t):
		case t.Result == Fail:
			all = append(all, Failure{Test: t.Name})
		case t.Result == "" && !t.paused:
			under = append(under, t.Name)
		}
	}
	if p.Result != Fail {
		return all
	}
	by, reason := p.crash()
	if reason == "" && len(all) == 0 {
		reason = "failed outside of its tests"
	}
	if reason == "" {
		return all
	}
	if by != nil {
		if i := slices.Index(all, Failure{Test: by.Name}); i >= 0 {
			all[i].Reason = reason
			return all
		}
	}
	last := Failure{Reason: reason}
	if len(under) == 1 {
		last.Test = under[0]
	}
	return append(all, last)
}

// crash returns the reason for which the package ended in the midst of its tests, or "", and the test that printed it.
func (p *Package) crash() (by *Test, reason string) {
	if strings.HasSuffix(p.Summary(), " failed]\n") { // [build failed], [setup failed]
		return nil, "did not build"
	}
	for _, l := range p.lines {
		for _, c := range crashes {
			if strings.HasPrefix(l.text, c.prefix) {
				return l.test, c.reason
			}
		}
	}
	return nil, ""
}

// innerFailed reports whether a subtest of t failed, or did not end.
func (p *Package) innerFailed(t *Test) bool {
	return slices.ContainsFunc(p.Tests, func(other *Test) bool {
		return strings.HasPrefix(other.Name, t.Name+"/") && (other.Result == Fail || other.Result == "" && !other.paused)
	})
}

// Summary returns the line that "go test" prints when the package has ended.
func (p *Package) Summary() string {
	for _, l := range slices.Backward(p.lines) {
		if l.test == nil && summary.MatchString(l.text) {
			return l.text
		}
	}
	return "FAIL\t" + p.Path + "\n"
}

// Cached reports whether the result is that of an earlier run.
func (p *Package) Cached() bool { return strings.Contains(p.Summary(), "\t(cached)") }

// Output returns all that was printed, in the order in which it was.
func (p *Package) Output() string {
	var b strings.Builder
	for _, l := range p.lines {
		b.WriteString(l.text)
	}
	return b.String()
}

// Failed returns what a failed package printed outside of tests, then the output of the tests that failed, those that did not
// end among them, and the summary.
func (p *Package) Failed() string {
	var b strings.Builder
	var tests []string
	for _, t := range p.Tests {
		if !strings.Contains(t.Name, "/") && (t.Result == Fail || t.Result == "" && (!t.paused || p.innerFailed(t))) {
			tests = append(tests, t.Name)
		}
	}
	for _, l := range p.outside() {
		if l.test == nil || !slices.Contains(tests, root(l.test.Name)) {
			b.WriteString(l.text)
		}
	}
	for _, t := range tests {
		b.WriteString(p.TestOutput(t))
	}
	b.WriteString(p.Summary())
	return b.String()
}

// TestOutput returns the output of the test that a name belongs to and of its subtests, those that failed last.
func (p *Package) TestOutput(name string) string {
	var passed, failed strings.Builder
	for _, t := range p.Tests {
		if root(t.Name) != root(name) {
			continue
		}
		b := &passed
		if t.Name == root(name) || t.Result == Fail || t.Result == "" {
			b = &failed
		}
		header, text := p.ofTest(t)
		b.WriteString(header + text)
	}
	return passed.String() + failed.String()
}

// ofTest returns the line that says how a test ended, and what it printed.
func (p *Package) ofTest(t *Test) (header, text string) {
	header = "--- not ended: " + t.Name + "\n"
	var b strings.Builder
	for _, l := range p.lines {
		switch {
		case l.test != t || mark.MatchString(l.text):
		case outcome.MatchString(l.text):
			header = l.text
		default:
			b.WriteString(l.text)
		}
	}
	return header, b.String()
}

// root returns the name of the test that a subtest belongs to.
func root(name string) string {
	name, _, _ = strings.Cut(name, "/")
	return name
}

// Skips returns the tests that were skipped.
func (p *Package) Skips() []Skipped {
	var all []Skipped
	for _, t := range p.Tests {
		if t.Result == Skip {
			all = append(all, Skipped{Test: t.Name, Reason: p.reason(t)})
		}
	}
	return all
}

// reason returns what a test logged last.
func (p *Package) reason(t *Test) string {
	var words []string
	for _, l := range p.lines {
		switch {
		case l.test != t || mark.MatchString(l.text) || outcome.MatchString(l.text):
		case logged.MatchString(l.text):
			words = strings.Fields(logged.ReplaceAllString(l.text, ""))
		default:
			words = append(words, strings.Fields(l.text)...)
		}
	}
	if len(words) == 0 {
		return "no reason given"
	}
	return strings.Join(words, " ")
}

// What "go test" itself prints around the output of tests.
var (
	mark    = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME) `)
	outcome = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP|BENCH): `)
	logged  = regexp.MustCompile(`^ {4}[^ :]+\.go:[0-9]+: `) // by t.Log and the like
	indent  = regexp.MustCompile(`^ {4}[^ ]`)                // of the log of a test; all but the first line of t.Log have twice that
	summary = regexp.MustCompile(`^(ok  |FAIL|\?   )\t`)
	verdict = regexp.MustCompile(`^(PASS|FAIL|exit status [0-9]+|testing: warning: no tests to run|coverage: .*)$`)
)

// Outside returns what was printed outside of the logs of tests: to the standard output or the standard error.
func (p *Package) Outside() string {
	var b strings.Builder
	for _, l := range p.outside() {
		b.WriteString(l.text)
	}
	return b.String()
}

func (p *Package) outside() []*line {
	var all []*line
	after := map[*Test]bool{} // whether the line before it, of the same test, was printed outside
	for _, l := range p.lines {
		text := strings.TrimSuffix(l.text, "\n")
		switch {
		case mark.MatchString(text), outcome.MatchString(text), indent.MatchString(text), summary.MatchString(text),
			l.test == nil && verdict.MatchString(text):
			after[l.test] = false
		case text != "" && text[0] != ' ' && text[0] != '\t':
			after[l.test] = true
		}
		if after[l.test] {
			all = append(all, l)
		}
	}
	return all
}
