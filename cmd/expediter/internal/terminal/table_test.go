package terminal

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rivo/uniseg"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

var columns = []Column{
	{Name: "ID"},
	{Name: "NAME", Width: 12},
	{Name: "STATE"},
	{Name: "NOTE", Optional: true},
	{Name: "URL"},
}

func write(t *testing.T, rows ...[]string) string {
	t.Helper()
	var buf bytes.Buffer
	w := NewTable(&buf, columns...)
	for _, row := range rows {
		check.OK(t, errors.Join(w.Write(row...), w.Flush()))
	}
	check.OK(t, w.Close())
	return buf.String()
}

func TestTable(t *testing.T) {
	t.Parallel()
	const without, with = "ID  NAME          STATE  URL\n1   a             BAD    u\n22  Beta Longna…  BAD    -\n",
		"ID  NAME  STATE  NOTE  URL\n1   a     BAD    -     u\n2   b     BAD    n     u\n"
	check.Equal(t, write(t, []string{"1", "a", "BAD", "", "u"}, []string{"22", "Beta Longname", "BAD", "", ""}), without)
	check.Equal(t, write(t, []string{"1", "a", "BAD", "", "u"}, []string{"2", "b", "BAD", "n", "u"}), with)
}

// Every column starts at the same terminal cell in each line, in any script.
func TestColumnsAlign(t *testing.T) {
	t.Parallel()
	names := []string{"Pizza", "קפה שקד", "קָפֶה", "麺や 白", "Ταβέρνα", "Ye\u0301ti", "👩\u200d🍳 Cook", "مطعم"}
	var rows [][]string
	for i, name := range names {
		rows = append(rows, []string{strconv.Itoa(i), name, "BAD", "", ""})
	}
	var starts []int
	for _, line := range strings.Split(strings.TrimSpace(write(t, rows...)), "\n")[1:] {
		before, _, _ := strings.Cut(line, "BAD")
		starts = append(starts, uniseg.StringWidth(before))
	}
	check.That(t, len(starts) == len(names) && len(slices.Compact(slices.Clone(starts))) == 1, "the state starts at cells %v", starts)
}

// A terminal that writes right-to-left scripts in their direction takes two such cells with spaces, digits and
// punctuation in between for one text, and swaps them, unless something left-to-right stands between.
func TestRightToLeftCellsKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	got := write(t, []string{"1", "קפה שקד", "0.97", "מסעדה 7", "-"}, []string{"2", "Café", "0.9", "x", "-"})
	lines := strings.Split(got, "\n")
	for _, cell := range []string{"קפה שקד", "מסעדה 7"} {
		check.That(t, strings.Contains(lines[1], "\u200e"+cell+"\u200e"), "%q is not isolated in %q", cell, lines[1])
	}
	check.That(t, !strings.Contains(lines[2], "\u200e"), "marks where nothing needs them: %q", lines[2])
	check.Equal(t, uniseg.StringWidth(isolate("קפה")), 3, "the marks take room cells")
}

func TestTableIsSafeForTerminals(t *testing.T) {
	t.Parallel()
	got := write(t, []string{"p\x1b[2J", "a\u202eb\x00\u2066c\xff", "GOOD\x07", "x\r\ny", "\u009b1m\u2028"})
	for _, bad := range []string{"\x1b", "\u202e", "\x00", "\u2066", "\xff", "\x07", "\r", "\u009b", "\u2028"} {
		check.That(t, !strings.Contains(got, bad), "%q is still in %q", bad, got)
	}
	check.That(t, strings.Count(got, "\n") == 2, "want a head and one line, got %q", got)
}

func TestLongTextsAreCut(t *testing.T) {
	t.Parallel()
	for _, name := range []string{strings.Repeat("x", 100), strings.Repeat("麺", 100), strings.Repeat("e\u0301", 100)} {
		got := cut(name, 40)
		width := uniseg.StringWidth(got)
		check.That(t, width <= 40 && width >= 39 && strings.HasSuffix(got, "…"), "%q takes %d cells", got, width)
	}
}

// A table of any length keeps only its first rows.
func TestTableStreams(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	w := NewTable(&buf, Column{Name: "N"})
	for i := range 3 * sampleRows {
		check.OK(t, errors.Join(w.Write(strconv.Itoa(i)), w.Flush()))
		want := 0
		if i+1 >= sampleRows {
			want = i + 2
		}
		got := strings.Count(buf.String(), "\n")
		check.Require(t, got == want, "after %d rows %d lines are out, want %d", i+1, got, want)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestWriteErrorsAreReported(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	w := NewTable(brokenWriter{full}, Column{Name: "N"})
	check.ErrorIs(t, errors.Join(w.Write("1"), w.Close()), full)
	for _, format := range []Format{FormatTable, FormatJSON, FormatJSONLines} {
		rows := NewRows(brokenWriter{full}, format, nil, "", Column{Name: "A"})
		rows.Add("a", "a")
		rows.Add("b", "b")
		check.ErrorIs(t, rows.Close(nil), full, format)
	}
	w = NewTable(brokenWriter{full}, Column{Name: "N"})
	var err error
	for i := 0; err == nil && i < 100*sampleRows; i++ {
		err = w.Write("a row that fills the buffer in time")
	}
	check.ErrorIs(t, err, full)
}

// dish is a row.
type dish struct {
	Name  string  `json:"name"`
	Price float64 `json:"price"`
}

func list(format Format, rows ...dish) (string, error) {
	var buf bytes.Buffer
	w := NewRows(&buf, format, func(note string) { buf.WriteString(note + "\n") }, "No dishes.", Column{Name: "NAME"}, Column{Name: "PRICE"})
	for _, row := range rows {
		w.Add(row, row.Name, row.Price)
		w.Notef("A %s.", row.Name)
	}
	err := w.Close(nil)
	return buf.String(), err
}

// Notes that are made between rows are written after the rows, on separate lines in every format.
func TestFormats(t *testing.T) {
	t.Parallel()
	const notes = "A סושי <b>.\nA A\nB.\n"
	menu := []dish{{"סושי <b>", 7.5}, {"A\nB", 1}}
	for format, want := range map[Format][2]string{
		FormatTable:     {"NAME      PRICE\n\u200eסושי <b>\u200e  7.5\nA B       1\n" + notes, "No dishes.\n"},
		FormatJSON:      {"[\n  {\"name\":\"סושי <b>\",\"price\":7.5},\n  {\"name\":\"A\\nB\",\"price\":1}\n]\n" + notes, "[]\n"},
		FormatJSONLines: {"{\"name\":\"סושי <b>\",\"price\":7.5}\n{\"name\":\"A\\nB\",\"price\":1}\n" + notes, ""},
	} {
		check.Equal(t, check.Must(list(format, menu...))(t), want[0])
		check.Equal(t, check.Must(list(format))(t), want[1])
	}
	check.That(t, check.Err(list(FormatJSON, dish{"free", math.NaN()}, dish{"A", 1})) != nil, "a row that is no JSON is written")
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
