// Package stacks finds the goroutines of one piece of work among all others.
package stacks

import (
	"bufio"
	"bytes"
	"context"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
)

// label is the profiler label of the goroutines of a piece of work. Goroutines that they start inherit it.
const label = "worker_attempt"

var last atomic.Uint64

// Label names a piece of work, in this process.
type Label string

// Do runs work on this goroutine under a label. further labels are for CPU profiles. In the order of their names, and behind
// that of the label, they cost less.
func Do(ctx context.Context, name Label, further []string, work func(context.Context)) {
	const usual = 8 // names and values
	all := append(make([]string, 0, usual), label, string(name))
	pprof.Do(ctx, pprof.Labels(append(all, further...)...), work)
}

// New returns a label that no other work has.
func New() Label { return Label(strconv.FormatUint(last.Add(1), 36)) }

// Of returns, for each of the labels, the stacks of the goroutines with it: at most limit bytes, the innermost call first.
// Goroutines with equal stacks are shown once, with their number. It stops every goroutine for a moment, once for all labels.
func Of(limit int, labels ...Label) map[Label]string {
	var all bytes.Buffer
	const withLabels = 1
	if len(labels) == 0 || pprof.Lookup("goroutine").WriteTo(&all, withLabels) != nil {
		return nil
	}
	var (
		block strings.Builder
		found = make(map[Label]string, len(labels))
		owner Label
	)
	for _, name := range labels {
		found[name] = ""
	}
	flush := func() {
		if have, wanted := found[owner]; wanted && len(have) < limit {
			have += block.String() + "\n"
			found[owner] = strings.ToValidUTF8(have[:min(len(have), limit)], "?")
		}
		block.Reset()
		owner = ""
	}
	lines := bufio.NewScanner(&all)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "":
			flush()
		case strings.HasPrefix(line, "# labels: "):
			_, rest, _ := strings.Cut(line, strconv.Quote(label)+`:"`)
			value, _, _ := strings.Cut(rest, `"`)
			owner = Label(value)
		case strings.HasPrefix(line, "#\t"):
			block.WriteString(frame(line) + "\n")
		default: // the number of goroutines, and their addresses
			count, _, _ := strings.Cut(line, " ")
			block.WriteString(count + " goroutine(s):\n")
		}
	}
	flush()
	return found
}

// frame returns a line without its addresses, such as "#	0x4a	main.f+0x1c	/src/main.go:7".
func frame(line string) string {
	fields := strings.FieldsFunc(line, func(r rune) bool { return r == '\t' || r == ' ' })
	const hash, address, function, place = 0, 1, 2, 3
	if len(fields) <= place || fields[hash] != "#" || fields[address] == "" {
		return line
	}
	name, _, _ := strings.Cut(fields[function], "+0x")
	return "\t" + name + " " + strings.Join(fields[place:], " ")
}
