// Package stacks finds the goroutines of one piece of work among all others.
package stacks

import (
	"bufio"
	"bytes"
	"context"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// label marks the goroutines of a piece of work. They hand it on to those that they start.
const label = "worker_attempt"

var last atomic.Uint64

// Mark names a piece of work, in this process.
type Mark string

// Do runs work on this goroutine, marked, and returns the mark to whoever asks for it
// before. further labels are for CPU profiles.
func Do(ctx context.Context, mark Mark, further []string, work func(context.Context)) {
	pprof.Do(ctx, pprof.Labels(append(slices.Clip(further), label, string(mark))...), work)
}

// New returns a mark that no other work has.
func New() Mark { return Mark(strconv.FormatUint(last.Add(1), 36)) }

// Of returns, for each of the marks, the stacks of the goroutines with it: at most limit
// bytes, the innermost call first. Those with equal stacks are one, with their number. It
// stops every goroutine for a moment, once for all marks.
func Of(limit int, marks ...Mark) map[Mark]string {
	var all bytes.Buffer

	const withLabels = 1
	if len(marks) == 0 || pprof.Lookup("goroutine").WriteTo(&all, withLabels) != nil {
		return nil
	}

	var (
		block strings.Builder
		found = make(map[Mark]string, len(marks))
		whose Mark
	)

	for _, mark := range marks {
		found[mark] = ""
	}

	flush := func() {
		if have, wanted := found[whose]; wanted && len(have) < limit {
			have += block.String() + "\n"
			found[whose] = strings.ToValidUTF8(have[:min(len(have), limit)], "?")
		}

		block.Reset()

		whose = ""
	}

	lines := bufio.NewScanner(&all)
	for lines.Scan() {
		line := lines.Text()

		switch {
		case line == "":
			flush()
		case strings.HasPrefix(line, "# labels: "):
			_, rest, _ := strings.Cut(line, strconv.Quote(label)+`:"`)
			name, _, _ := strings.Cut(rest, `"`)
			whose = Mark(name)
		case strings.HasPrefix(line, "#\t"):
			block.WriteString(frame(line) + "\n")
		default: // how many goroutines, and their addresses
			count, _, _ := strings.Cut(line, " ")
			block.WriteString(count + " goroutine(s):\n")
		}
	}

	flush()

	return found
}

// frame leaves the addresses out of a line such as "#	0x4a	main.f+0x1c	/src/main.go:7".
func frame(line string) string {
	fields := strings.FieldsFunc(line, func(r rune) bool { return r == '\t' || r == ' ' })

	const hash, address, function, place = 0, 1, 2, 3
	if len(fields) <= place || fields[hash] != "#" || fields[address] == "" {
		return line
	}

	name, _, _ := strings.Cut(fields[function], "+0x")

	return "\t" + name + " " + strings.Join(fields[place:], " ")
}
