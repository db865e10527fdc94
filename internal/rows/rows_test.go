package rows_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/rows"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// read returns "line/index body" for each record, and "! error" for each error.
func read(ctx context.Context, r io.Reader, o rows.Options) (got []string) {
	for record, err := range rows.Read(ctx, "f", r, o) {
		if err != nil {
			got = append(got, "! "+err.Error())
			continue
		}
		got = append(got, fmt.Sprintf("%d/%d %s", record.Line, record.Index, record.Body))
	}
	return got
}

// files are texts of all formats and their records. A record may have 64 bytes, and CSV needs the column id.
var files = map[string]struct {
	text string
	want []string
}{
	"empty":       {"", nil},
	"one":         {`{"a":1}`, []string{`1/0 {"a":1}`}},
	"lines":       {"{\"a\":1}\n\n  {\"a\":2}\r\n", []string{`1/0 {"a":1}`, `3/0 {"a":2}`}},
	"broken line": {"{\"a\":1}\n{\n{\"a\":2}", []string{`1/0 {"a":1}`, `2/0 {`, `3/0 {"a":2}`}},
	// A part of this line, behind a full buffer, would fit.
	"long line":     {"{\"a\":1}\n{\"a\":\"" + strings.Repeat("x", 65_536) + "\"}\n{\"a\":2}", []string{`1/0 {"a":1}`, "! f:2: the line is longer than 64 bytes", `3/0 {"a":2}`}},
	"after another": {"{\n\"a\":1\n}\n{\n\"a\":2}", []string{"1/0 {\n\"a\":1\n}", "4/0 {\n\"a\":2}"}},
	"array":         {"[{\"a\":1},\n{\"a\":2},3]\n", []string{`1/1 {"a":1}`, `2/2 {"a":2}`, `2/3 3`}},
	"open array":    {"[{\"a\":1},\n", []string{`1/1 {"a":1}`, "! f:2: it cannot be read: the JSON ends too early"}},
	"behind array":  {"[1] 2", []string{`1/1 1`, "! f:1: it cannot be read: something follows the array"}},
	"broken value":  {"{\n\"a\":1}\n{\n\"a\" 1}", []string{"1/0 {\n\"a\":1}", "! f:3: it cannot be read: not valid JSON: invalid character '1' after object key"}},
	"large value":   {"{\n\"a\":\"" + strings.Repeat("x", 9000) + "\"}", []string{"! f:1: a record is too large: more than 64 bytes"}},
	"byte order":    {"\ufeff[1]", []string{`1/1 1`}},
	"utf-16":        {"\xff\xfei\x00", []string{"! f: it cannot be read: it is UTF-16: save it as UTF-8"}},
	"csv": {
		"\ufeffid,name,\np1,\"קפה, <בר>\",x\r\n\n p2 ,,\n\"p3\",\"a\nb\",\np4,Z,",
		[]string{
			`2/0 {"":"x","id":"p1","name":"קפה, \u003cבר\u003e"}`, `4/0 {"id":"p2"}`, `5/0 {"id":"p3","name":"a\nb"}`, `7/0 {"id":"p4","name":"Z"}`,
		},
	},
	"broken csv": {
		"id,name\np1\np2,B,3\np3,C\"x\"\np4,\"D\"x\np5,\xd7\np6,E\n",
		[]string{
			"! f:2: it has 1 columns, the header has 2", "! f:3: it has 3 columns, the header has 2", `! f:4: it is not CSV: bare " in non-quoted-field`,
			`! f:5: it is not CSV: extraneous or missing " in quoted-field`, "! f:6: the name is not UTF-8", `7/0 {"id":"p6","name":"E"}`,
		},
	},
	"open quote": {"id\n\"" + strings.Repeat("p\n", 5000), []string{"! f:2: a record is too large: more than 64 bytes: is a quote left open?"}},
	"quote left open": {"id\np1\np2\n\"" + strings.Repeat("p\n", 5000), []string{
		`2/0 {"id":"p1"}`, `3/0 {"id":"p2"}`, "! f:4: a record is too large: more than 64 bytes: is a quote left open?",
	}},
	"bare quote":    {"id,name\np1,A\np2,B\"x\np3,C\n", []string{`2/0 {"id":"p1","name":"A"}`, `! f:3: it is not CSV: bare " in non-quoted-field`, `4/0 {"id":"p3","name":"C"}`}},
	"quoted header": {"\ufeff\"id\",\"name\"\np1,A\n", []string{`2/0 {"id":"p1","name":"A"}`}},
	"semicolons":    {"\"id\";name\np1;\"A;\"\np2;1,5\n", []string{`2/0 {"id":"p1","name":"A;"}`, `3/0 {"id":"p2","name":"1,5"}`}},
	"tabs":          {"id\tname\r\np1\tA\r\n", []string{`2/0 {"id":"p1","name":"A"}`}},
	"carriage returns": {"id,name\rp1,A\rp2,B\r", []string{
		`! f:1: it cannot be read: the header: the column "name\rp1" has a carriage return without a line feed: end the lines with both, or with line feeds`,
	}},
	"carriage returns in rows": {"id\np1\rp2\np3\n", []string{
		"! f:2: the id has a carriage return without a line feed: end the lines with both, or with line feeds", `3/0 {"id":"p3"}`,
	}},
	"another encoding": {"id,n\xe4me\n", []string{`! f:1: it cannot be read: the header: the column "n\xe4me" is not UTF-8`}},
	"missing column":   {"Dear all,\n", []string{`! f:1: it cannot be read: the header: it has no column id: it reads "Dear all,"`}},
	"column twice":     {"id,name,name\n", []string{`! f:1: it cannot be read: the header: it names the column "name" twice`}},
}

// Whatever the parts in which a file arrives, its records are the same.
func TestRecords(t *testing.T) {
	t.Parallel()
	options := rows.Options{Columns: []string{"id"}, MaxBytes: 64}
	for name, tc := range files {
		got := read(t.Context(), strings.NewReader(tc.text), options)
		check.That(t, fmt.Sprintf("%q", got) == fmt.Sprintf("%q", tc.want), "%s: got\n%q, want\n%q", name, got, tc.want)
		for i, chunks := range []func(io.Reader) io.Reader{iotest.HalfReader, iotest.DataErrReader} {
			again := read(t.Context(), chunks(strings.NewReader(tc.text)), options)
			check.That(t, fmt.Sprint(again) == fmt.Sprint(got), "%s: in chunks %d got\n%q, want\n%q", name, i, again, got)
		}
	}
	got := read(t.Context(), strings.NewReader("Dear all,\n"), rows.Options{MaxBytes: 64})
	check.That(t, len(got) == 1 && strings.Contains(got[0], "f:1: it cannot be read: not valid JSON"), "CSV that is not permitted: %q", got)
}

func TestOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.NDJSON")
	check.OK(t, os.WriteFile(path, []byte("{\n{\"a\":1}\n"), 0o600))
	var last rows.Record
	n := 0
	for r, err := range rows.Open(t.Context(), path, nil, rows.Options{MaxBytes: 64}) {
		check.OK(t, err)
		last, n = r, n+1
	}
	check.That(t, n == 2 && last.Where() == path+":2", "%d, the last %+v", n, last)
	for _, err := range rows.Open(t.Context(), path+".gone", nil, rows.Options{MaxBytes: 64}) {
		check.ErrorIs(t, err, fs.ErrNotExist)
	}
	broken := errors.New("the disk is gone")
	for _, head := range []string{"[\n", "id\n", "{}\n", "{\n"} {
		var last error
		for _, err := range rows.Read(t.Context(), "f", io.MultiReader(strings.NewReader(head), iotest.ErrReader(broken)), rows.Options{Columns: []string{"id"}, MaxBytes: 64}) {
			last = err
		}
		check.ErrorIs(t, last, broken, head)
	}
}

// A reader of the standard input ends with its context, also when nothing arrives; and records end with it.
func TestReadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	silent, writer := io.Pipe()
	defer writer.Close()
	seen := 0
	for _, err := range rows.Open(ctx, rows.Stdin, io.MultiReader(strings.NewReader("[1,\n"), silent), rows.Options{MaxBytes: 64}) {
		cancel()
		check.That(t, seen != 1 || errors.Is(err, context.Canceled), "goes on: %v", err)
		seen++
	}
	check.Equal(t, seen, 2, "yields")
}
