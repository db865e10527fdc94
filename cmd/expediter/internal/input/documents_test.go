package input

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestDocuments(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		want []string // "line/index body", or "! error"
	}{
		"empty":         {"", nil},
		"white space":   {" \r\n\t\n", nil},
		"one":           {`{"a":1}`, []string{`1/0 {"a":1}`}},
		"lines":         {"{\"a\":1}\n\n  {\"a\":2}\r\n", []string{`1/0 {"a":1}`, `3/0 {"a":2}`}},
		"broken line":   {"{\"a\":1}\n{\n{\"a\":2}", []string{`1/0 {"a":1}`, `2/0 {`, `3/0 {"a":2}`}},
		"long line":     {"{\"a\":1}\n{\"a\":\"" + strings.Repeat("x", 100) + "\"}\n{\"a\":2}", []string{`1/0 {"a":1}`, "! stdin:2: the line is longer than 64 bytes", `3/0 {"a":2}`}},
		"after another": {"{\n\"a\":1\n}\n{\n\"a\":2}", []string{"1/0 {\n\"a\":1\n}", "4/0 {\n\"a\":2}"}},
		"array":         {"[{\"a\":1},\n{\"a\":2},3]\n", []string{`1/1 {"a":1}`, `2/2 {"a":2}`, `2/3 3`}},
		"empty array":   {" [ ] ", nil},
		"open array":    {"[{\"a\":1},\n", []string{`1/1 {"a":1}`, "! stdin:2: input: syntax error: not valid JSON: the text ends too early"}},
		"behind array":  {"[1] 2", []string{`1/1 1`, "! stdin:1: input: syntax error: there is more behind the array"}},
		"broken value":  {"{\n\"a\":1}\n{\n\"a\" 1}", []string{"1/0 {\n\"a\":1}", "! stdin:4: input: syntax error: not valid JSON: invalid character '1' after object key"}},
		"large value":   {"{\n\"a\":\"" + strings.Repeat("x", 100) + "\"}", []string{"! stdin:1: input: record too large: more than 64 bytes"}},
		"text":          {"Dear all,\n", []string{"! stdin:1: input: syntax error: not valid JSON: invalid character 'D' looking for beginning of value"}},
		"byte order":    {"\ufeff[1]", []string{`1/1 1`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for d, err := range Documents(t.Context(), Stdin, strings.NewReader(tc.text), 64) {
				if err != nil {
					got = append(got, "! "+err.Error())
					continue
				}
				got = append(got, fmt.Sprintf("%d/%d %s", d.Position.Line, d.Index, d.Body))
			}
			check.That(t, slices.Equal(got, tc.want), "got %q, want %q", got, tc.want)
		})
	}
}

func TestDocumentsOfFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "events.NDJSON")
	check.OK(t, os.WriteFile(path, []byte("{\n{\"a\":1}\n"), 0o600))
	var last Document
	n := 0
	for d, err := range Documents(t.Context(), path, nil, 64) {
		check.OK(t, err)
		last, n = d, n+1
	}
	check.That(t, n == 2 && last.Offset == 10 && last.Where() == path+":2", "%d, the last %+v", n, last)
	for _, err := range Documents(t.Context(), path+".gone", nil, 64) {
		check.Is(t, err, fs.ErrNotExist)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := 0
	for _, err := range Documents(ctx, path, nil, 64) {
		cancel()
		check.That(t, seen != 1 || errors.Is(err, context.Canceled), "goes on: %v", err)
		seen++
	}
	check.Same(t, "yields", seen, 2)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// endlessRecords is how many records endless makes.
const endlessRecords = 20_000

// endless makes records without holding them.
func endless(head, tail string, record func(i int) string) io.Reader {
	pr, pw := io.Pipe()
	go func() {
		_, err := io.WriteString(pw, head)
		for i := 0; i < endlessRecords && err == nil; i++ {
			_, err = io.WriteString(pw, record(i))
		}
		if err == nil {
			_, err = io.WriteString(pw, tail)
		}
		pw.CloseWithError(errors.Join(err, nil))
	}()
	return pr
}

// The heap after the last of many records is not larger than after the first ones.
func TestReaderMemoryIsBounded(t *testing.T) { //nolint:paralleltest // it looks at the heap of the process
	padding := strings.Repeat("p", 500)
	csvRecord := func(i int) string { return fmt.Sprintf("id%d,Name,%s\n", i, padding) }
	jsonRecord := func(i int) string {
		return fmt.Sprintf("%.*s{\"placeId\":\"id%d\",\"name\":\"N\",\"pad\":%q}\n", min(i, 1), ",", i, padding)
	}
	for name, tc := range map[string]struct {
		format Format
		in     io.Reader
	}{
		"csv":     {FormatCSV, endless("id,name,pad\n", "", csvRecord)},
		"json":    {FormatJSON, endless("[", "]", jsonRecord)},
		"request": {FormatJSON, endless(`{"results":[`, "]}", jsonRecord)},
		"jsonl":   {FormatJSONLines, endless("", "", func(i int) string { return jsonRecord(i)[min(i, 1):] })},
	} {
		reader := NewReader(Config{Format: tc.format, Stdin: tc.in})
		var early, late runtime.MemStats
		for _, err := range reader.Files(t.Context(), Stdin) {
			check.OK(t, err)
			switch reader.report.Places {
			case 3000:
				runtime.GC()
				runtime.ReadMemStats(&early)
			case endlessRecords:
				runtime.GC()
				runtime.ReadMemStats(&late)
			}
		}
		if got := reader.Report().Places; got != endlessRecords {
			t.Fatalf("%s: read %d places, want %d: %v", name, got, endlessRecords, problems(reader.Report()))
		}
		grown := int64(late.HeapAlloc) - int64(early.HeapAlloc)
		check.That(t, grown <= 4<<20, "%s: the heap grew by %d bytes over 10 MB of input", name, grown)
	}
}

// The places that a reader finds do not depend on how the bytes arrive.
func TestReaderAnyChunks(t *testing.T) {
	t.Parallel()
	for format, text := range map[Format]string{
		FormatCSV:       "\ufeffid,name,addr\r\np1,\"קפה, בר\",\"a\nb\"\r\np2,x\"y,\r\n,,\r\np3,Z,\r\n",
		FormatJSON:      "[\n{\"placeId\":\"p1\",\"name\":\"קפה\"},\n5,\n{\"placeId\":\"p2\",\"name\":\"B\"}]\n{\"cityText\":\"Haifa\",\"results\":[{\"placeId\":\"p3\",\"name\":\"C\"}]}",
		FormatJSONLines: "{\"placeId\":\"p1\",\"name\":\"קפה\"}\n{\n{\"placeId\":\"p2\",\"name\":\"B\"}\n",
	} {
		var want string
		for i, chunks := range []func(io.Reader) io.Reader{
			func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader,
		} {
			reader := NewReader(Config{Format: format, Stdin: chunks(strings.NewReader(text))})
			var got strings.Builder
			for place, err := range reader.Files(t.Context(), Stdin) {
				fmt.Fprintln(&got, place.Position, bodyOf(t, place), place.Offset, err)
			}
			fmt.Fprintln(&got, problems(reader.Report()))
			if i == 0 {
				want = got.String()
			} else if got.String() != want {
				t.Errorf("%s, chunks %d:\n%s\nwant\n%s", format, i, got.String(), want)
			}
		}
	}
}

func TestReaderPassesReadErrorsOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is gone")
	for _, format := range []Format{FormatCSV, FormatJSON, FormatJSONLines, FormatAuto} {
		in := io.MultiReader(strings.NewReader("[\n"), iotest.ErrReader(broken))
		if format == FormatCSV {
			in = io.MultiReader(strings.NewReader("id,name\n"), iotest.ErrReader(broken))
		}
		reader := NewReader(Config{Format: format, Stdin: in})
		var last error
		for _, err := range reader.Files(t.Context(), Stdin) {
			last = err
		}
		check.Is(t, last, broken, format)
	}
}

// A place stays as it is while later ones are read: the pipeline holds several at a time.
func TestReaderPlacesAreKept(t *testing.T) {
	t.Parallel()
	for format, text := range map[Format]string{
		FormatCSV:       "id,name\np1,A\np2,B\np3,C\n",
		FormatJSON:      "[{\"placeId\":\"p1\",\"name\":\"A\"},{\"placeId\":\"p2\",\"name\":\"B\"},{\"placeId\":\"p3\",\"name\":\"C\"}]",
		FormatJSONLines: "{\"placeId\":\"p1\",\"name\":\"A\"}\n{\"placeId\":\"p2\",\"name\":\"B\"}\n{\"placeId\":\"p3\",\"name\":\"C\"}\n",
	} {
		reader := NewReader(Config{Format: format, Stdin: strings.NewReader(text)})
		var kept []Place
		var bodies []string
		for place, err := range reader.Files(t.Context(), Stdin) {
			check.OK(t, err)
			kept, bodies = append(kept, place), append(bodies, bodyOf(t, place))
		}
		for i, place := range kept {
			check.Same(t, place.Position.String(), bodyOf(t, place), bodies[i])
			check.Same(t, "id", place.Restaurant.PlaceID, fmt.Sprint("p", i+1))
		}
		check.Same(t, "places", len(kept), 3)
	}
}

// bodyOf returns a place as JSON.
func bodyOf(t *testing.T, place Place) string {
	t.Helper()
	return string(check.Must(place.Restaurant.AppendJSON(nil))(t))
}

func FuzzCSV(f *testing.F) {
	for _, seed := range []string{
		"id,name\np1,A\n", "\ufeffid;name;lat;lng\r\n1;\"a\"\"b\";1;2\r\n", "id\tname\n\"x", "id,name\n\"a\"b,c\n", "placeId,name,x,location\n1,2,3,4\n",
		"id,name,\xff\n", "id,ID,name,placeId\n1,2,3,4\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) { checkInvariants(t, FormatCSV, text) })
}

func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		`[{"placeId":"p","name":"N"}]`, `{"cityText":"X","results":[{"placeId":1,"name":"N"}]}`, `{"placeId":"p","name":"N"}{"placeId":"p","name":"M"}`,
		`[{"placeId":"p","name":"N","location":{"lat":1,"lng":2,"x":null}},null,[],{"`, `{"results":[],"results":[1]}`, "[[]]", `{"a`, "\xef\xbb\xbf[]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) { checkInvariants(t, FormatJSON, text) })
}

func FuzzJSONLines(f *testing.F) {
	for _, seed := range []string{"{\"placeId\":\"p\",\"name\":\"N\"}\n{}\n\n[", `{"placeId":"p","name":"\ud800"}`, "{\"placeId\":\"\\u0000\",\"name\":\" x \"} {}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) { checkInvariants(t, FormatJSONLines, text) })
}

// checkInvariants reads a text in any state. Each place has to be usable and the same when its body is read again,
// and the report has to add up.
func checkInvariants(t *testing.T, format Format, text string) {
	t.Helper()
	reader := NewReader(Config{Format: format, MaxRecordBytes: 4096, Stdin: strings.NewReader(text)})
	places := 0
	for place, err := range reader.Files(t.Context(), Stdin) {
		if err != nil {
			check.That(t, errors.Is(err, ErrSyntax) || errors.Is(err, ErrHeader) || errors.Is(err, ErrEncoding) || errors.Is(err, ErrRecordTooLarge),
				"untyped error: %v", err)
			continue
		}
		places++
		checkPlace(t, place)
	}
	report := reader.Report()
	check.That(t, report.Places == places && report.Rows == report.Bad+report.Places && len(report.Problems) <= report.Bad,
		"%d places, report %+v", places, report)
}

func checkPlace(t *testing.T, place Place) {
	t.Helper()
	check.That(t, place.Restaurant.PlaceID != "" && place.Restaurant.Name != "" && place.Position.Line >= 1, "incomplete: %+v", place)
	body := bodyOf(t, place)
	var again contracts.Restaurant
	check.OK(t, errors.Join(again.UnmarshalJSON([]byte(body)), again.Validate()))
	check.That(t, again.Equal(place.Restaurant), "the place changes when its body is read again:\n%+v\n%+v", place, again)
}
