// Package operate is what the commands of expediter and the pages of its console have in common, so that both select, change and record the
// same things under the same words.
package operate

import (
	"net/url"
	"strings"
)

// Field is a part of a filter. Its name is that of a flag of a command, and of a parameter in the address of a page.
type Field struct {
	Name string

	// Usage describes the flag, "" for a flag that a command shares with others.
	Usage string

	Of []string // the values that the field may have, nil for any

	Value *string
}

// Filter selects the things that a command or a page is about.
type Filter interface {
	// Fields are the parts of the filter that a flag or a parameter sets.
	Fields() []Field
}

// Read sets a filter by the parameters of an address, or by a form.
func Read(f Filter, q url.Values) {
	for _, field := range f.Fields() {
		*field.Value = q.Get(field.Name)
	}
}

// Query is the inverse of [Read].
func Query(f Filter) url.Values {
	q := url.Values{}
	for _, field := range f.Fields() {
		if *field.Value != "" {
			q.Set(field.Name, *field.Value)
		}
	}
	return q
}

// Line returns the command line, for a shell, of a command of expediter with the flags of a filter.
func Line(command string, f Filter, more ...string) string {
	args := append([]string{"expediter"}, strings.Fields(command)...)
	for _, field := range f.Fields() {
		if *field.Value != "" {
			args = append(args, "--"+field.Name, *field.Value)
		}
	}
	return Shell(append(args, more...)...)
}

// Shell returns a command line for a shell.
func Shell(args ...string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = Quote(arg)
	}
	return strings.Join(quoted, " ")
}

// Quote returns a word quoted for a shell.
func Quote(word string) string {
	if word != "" && !strings.ContainsFunc(word, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && !strings.ContainsRune("-_./:@%+,=", c)
	}) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
