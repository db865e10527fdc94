package contracts_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/contracts/internal/render"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
)

// failsAt reports whether err names the path among its failing fields.
func failsAt(err error, path string) bool {
	var invalid *contracts.ValidationError
	return errors.As(err, &invalid) && errors.Is(err, contracts.ErrInvalid) &&
		slices.ContainsFunc(invalid.Fields, func(f contracts.FieldError) bool { return f.Path == path })
}

func paths(err error) []string {
	var invalid *contracts.ValidationError
	if !errors.As(err, &invalid) {
		return nil
	}
	var list []string
	for _, field := range invalid.Fields {
		list = append(list, field.Path)
	}
	return list
}

func TestDecodeRefusesTheWholeBody(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"empty":            "",
		"space":            " \n",
		"not JSON":         "placeId=p",
		"cut off":          `{"results":[`,
		"trailing garbage": `{"results":[]} x`,
		"second document":  `{"results":[]}{"results":[]}`,
		"array":            `[]`,
		"string":           `"x"`,
		"null":             `null`,
		"not UTF-8":        "{\"results\":[],\"x\":\"\xff\"}",
		"byte order mark":  "\ufeff{\"results\":[]}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := contracts.Decode[contracts.EnrichRequest]([]byte(body))
			got := paths(err)
			check.That(t, slices.Equal(got, []string{""}), "got %v, want one problem of the whole body", err)
		})
	}
}

func TestDecodeBoundsNesting(t *testing.T) {
	t.Parallel()
	for levels, good := range map[int]bool{62: true, 63: true, 64: false, 20_000: false} { // within the object of the message
		deep := strings.Repeat("[", levels) + strings.Repeat("]", levels)
		_, unknown := contracts.Decode[contracts.Event]([]byte(`{"event_id":"e","event_type":"T","aggregate_type":"A","x":` + deep + `}`))
		_, payload := contracts.Decode[contracts.Event]([]byte(`{"event_id":"e","event_type":"T","aggregate_type":"A","payload":` + deep + `}`))
		made := contracts.Event{EventID: "e", EventType: "T", AggregateType: "A", Payload: json.RawMessage(deep)}.Validate()
		places := `"results":[` + strings.Repeat(`{"placeId":"p","name":"n","y":[]},`, 40)
		_, beside := contracts.Decode[contracts.EnrichRequest]([]byte(`{"x":` + deep + `,` + places + `{"placeId":"p","name":"n"}]}`))
		_, within := contracts.Decode[contracts.EnrichRequest]([]byte(`{` + places + `{"placeId":"p","name":"n","x":` + deep[2:len(deep)-2] + `}]}`))
		for of, err := range map[string]error{"unknown": unknown, "payload": payload, "made": made, "beside places": beside, "within a place": within} {
			check.That(t, (err == nil) == good, "%s with %d levels: %v", of, levels, err)
		}
	}
}

// Parts that are kept as bytes are read as strictly as the others.
func TestDecodeRefusesDuplicatesInParts(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"payload", "route", "x"} {
		_, err := contracts.Decode[contracts.Event]([]byte(`{"event_id":"e","event_type":"T","` + name + `":{"a":[{"b":1,"\u0062":2}]}}`))
		got, want := paths(err), []string{"/" + name + "/a/0/b"}
		check.That(t, slices.Equal(got, want), "%s: got %v, want %v", name, err, want)
	}
}

func TestDecodeRefusesTooLarge(t *testing.T) {
	t.Parallel()
	body := make([]byte, contracts.MaxBody+1)
	_, err := contracts.Decode[contracts.EnrichRequest](body)
	check.That(t, errors.Is(err, contracts.ErrTooLarge) && errors.Is(err, contracts.ErrInvalid), "got %v, want ErrTooLarge", err)
}

func TestDecodeNamesEveryField(t *testing.T) {
	t.Parallel()
	_, err := contracts.Decode[contracts.EnrichJob]([]byte(
		`{"provider":"a b","placeId":1,"claim":null,"name":[],"location":{"lat":"x"},"requestedAt":"yesterday","phone":false}`))
	want := []string{
		"/claim", "/location/lat", "/location/lng", "/name", "/phone", "/placeId", "/provider", "/requestId", "/requestedAt",
	}
	got := paths(err)
	slices.Sort(got)
	check.That(t, slices.Equal(got, want), "got %v, want %v", got, want)
}

func TestDecodeBoundsResultsBeforeReadingThem(t *testing.T) {
	t.Parallel()
	body := `{"results":[` + strings.TrimSuffix(strings.Repeat("{},", 100+1), ",") + `]}`
	_, err := contracts.Decode[contracts.EnrichRequest]([]byte(body))
	got := paths(err)
	check.That(t, slices.Equal(got, []string{"/results"}), "got %v, want one problem", err)
}

func TestDecodeBoundsItsReport(t *testing.T) {
	t.Parallel()
	var members strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&members, `,"p%d":1`, i)
	}
	_, err := contracts.Decode[contracts.ResultPatch]([]byte(
		`{"type":"RESULT_PATCH","requestId":"r","placeId":"p","patch":{"providers":{` + members.String()[1:] + `}}}`))
	n := len(paths(err))
	check.That(t, n >= 1000 && n <= 1002, "%d problems kept, want about 1000", n)
	if len(err.Error()) > 4000 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}

func TestDecodeDoesNotKeepTheInput(t *testing.T) {
	t.Parallel()
	body := []byte(`{"results":[{"placeId":"p","name":"n","x":"kept"}]}`)
	req := check.Must(contracts.Decode[contracts.EnrichRequest](body))(t)
	for i := range body {
		body[i] = 'z'
	}
	check.Equal(t, string(req.Results[0].Field("x")), `"kept"`, "unknown field")
}

// The example of RFC 6920, section 8.1.
func ExampleFile() {
	f := contracts.NewFile(`C:\talks\hello.txt`, []byte("Hello World!"))
	fmt.Println(f.URL())
	back, err := contracts.ParseFileURL(f.URL())
	fmt.Println(back.Name, back == f, err)
	// Output:
	// ni:///sha-256;f4OxZX_x_FO5LcGBSKHWXfwtSx-j1ncoSt3SABJtkGk?name=hello.txt
	// hello.txt true <nil>
}

func TestFileURLIsReadBack(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"soup.vtt": "soup.vtt", "": "", "-": "", "/": "", "..": "", "../../etc/passwd": "passwd", `a\b.srt`: "b.srt", "a b&c=d?#%.vtt": "a b&c=d?#%.vtt",
		"\x00\n.vtt": ".vtt", "מרק.vtt": "מרק.vtt", "\xff.vtt": "\uFFFD.vtt", strings.Repeat("x", 900) + ".vtt": strings.Repeat("x", 196) + ".vtt",
	} {
		f := contracts.NewFile(name, []byte("content"))
		check.That(t, f.Name == want && f.Digest == sha256.Sum256([]byte("content")), "%q is named %q, want %q", name, f.Name, want)
		back, err := contracts.ParseFileURL(f.URL())
		check.That(t, err == nil && back == f, "%s is read as %+v, %v", f.URL(), back, err)
		check.ErrorIs(t, (contracts.ImportJob{JobID: "j", OwnerID: "o", URL: f.URL()}).Validate(), nil)
	}
}

func TestNoOtherFileURL(t *testing.T) {
	t.Parallel()
	good := contracts.NewFile("a.vtt", nil).URL()
	for _, bad := range []string{
		"ni:", "ni:///", "ni:///sha-256;", "ni:///sha-256;abc", strings.Replace(good, "///", "//host/", 1), strings.Replace(good, "ni:", "NI:", 1),
		strings.Replace(good, "///", "//user@/", 1), strings.Replace(good, "sha-256", "md5", 1), good + "#f", good + "&name=b", good + "&x=1",
		good + "%0A", strings.Replace(good, "?", "=?", 1), strings.Replace(good, "?name=a.vtt", "?name=..%2Fa.vtt", 1), good + " ", "file:///etc/passwd",
	} {
		check.ErrorIs(t, check.Err(contracts.ParseFileURL(bad)), contracts.ErrInvalid, bad)
		check.ErrorIs(t, (contracts.ImportJob{JobID: "j", OwnerID: "o", URL: bad}).Validate(), contracts.ErrInvalid, bad)
	}
}

// recoders decode and encode each type of the golden corpus. A type never leaves this list, nor a file the corpus.
var recoders = map[string]func([]byte) ([]byte, error){
	"dead-letter": func(data []byte) ([]byte, error) {
		letter, err := worker.ParseDeadLetter(data)
		if err != nil {
			return nil, err
		}
		return json.Marshal(letter)
	},
	"enrich-job":      recode[contracts.EnrichJob],
	"enrich-request":  recode[contracts.EnrichRequest],
	"enrich-response": recode[contracts.EnrichResponse],
	"enrich-result":   recode[contracts.EnrichResult],
	"event":           recode[contracts.Event],
	"import-job":      recode[contracts.ImportJob],
	"import-status":   recode[contracts.ImportStatus],
	"notification":    recode[contracts.Notification],
	"provider-state":  recode[contracts.ProviderState],
	"recipient":       recode[contracts.Recipient],
	"restaurant":      recode[contracts.Restaurant],
	"result-patch":    recode[contracts.ResultPatch],
}

func recode[T contracts.Message](data []byte) ([]byte, error) {
	message, err := contracts.Decode[T](data)
	if err != nil {
		return nil, err
	}
	return contracts.Encode(message)
}

// Each sample of a message fits its schema, and is read and written with the same meaning.
func TestGoldenCorpus(t *testing.T) {
	t.Parallel()
	for name, recode := range recoders {
		schema := compile(t, name)
		files, err := filepath.Glob(filepath.Join("testdata", name, "v*", "*.json"))
		check.That(t, err == nil && len(files) != 0, "%s: no golden files (%v)", name, err)
		for _, file := range files {
			t.Run(name+"/"+filepath.Base(file), func(t *testing.T) {
				t.Parallel()
				golden := check.Must(os.ReadFile(file))(t)
				check.ErrorIs(t, validate(t, schema, string(golden)), nil)
				encoded := check.Must(recode(golden))(t)
				check.Equal(t, meaning(t, encoded), meaning(t, golden))
				if name == "restaurant" && compact(t, golden) != compact(t, encoded) {
					t.Errorf("got  %s\nwant %s", compact(t, encoded), compact(t, golden))
				}
			})
		}
	}
}

// meaning is the document without the parts that carry none: order, white space, unknown members of
// envelopes, which readers ignore, and an explicit null in place of an absent member. Numbers are compared
// digit by digit.
func meaning(t *testing.T, raw []byte) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value map[string]any
	check.OK(t, decoder.Decode(&value))
	for name := range value {
		if strings.HasPrefix(name, "traceNote") {
			delete(value, name)
		}
	}
	return value
}

func TestEveryTypeIsInTheCorpus(t *testing.T) {
	t.Parallel()
	schemas := check.Must(filepath.Glob("schemas/*.json"))(t)
	for name := range render.Types {
		check.That(t, recoders[name] != nil, "%s has a schema and no golden files", name)
	}
	check.Equal(t, len(schemas), len(recoders), "schemas")
	if _, err := contracts.Schema("../contracts"); !os.IsNotExist(err) && err == nil {
		t.Error("a path was accepted as the name of a schema")
	}
	raw, err := contracts.Schema("import-job")
	check.That(t, err == nil && strings.Contains(string(raw), render.URI("import-job")), "import-job: %v", err)
}

// FuzzRestaurant: each accepted restaurant is written byte for byte as it came (but for white space between members),
// and a state can be written into it and read back without touching anything else.
func FuzzRestaurant(f *testing.F) {
	for _, seed := range []string{
		`{"placeId":"p","name":"n"}`,
		`{"placeId":"p","name":"n","wolt":{"status":"PENDING","url":null},"providers":{"wolt":{"status":"FOUND","url":"https://x.example"}}}`,
		`{"x":[1e400,-0,{"\u0041":"<"}],"name":"\ud83c\udf55","placeId":"\u0000","location":{"lat":1.50,"lng":-2}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		body := append(append([]byte(`{"results":[`), raw...), `]}`...)
		req, err := contracts.Decode[contracts.EnrichRequest](body)
		if err != nil || len(req.Results) != 1 {
			return
		}
		first := check.Must(contracts.Encode(req))(t)
		check.That(t, compact(t, first) == compact(t, body), "%s\nbecame\n%s", body, first)
		r := req.Results[0]
		r.SetState(contracts.ProviderWolt, contracts.ProviderState{Status: contracts.StatusNotFound}, true)
		again := decodeOne(t, appendJSON(t, r))
		state, ok := again.State(contracts.ProviderWolt)
		check.That(t, ok && state.Status == contracts.StatusNotFound, "state %+v, %v", state, ok)
		check.Equal(t, others(t, []byte(appendJSON(t, again))), others(t, raw))
	})
}

// compact removes white space and nothing else.
func compact(t *testing.T, raw []byte) string {
	t.Helper()
	var b bytes.Buffer
	check.OK(t, json.Compact(&b, raw))
	return b.String()
}

// others returns the members that SetState must not touch.
func others(t *testing.T, raw []byte) map[string]string {
	t.Helper()
	var all map[string]json.RawMessage
	check.OK(t, json.Unmarshal(raw, &all))
	rest := make(map[string]string)
	for name, value := range all {
		if name != "wolt" && name != "providers" {
			rest[name] = compact(t, value)
		}
	}
	return rest
}
