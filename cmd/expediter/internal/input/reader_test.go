package input

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// read reads a text as the standard input and returns one line per place, the report and the final error.
func read(t *testing.T, text string, cfg Config) (bodies []string, report Report, failure error) {
	t.Helper()
	cfg.Stdin = strings.NewReader(text)
	reader := NewReader(cfg)
	for place, err := range reader.Files(t.Context(), Stdin) {
		if err != nil {
			failure = err
			break
		}
		bodies = append(bodies, fmt.Sprintf("%d %s", place.Position.Line, bodyOf(t, place)))
	}
	return bodies, reader.Report(), failure
}

func problems(report Report) []string {
	var texts []string
	for _, p := range report.Problems {
		texts = append(texts, p.Error())
	}
	return texts
}

func TestReaderBodies(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		config Config
		text   string
		want   []string
	}{
		"csv with the names of a table": {
			text: "id,name,addr,city,phone,type\nf1,\"Green, Fig\",1 Main St.,Haifa,04-000-0101,vegan\n",
			want: []string{`2 {"address":"1 Main St.","cityText":"Haifa","name":"Green, Fig","phone":"04-000-0101","placeId":"f1","type":"vegan"}`},
		},
		"csv with a byte order mark, CRLF and Hebrew": {
			text: "\ufeffplace_id,name,address,lat,lon\r\np1,\"קפה \"\"שקד\"\"\",\"הרצל 1\r\nחיפה\",32.8,34.98\r\np2,סושי גל,,,\r\n",
			want: []string{
				`2 {"address":"הרצל 1\nחיפה","location":{"lat":32.8,"lng":34.98},"name":"קפה \"שקד\"","placeId":"p1"}`,
				`4 {"name":"סושי גל","placeId":"p2"}`,
			},
		},
		"csv with semicolons, spaces around names, and a preferred id": {
			text: "id; Place ID ;Name;Longitude;Latitude\n7;p1;A & B <i>;13,4;52\n8;p2;C;13.4;52\n",
			want: []string{`3 {"id":"8","location":{"lat":52,"lng":13.4},"name":"C","placeId":"p2"}`},
		},
		"csv with tabs and blank lines": {
			text: "placeId\tname\n\np1\tA,B\n\n",
			want: []string{`3 {"name":"A,B","placeId":"p1"}`},
		},
		"csv of nothing":  {text: ""},
		"csv of a header": {text: "id,name"},
		"csv with a default": {config: Config{City: "Eilat"}, text: "id,name,city\n1,A,\n2,B,Haifa\n", want: []string{
			`2 {"cityText":"Eilat","name":"A","placeId":"1"}`, `3 {"cityText":"Haifa","name":"B","placeId":"2"}`,
		}},
		"json keeps wire names byte for byte": {
			text: "[\n  {\"zz\": 1.50,\"placeId\":\"p1\",\n \"name\":\"A\\u0026\",\"location\":{\"lng\":2,\"lat\":1,\"acc\":3},\"phone\":null},\n{\"placeId\":\"p2\",\"name\":\"B\"}]",
			want: []string{
				"2 {\"zz\":1.50,\"placeId\":\"p1\",\"name\":\"A\\u0026\",\"location\":{\"lng\":2,\"lat\":1,\"acc\":3},\"phone\":null}",
				`4 {"placeId":"p2","name":"B"}`,
			},
		},
		"json keeps foreign fields": {
			text: `[{"placeId":"p1","big":12345678901234567890,"name":"A","lat":"1.5","open":null}]`,
			want: []string{`1 {"placeId":"p1","big":12345678901234567890,"name":"A","lat":"1.5","open":null}`},
		},
		"json request": {
			text: `{"requestId":"r","cityText":"Athens","results":[{"placeId":"p1","name":"A"},{"placeId":"p2","name":"B","cityText":"Berlin"}],"providers":["wolt"]}`,
			want: []string{`1 {"cityText":"Athens","placeId":"p1","name":"A"}`, `1 {"placeId":"p2","name":"B","cityText":"Berlin"}`},
		},
		"json place, then an array": {
			text: "{\"placeId\":\"p1\",\"name\":\"A\",\"x\":[1, 2]}\n[]\n[{\"placeId\":\"p2\",\"name\":\"B\"}]",
			want: []string{`1 {"placeId":"p1","name":"A","x":[1, 2]}`, `3 {"placeId":"p2","name":"B"}`},
		},
		"json request without results": {text: `{"results":null}`},
		"json lines": {
			config: Config{Format: FormatJSONLines},
			text:   "{\"placeId\":\"p1\",\"name\":\"A\"}\r\n\n  {\"placeId\":\"p2\",\"name\":\"ב\"}",
			want:   []string{`1 {"placeId":"p1","name":"A"}`, `3 {"placeId":"p2","name":"ב"}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, report, err := read(t, tc.text, tc.config)
			check.OK(t, err)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff, problems(report))
			}
		})
	}
}

func TestReaderProblems(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		config Config
		text   string
		want   []string
		places int
	}{
		"csv fields": {
			text: "id,name,lat,lng\n,,91,x\np2,B,1,\np3,C,NaN,0\np4,D,1,2\n",
			want: []string{
				"stdin:2: location.lng: must be a number, got a string; placeId: is required; name: is required; location.lat: must be between -90 and 90",
				"stdin:3: location.lng: is required",
				"stdin:4: location.lat: must be a number, got a string",
			},
			places: 1,
		},
		"csv shape": {
			text: "id,name\np1\np2,B,3\np3,C\"x\"\np4,\"D\"x\np5,E\np6,\xd7\n",
			want: []string{
				"stdin:2: has 1 fields, the header has 2",
				"stdin:3: has 3 fields, the header has 2",
				"stdin:4: a quote inside an unquoted field, at column 5",
				"stdin:5: a quoted field that does not end properly, at column 6",
				`stdin:7: "name" is not valid UTF-8; save the file as UTF-8`,
			},
			places: 1,
		},
		"csv with a foreign column of a known name": {
			text: "id,Name,name\n1,,B\n2,A,B\n", want: []string{"stdin:2: name: is required"}, places: 1,
		},
		"csv quote left open": {
			text:   "id,name\np1,\"A\np2,B\n",
			want:   []string{"stdin:2: a quoted field that does not end properly; lines 2 to 3 are left out"},
			places: 0,
		},
		"json elements": {
			text: "[1,\n{\"name\":5,\"placeId\":true},\n{\"placeId\":\"a\",\"placeId\":\"b\",\"name\":\"A\"},\n{\"placeId\":\"p\",\"name\":\"N\",\"location\":[1,2]},{\"placeId\":\"q\",\"name\":\"N\",\"location\":{\"lat\":1}},\"\xd7\"]",
			want: []string{
				"stdin:1: must be an object, got a number",
				"stdin:2: name: must be a string, got a number; placeId: must be a string, got a boolean",
				"stdin:3: placeId: occurs twice",
				"stdin:4: location: must be an object, got an array",
				"stdin:4: location.lng: is required",
				"stdin:4: is not UTF-8",
			},
		},
		"json city after the results": {
			text:   `{"results":[{"placeId":"p","name":"N"}],"cityText":"Haifa"}`,
			want:   []string{"stdin:1: cityText: comes after results and is not used; put it before them"},
			places: 1,
		},
		"json lines": {
			config: Config{Format: FormatJSONLines, MaxRecordBytes: 64},
			text:   "{\n[]\n{\"placeId\":\"" + strings.Repeat("x", 100_000) + "\"}\n{\"placeId\":\"p\",\"name\":\"N\"} x\n{\"placeId\":\"p\",\"name\":\"N\"}\n",
			want: []string{
				"stdin:1: is not JSON: unexpected end of JSON input",
				"stdin:2: must be an object, got an array",
				"stdin:3: the line is longer than 64 bytes",
				"stdin:4: is not JSON: invalid character 'x' after top-level value",
			},
			places: 1,
		},
		"rules of the wire format": {
			text: "id,name,wolt\np1,C,soon\n",
			want: []string{
				"stdin:2: wolt: must be an object, got a string",
			},
		},
		"bounds of the wire format": {
			text: "id,name\n" + strings.Repeat("x", contracts.MaxID+1) + ",A\np2," + strings.Repeat("x", 1025) + "\n",
			want: []string{
				fmt.Sprintf("stdin:2: placeId: has %d bytes, at most %d", contracts.MaxID+1, contracts.MaxID),
				"stdin:3: name: has 1025 bytes, at most 1024",
			},
		},
		"the same place again": {text: "id,name\np1,A\np1,A\np1,C\n", places: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bodies, report, err := read(t, tc.text, tc.config)
			check.OK(t, err)
			check.Equal(t, tc.want, problems(report))
			check.That(t, len(bodies) == tc.places && report.Places == tc.places,
				"places: got %d, reported %d, want %d", len(bodies), report.Places, tc.places)
			sum := report.Bad + report.Places
			check.That(t, sum == report.Rows && report.Bad == len(tc.want), "report does not add up: %+v", report)
		})
	}
}

func TestReaderFailures(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 20_000)
	for name, tc := range map[string]struct {
		config Config
		text   string
		want   error
		starts string
	}{
		"csv without a header":       {text: "f1,spago,los angeles\n", want: ErrHeader, starts: "stdin:1: "},
		"csv with a column twice":    {text: "id,name,x,x\n", want: ErrHeader, starts: "stdin:1: "},
		"csv with a foreign header":  {text: "id,\xe9\n", want: ErrEncoding, starts: "stdin:1: "},
		"csv with an endless quote":  {config: Config{MaxRecordBytes: 64}, text: "id,name\np1,\"" + long, want: ErrRecordTooLarge, starts: "stdin:2: "},
		"json with a broken element": {text: "[\n{\"placeId\":\"p\",\"name\":\"N\"},\n\n{\"a\":\n x}]", want: ErrSyntax, starts: "stdin:5: "},
		"json with a missing comma":  {text: "[{\"placeId\":\"p\",\"name\":\"N\"}\n{}]", want: ErrSyntax, starts: "stdin:2: "},
		"json that ends early":       {text: "[{\"placeId\":\"p\",\"name\":\"N\"},\n{\"a\":", want: ErrSyntax, starts: "stdin:2: "},
		"json without an end":        {text: "[\n", want: ErrSyntax, starts: "stdin:2: "},
		"json of a number":           {config: Config{Format: FormatJSON}, text: "\n7", want: ErrSyntax, starts: "stdin:2: "},
		"json with odd results":      {text: `{"results":"x"}`, want: ErrSyntax, starts: "stdin:1: "},
		"json with an odd city":      {text: `{"cityText":5,"results":[]}`, want: ErrSyntax, starts: "stdin:1: "},
		"json with a huge element":   {config: Config{MaxRecordBytes: 64}, text: `[{"placeId":"` + long + `"}]`, want: ErrRecordTooLarge, starts: "stdin:1: "},
		"json with a huge place":     {config: Config{MaxRecordBytes: 64}, text: `{` + strings.Repeat(`"a":1,`, 1000) + `"b":1}`, want: ErrRecordTooLarge, starts: "stdin:1: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := read(t, tc.text, tc.config)
			check.That(t, errors.Is(err, tc.want) && strings.HasPrefix(fmt.Sprint(err), tc.starts), "got %v, want %v at %s", err, tc.want, tc.starts)
		})
	}
}

func TestReaderMaxProblems(t *testing.T) {
	t.Parallel()
	_, report, err := read(t, "id,name\n"+strings.Repeat(",\n", 500), Config{})
	check.That(t, err == nil && len(report.Problems) == 100 && report.Bad == 500,
		"got %d problems of %d, %v", len(report.Problems), report.Bad, err)
}

func TestReaderUTF16(t *testing.T) {
	t.Parallel()
	text := []byte{0xff, 0xfe}
	for _, r := range "id,name\np1,קפה\n" {
		text = append(text, byte(r), byte(r>>8))
	}
	bodies, _, err := read(t, string(text), Config{})
	check.That(t, err == nil && len(bodies) == 1 && strings.Contains(bodies[0], "קפה"), "got %q, %v", bodies, err)
}

func TestReaderFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		check.OK(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	paths := []string{
		write("a.csv", "id,name\np1,A\np2,B\n"),
		write("b.ndjson", "{\"placeId\":\"p3\",\"name\":\"C\"}\n{\"placeId\":\"p1\",\"name\":\"\"}\n"),
		write("c.json", "{\"placeId\":\"p4\",\"name\":\"D\"}"),
	}
	reader := NewReader(Config{})
	var offset int64
	var ids []string
	for place, err := range reader.Files(t.Context(), paths...) {
		check.OK(t, err)
		check.That(t, place.Offset > offset, "%s: offset %d after %d", place.Restaurant.PlaceID, place.Offset, offset)
		offset = place.Offset
		ids = append(ids, place.Restaurant.PlaceID)
	}
	check.Equal(t, []string{"p1", "p2", "p3", "p4"}, ids)
	check.Same(t, "the last offset", offset, Size(paths...))
	want := paths[1] + ":2: name: is required"
	check.Equal(t, []string{want}, problems(reader.Report()))
}

func TestReaderFileMissing(t *testing.T) {
	t.Parallel()
	reader := NewReader(Config{})
	for _, err := range reader.Files(t.Context(), filepath.Join(t.TempDir(), "none.csv")) {
		check.Is(t, err, os.ErrNotExist)
	}
}

// silentReader is a terminal that nobody types at.
type silentReader struct{ asked, release chan struct{} }

func (r silentReader) Read([]byte) (int, error) {
	close(r.asked)
	<-r.release
	return 0, io.EOF
}

func TestReaderStdinEndsWithContext(t *testing.T) {
	t.Parallel()
	silent := silentReader{make(chan struct{}), make(chan struct{})}
	defer close(silent.release)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	reader := NewReader(Config{Stdin: silent})
	go func() {
		<-silent.asked
		cancel(cause)
	}()
	for _, err := range reader.Files(ctx, Stdin) {
		check.Is(t, err, cause)
	}
}

func TestReaderStops(t *testing.T) {
	t.Parallel()
	reader := NewReader(Config{Stdin: strings.NewReader("id,name\np1,A\np2,B\n")})
	for _, err := range reader.Files(t.Context(), Stdin) {
		check.Is(t, err, nil)
		break
	}
	check.Same(t, "read places after a break", reader.Report().Places, 1)
}
