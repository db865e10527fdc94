package output

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var rows = []Row{
	{
		PlaceID: "p1", Name: "סושי \"גל\", נמל", Status: "FOUND", URL: "https://wolt.com/en/isr/haifa/restaurant/a?b&c", Score: new(0.98765),
		VenueID: "v1", Venue: "Sushi Gal", Place: json.RawMessage(`{"placeId":"p1","big":12345678901234567890}`),
	},
	{PlaceID: "p2", Name: "麺や 白", Status: "NOT_FOUND"},
	{PlaceID: "p3", Name: "A\nB", Status: "PENDING", Reason: "ambiguous", VenueID: "v3"},
}

func write(t *testing.T, format Format, color bool, rows ...Row) string {
	t.Helper()
	var buf bytes.Buffer
	w := New(&buf, format, color)
	for _, row := range rows {
		check.OK(t, errors.Join(w.Write(row), w.Flush()))
	}
	check.OK(t, w.Close())
	return buf.String()
}

func TestJSON(t *testing.T) {
	t.Parallel()
	want := `[
  {"placeId":"p1","name":"סושי \"גל\", נמל","status":"FOUND","url":"https://wolt.com/en/isr/haifa/restaurant/a?b&c","score":0.98765,"venueId":"v1","venue":"Sushi Gal","reason":null,"place":{"placeId":"p1","big":12345678901234567890}},
  {"placeId":"p2","name":"麺や 白","status":"NOT_FOUND","url":null,"score":null,"venueId":null,"venue":null,"reason":null},
  {"placeId":"p3","name":"A\nB","status":"PENDING","url":null,"score":null,"venueId":"v3","venue":null,"reason":"ambiguous"}
]
`
	check.Equal(t, want, write(t, FormatJSON, false, rows...))
	check.Same(t, "no rows", write(t, FormatJSON, false), "[]\n")
}

func TestJSONLines(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.TrimSuffix(write(t, FormatJSONLines, false, rows...), "\n"), "\n")
	var ids []string
	for _, line := range lines {
		var row struct {
			PlaceID string `json:"placeId"`
		}
		err := json.Unmarshal([]byte(line), &row)
		check.Require(t, err == nil, "%v %v", line, err)
		ids = append(ids, row.PlaceID)
	}
	check.Equal(t, []string{"p1", "p2", "p3"}, ids)
	check.Same(t, "no rows", write(t, FormatJSONLines, false), "")
}

func TestCSV(t *testing.T) {
	t.Parallel()
	got := check.Must(csv.NewReader(strings.NewReader(write(t, FormatCSV, false, rows...))).ReadAll())(t)
	want := [][]string{
		{"placeId", "name", "status", "url", "score", "venueId", "venue", "reason"},
		{"p1", "סושי \"גל\", נמל", "FOUND", "https://wolt.com/en/isr/haifa/restaurant/a?b&c", "0.988", "v1", "Sushi Gal", ""},
		{"p2", "麺や 白", "NOT_FOUND", "", "", "", "", ""},
		{"p3", "A\nB", "PENDING", "", "", "v3", "", "ambiguous"},
	}
	check.Equal(t, want, got)
	check.Same(t, "no rows", write(t, FormatCSV, false), "placeId,name,status,url,score,venueId,venue,reason\n")
}

func TestTable(t *testing.T) {
	t.Parallel()
	want := `PLACE ID  NAME            STATUS     REASON     SCORE  VENUE      URL
p1        {סושי "גל", נמל}  FOUND      -          0.988  Sushi Gal  https://wolt.com/en/isr/haifa/restaurant/a?b&c
p2        麺や 白         NOT_FOUND  -          -      -          -
p3        A B             PENDING    ambiguous  -      v3         -
`
	want = strings.NewReplacer("{", "\u200e", "}", "\u200e").Replace(want)
	check.Equal(t, want, write(t, FormatTable, false, rows...))
	// A service that is asked over HTTP tells neither score nor venue.
	want = "PLACE ID  NAME  STATUS  REASON  URL\np4        A     FOUND   -       https://example.org/\n"
	check.Equal(t, want, write(t, FormatTable, false, Row{PlaceID: "p4", Name: "A", Status: "FOUND", URL: "https://example.org/"}))
}

func TestTableColor(t *testing.T) {
	t.Parallel()
	colored := write(t, FormatTable, true, rows...)
	check.Says(t, colored, "\x1b[32mFOUND\x1b[0m")
	plain := write(t, FormatTable, false, rows...)
	for _, code := range []string{"\x1b[32m", "\x1b[33m", "\x1b[36m", "\x1b[0m"} {
		colored = strings.ReplaceAll(colored, code, "")
	}
	check.Equal(t, plain, colored)
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestWriteErrorsAreReported(t *testing.T) {
	t.Parallel()
	full := errors.New("the disk is full")
	for _, format := range Formats() {
		w := New(brokenWriter{full}, Format(format), false)
		check.Is(t, errors.Join(w.Write(rows[0]), w.Close()), full, format)
		list := NewRows(brokenWriter{full}, Format(format))
		list.Add("a", "a")
		list.Add("b", "b")
		check.Is(t, list.Close(), full, format)
	}
}

func TestJSONNamesThePlaceItCannotWrite(t *testing.T) {
	t.Parallel()
	w := New(&bytes.Buffer{}, FormatJSON, false)
	check.Contains(t, w.Write(Row{PlaceID: "p9", Score: new(math.NaN())}), "p9")
}
