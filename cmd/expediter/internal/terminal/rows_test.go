package terminal

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// dish is a row.
type dish struct {
	Name  string  `json:"name"`
	Price float64 `json:"price"`
}

func list(format Format, rows ...dish) (string, error) {
	var buf bytes.Buffer
	w := NewRows(&buf, format, Column{Name: "NAME"}, Column{Name: "PRICE"})
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
		check.Equal(t, want[0], check.Must(list(format, menu...))(t))
		check.Equal(t, want[1], check.Must(list(format))(t))
	}
	check.Failsf(t, check.Err(list(FormatJSON, dish{"free", math.NaN()}, dish{"A", 1})), "a row that is no JSON is written")
}

func TestWriteErrorsOfListsAreReported(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	for _, format := range []Format{FormatTable, FormatJSON, FormatJSONLines} {
		w := NewRows(brokenWriter{full}, format, Column{Name: "A"})
		w.Add("a", "a")
		w.Add("b", "b")
		check.Is(t, w.Close(), full, format)
	}
}
