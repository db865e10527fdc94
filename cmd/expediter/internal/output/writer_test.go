package output

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/cmd/expediter/internal/table"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dish is a row.
type dish struct {
	Name  string  `json:"name"`
	Price float64 `json:"price"`
}

func write(format Format, rows ...dish) (string, error) {
	var buf bytes.Buffer
	w := NewRows(&buf, format, table.Column{Name: "NAME"}, table.Column{Name: "PRICE"})
	for _, row := range rows {
		w.Add(row, row.Name, row.Price)
	}
	err := w.Close()
	return buf.String(), err
}

func TestFormats(t *testing.T) {
	t.Parallel()
	menu := []dish{{"סושי <b>", 7.5}, {"A\nB", 1}}
	for format, want := range map[Format][2]string{
		FormatTable:     {"NAME      PRICE\n\u200eסושי <b>\u200e  7.5\nA B       1\n", "NAME  PRICE\n"},
		FormatJSON:      {"[\n  {\"name\":\"סושי <b>\",\"price\":7.5},\n  {\"name\":\"A\\nB\",\"price\":1}\n]\n", "[]\n"},
		FormatJSONLines: {"{\"name\":\"סושי <b>\",\"price\":7.5}\n{\"name\":\"A\\nB\",\"price\":1}\n", ""},
	} {
		check.Equal(t, want[0], check.Must(write(format, menu...))(t))
		check.Equal(t, want[1], check.Must(write(format))(t))
	}
	check.Failsf(t, check.Err(write(FormatJSON, dish{"free", math.NaN()}, dish{"A", 1})), "a row that is no JSON is written")
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestWriteErrorsAreReported(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	for _, format := range []Format{FormatTable, FormatJSON, FormatJSONLines} {
		list := NewRows(brokenWriter{full}, format, table.Column{Name: "A"})
		list.Add("a", "a")
		list.Add("b", "b")
		check.Is(t, list.Close(), full, format)
	}
}
