package docs

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// A figure is a number, its unit, and a comment that names a cell of a table that a benchmark wrote: the document, the beginning of the
// table's title, the line, and the column. A column without a title of its own, such as "× 10", follows one that has: "MB > × 10".
var (
	figure = regexp.MustCompile(`([0-9][0-9,]*(?:\.([0-9]+))?)(?: (ns|µs|ms|s|kB|MB|GB))?<!-- figure: (.*?) -->`)
	unitOf = regexp.MustCompile(`(?:^|[ (])(ns|µs|ms|s|kB|MB|GB)(?:$|[ /)])`)
)

// units are the sizes of units in the smallest of their kind.
var units = map[string]float64{"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9, "kB": 1, "MB": 1e3, "GB": 1e6}

// Figures that were measured stand in the tables that benchmarks write. A sentence that repeats one has it as the table has it, as exactly
// as the sentence says it: 0.58 ms is 580.5 µs, and 17,000 is 16,721.
func TestFiguresAreThoseOfTheTables(t *testing.T) {
	t.Parallel()
	documents := files(t, ".md")
	figures := 0
	for path, text := range documents {
		check.Same(t, "comments of "+path+" that follow no number", strings.Count(text, "<!-- figure:"), len(figure.FindAllString(text, -1)))
		for _, found := range figure.FindAllStringSubmatch(text, -1) {
			figures++
			cell := strings.Split(found[4], " / ")
			if len(cell) != 4 {
				t.Errorf("%s: %s does not name document, table, line and column", path, found[0])
				continue
			}
			is, ok := lookUp(documents["docs/"+cell[0]+".md"], cell[1], cell[2], strings.Split(cell[3], " > "))
			if measured := unitOf.FindStringSubmatch(cell[3]); found[3] != "" && len(measured) > 0 {
				is *= units[measured[1]] / units[found[3]]
			}
			check.That(t, ok, "%s: there is no one table, line and column %q", path, found[4])
			check.That(t, !ok || says(found[1], len(found[2]), is), "%s says %s of %q, which is %g now", path, found[1], found[4], is)
		}
	}
	check.That(t, figures >= 6, "%d figures are too few to be all", figures)
}

// says reports whether a number with so many decimals is value, rounded.
func says(number string, decimals int, value float64) bool {
	digits := strings.ReplaceAll(number, ",", "")
	step := math.Pow10(-decimals)
	if decimals == 0 {
		step = math.Pow10(len(digits) - len(strings.TrimRight(digits, "0")))
	}
	said, err := strconv.ParseFloat(digits, 64)
	return err == nil && math.Abs(said-value) <= step/2
}

// lookUp returns a cell of the one table that has a title with this beginning, below a line "title:" and between the marks of a benchmark.
func lookUp(document, title, line string, column []string) (value float64, ok bool) {
	pattern := `(?s)<!-- begin of what bench/\w+ writes -->(?:.*?)<!-- end of what bench/\w+ writes -->`
	table := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(title) + `.*:\n\n((?:\|.*\n)+)`)
	tables := table.FindAllStringSubmatch(strings.Join(regexp.MustCompile(pattern).FindAllString(document, -1), "\n"), -1)
	if len(tables) != 1 {
		return 0, false
	}
	lines := strings.Split(tables[0][1], "\n")
	at, titles := 0, strings.Split(lines[0], " |")
	for _, name := range column {
		next := slices.Index(titles[at+1:], " "+name)
		if next < 0 {
			return 0, false
		}
		at += 1 + next
	}
	for _, l := range lines {
		if cells := strings.Split(l, " |"); cells[0] == "| `"+line+"`" && at < len(cells) {
			number, _, _ := strings.Cut(strings.TrimSpace(cells[at]), " ")
			value, err := strconv.ParseFloat(number, 64)
			return value, err == nil
		}
	}
	return 0, false
}
