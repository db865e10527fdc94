// Package lazyregexp compiles regular expressions at their first use, so that a program does not pay at its start for those that it never
// uses.
package lazyregexp

import (
	"os"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
)

// Regexp is a regular expression that the first call of a method compiles. It is safe for concurrent use.
type Regexp struct {
	pattern  string
	once     sync.Once
	compiled *regexp.Regexp
}

// inTest reports whether the program is a test. Package testing has an answer too, but a program that imports it becomes larger.
var inTest = len(os.Args) > 0 && strings.HasSuffix(strings.TrimSuffix(os.Args[0], ".exe"), ".test")

// New returns an expression, which no call has compiled yet. A test panics at once if the pattern is invalid, any other program at the
// first use.
func New(pattern string) *Regexp {
	if inTest {
		if _, err := syntax.Parse(pattern, syntax.Perl); err != nil {
			panic("lazyregexp: " + err.Error())
		}
	}
	return &Regexp{pattern: pattern}
}

func (r *Regexp) get() *regexp.Regexp {
	r.once.Do(r.compile)
	return r.compiled
}

func (r *Regexp) compile() { r.compiled = regexp.MustCompile(r.pattern) }

// FindAllString is [regexp.Regexp.FindAllString].
func (r *Regexp) FindAllString(s string, n int) []string { return r.get().FindAllString(s, n) }

// FindAllStringIndex is [regexp.Regexp.FindAllStringIndex].
func (r *Regexp) FindAllStringIndex(s string, n int) [][]int { return r.get().FindAllStringIndex(s, n) }

// FindAllStringSubmatch is [regexp.Regexp.FindAllStringSubmatch].
func (r *Regexp) FindAllStringSubmatch(s string, n int) [][]string {
	return r.get().FindAllStringSubmatch(s, n)
}

// Find is [regexp.Regexp.Find].
func (r *Regexp) Find(b []byte) []byte { return r.get().Find(b) }

// FindString is [regexp.Regexp.FindString].
func (r *Regexp) FindString(s string) string { return r.get().FindString(s) }

// FindStringIndex is [regexp.Regexp.FindStringIndex].
func (r *Regexp) FindStringIndex(s string) []int { return r.get().FindStringIndex(s) }

// FindStringSubmatch is [regexp.Regexp.FindStringSubmatch].
func (r *Regexp) FindStringSubmatch(s string) []string { return r.get().FindStringSubmatch(s) }

// FindSubmatch is [regexp.Regexp.FindSubmatch].
func (r *Regexp) FindSubmatch(b []byte) [][]byte { return r.get().FindSubmatch(b) }

// Match is [regexp.Regexp.Match].
func (r *Regexp) Match(b []byte) bool { return r.get().Match(b) }

// MatchString is [regexp.Regexp.MatchString].
func (r *Regexp) MatchString(s string) bool { return r.get().MatchString(s) }

// ReplaceAllString is [regexp.Regexp.ReplaceAllString].
func (r *Regexp) ReplaceAllString(src, repl string) string {
	return r.get().ReplaceAllString(src, repl)
}

// ReplaceAllStringFunc is [regexp.Regexp.ReplaceAllStringFunc].
func (r *Regexp) ReplaceAllStringFunc(src string, repl func(string) string) string {
	return r.get().ReplaceAllStringFunc(src, repl)
}

// Split is [regexp.Regexp.Split].
func (r *Regexp) Split(s string, n int) []string { return r.get().Split(s, n) }
