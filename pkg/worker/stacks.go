package worker

import (
	"bufio"
	"bytes"
	"context"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
)

// attemptLabel is the profiler label of the goroutines of an attempt. Goroutines that they start inherit it.
const attemptLabel = "worker_attempt"

var lastLabel atomic.Uint64

// label names an attempt, in this process.
type label string

// do runs work on this goroutine under the label. further labels are for CPU profiles. In the order of their names, and behind
// that of the label, they cost less.
func (l label) do(ctx context.Context, further []string, work func(context.Context)) {
	const usual = 8 // names and values
	all := append(make([]string, 0, usual), attemptLabel, string(l))
	pprof.Do(ctx, pprof.Labels(append(all, further...)...), work)
}

// newLabel returns a label that no other attempt has.
func newLabel() label { return label(strconv.FormatUint(lastLabel.Add(1), 36)) }

// stacksOf returns, for each of the labels, the stacks of the goroutines with it: at most limit bytes, the innermost call first.
// Goroutines with equal stacks are shown once, with their number. It stops every goroutine for a moment, once for all labels.
func stacksOf(limit int, labels ...label) map[label]string {
	var all bytes.Buffer
	const withLabels = 1
	if len(labels) == 0 || pprof.Lookup("goroutine").WriteTo(&all, withLabels) != nil {
		return nil
	}
	var (
		block strings.Builder
		found = make(map[label]string, len(labels))
		owner label
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
			_, rest, _ := strings.Cut(line, strconv.Quote(attemptLabel)+`:"`)
			value, _, _ := strings.Cut(rest, `"`)
			owner = label(value)
		case strings.HasPrefix(line, "#\t"):
			block.WriteString(stackFrame(line) + "\n")
		default: // the number of goroutines, and their addresses
			count, _, _ := strings.Cut(line, " ")
			block.WriteString(count + " goroutine(s):\n")
		}
	}
	flush()
	return found
}

// stackFrame returns a line without its addresses, such as "#	0x4a	main.f+0x1c	/src/main.go:7".
func stackFrame(line string) string {
	fields := strings.FieldsFunc(line, func(r rune) bool { return r == '\t' || r == ' ' })
	const hash, address, function, place = 0, 1, 2, 3
	if len(fields) <= place || fields[hash] != "#" || fields[address] == "" {
		return line
	}
	name, _, _ := strings.Cut(fields[function], "+0x")
	return "\t" + name + " " + strings.Join(fields[place:], " ")
}
