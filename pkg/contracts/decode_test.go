package contracts_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/santhosh-tekuri/jsonschema/v6"

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
		"cut off":          `{"results":[`,
		"trailing garbage": `{"results":[]} x`,
		"array":            `[]`,
		"null":             `null`,
		"not UTF-8":        "{\"results\":[],\"x\":\"\xff\"}",
		"byte order mark":  "\ufeff{\"results\":[]}",
	} {
		_, err := contracts.Decode[contracts.EnrichRequest]([]byte(body))
		check.Equal(t, paths(err), []string{""}, name+": a problem of the whole body")
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
		check.Equal(t, paths(err), []string{"/" + name + "/a/0/b"})
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
	check.Equal(t, slices.Sorted(slices.Values(paths(err))), []string{
		"/claim", "/location/lat", "/location/lng", "/name", "/phone", "/placeId", "/provider", "/requestId", "/requestedAt",
	})
}

func TestDecodeBoundsResultsBeforeReadingThem(t *testing.T) {
	t.Parallel()
	body := `{"results":[` + strings.TrimSuffix(strings.Repeat("{},", 100+1), ",") + `]}`
	_, err := contracts.Decode[contracts.EnrichRequest]([]byte(body))
	check.Equal(t, paths(err), []string{"/results"})
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
	check.That(t, len(err.Error()) <= 4000, "the error has %d bytes", len(err.Error()))
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
	check.That(t, check.Err(contracts.Schema("../contracts")) != nil, "a path was accepted as the name of a schema")
	raw, err := contracts.Schema("import-job")
	check.That(t, err == nil && strings.Contains(string(raw), render.URI("import-job")), "import-job: %v", err)
}

// compact removes white space and nothing else.
func compact(t *testing.T, raw []byte) string {
	t.Helper()
	var b bytes.Buffer
	check.OK(t, json.Compact(&b, raw))
	return b.String()
}

// TestValidateNamesEveryField breaks every field of each type at once. Values that JSON cannot express (NaN,
// bytes that are not UTF-8, a year after 9999) are among them: a message is also checked before it is
// written.
func TestValidateNamesEveryField(t *testing.T) {
	t.Parallel()
	var (
		long  = strings.Repeat("x", contracts.MaxText+1)
		never = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
		raw   = json.RawMessage(`{"a":1,"a":2}`)
		bad   = "ftp://x.example"
	)
	for name, test := range map[string]struct {
		message contracts.Message
		want    string
	}{
		"provider state": {
			contracts.ProviderState{Status: "X", URL: &bad, Reason: "a b", UpdatedAt: never},
			"/status /url /reason /reason /updatedAt",
		},
		"found without url":   {contracts.ProviderState{Status: contracts.StatusFound}, "/url"},
		"url with password":   {contracts.ProviderState{Status: contracts.StatusFound, URL: new("https://u:p@x.example")}, "/url"},
		"url with line break": {contracts.ProviderState{Status: contracts.StatusFound, URL: new("https://x.example/\r\nx")}, "/url"},
		"long url":            {contracts.ProviderState{Status: contracts.StatusFound, URL: new("https://x.example/" + strings.Repeat("x", contracts.MaxURL))}, "/url"},
		"url without host":    {contracts.ProviderState{Status: contracts.StatusFound, URL: new("https:///x")}, "/url"},
		"restaurant": {
			contracts.Restaurant{
				Address: long, CityText: long, Phone: "\xff", PlaceID: "\ufffd",
				Location: &contracts.Location{Lat: math.NaN(), Lng: math.Inf(1)},
			},
			"/placeId /name /address /cityText /phone /location/lat /location/lng",
		},
		"enrich request": {
			contracts.EnrichRequest{RequestID: long, CityText: long, Providers: make([]string, 17), WaitMS: -1},
			"/requestId /cityText /providers" + func() string {
				var b strings.Builder
				for i := range 17 {
					b.WriteString(" /providers/" + string("0123456789abcdefg"[i]))
				}
				return strings.NewReplacer("/a", "/10", "/b", "/11", "/c", "/12", "/d", "/13", "/e", "/14", "/f", "/15", "/g", "/16").Replace(b.String())
			}() + " /results /waitMs",
		},
		"too many results": {contracts.EnrichRequest{Results: make([]contracts.Restaurant, 100+1)}, "/results"},
		"enrich response": {
			contracts.EnrichResponse{Results: []contracts.Restaurant{{}}, Pending: -1, Skipped: "a b"},
			"/requestId /results/0/placeId /results/0/name /pending /skipped",
		},
		"enrich job": {
			contracts.EnrichJob{Address: long, CityText: long, Phone: long, RequestedAt: never, Location: &contracts.Location{Lat: 91}},
			"/provider /placeId /requestId /claim /name /address /cityText /location/lat /phone /requestedAt",
		},
		"enrich result": {
			contracts.EnrichResult{
				Status: contracts.StatusFound, Outcome: contracts.OutcomeError, Score: math.NaN(), Evidence: raw,
				Venue: &contracts.Venue{ID: long, Name: long, Address: long, City: long, URL: "x"}, Matcher: long,
			},
			"/url /updatedAt /outcome /score /evidence/a /venue/id /venue/name /venue/address /venue/city /venue/url /matcher",
		},
		"result patch": {
			contracts.ResultPatch{Patch: contracts.Patch{
				Providers: map[string]contracts.ProviderState{"a b": {}, "wolt": {Status: contracts.StatusFound}},
				Wolt:      &contracts.ProviderState{},
			}},
			"/type /requestId /placeId /patch/providers/a b /patch/providers/a b/status /patch/providers/wolt/url /patch/wolt/status",
		},
		"import job": {
			contracts.ImportJob{JobID: "../x", SourceType: "a b", Priority: "x", RequestedAt: never},
			"/job_id /owner_id /source_type /url /priority /requested_at",
		},
		"import status": {
			contracts.ImportStatus{JobID: "a/b", Status: "X", RecipeID: long, Code: "a b", Error: long, Step: "a b", Progress: math.NaN(), Attempt: -1, UpdatedAt: never},
			"/job_id /status /recipe_id /recipe_id /code /code /error /step /progress /attempt /updated_at",
		},
		"ready without recipe": {contracts.ImportStatus{Status: contracts.ImportReady}, "/recipe_id"},
		"failed without code":  {contracts.ImportStatus{Status: contracts.ImportFailed}, "/code"},
		"running with recipe":  {contracts.ImportStatus{Status: contracts.ImportRunning, RecipeID: "r"}, "/recipe_id"},
		"event": {
			contracts.Event{AggregateID: long, UserID: long, OccurredAt: never, NotBefore: never, Payload: raw, Extra: map[string]json.RawMessage{
				"user_id": json.RawMessage("1"), "x": raw, "\xff": nil, "y": json.RawMessage("{"), "ok": json.RawMessage("null"), "": nil,
			}},
			"/event_id /event_type /aggregate_type /aggregate_id /user_id /occurred_at /not_before /payload/a /user_id /x/a /y /\xff",
		},
		"notification": {
			contracts.Notification{RecipientType: "BROADCAST", Category: "a b", Template: long, Locale: "a b", NotBefore: never, Payload: raw, Priority: "a b", Recipient: &contracts.Recipient{UserID: "u"}},
			"/event_id /user_id /recipient_type /channel /event_type /category /priority /template /locale /created_at /not_before /payload/a /recipient/recipient_type",
		},
		"recipient": {
			contracts.Recipient{
				RecipientType: "BROADCAST", Addresses: map[string]string{"a b": "x", "email": "a\nb", "sms": "\ufffd"}, Locale: "a b",
				Endpoints: map[string]map[string]contracts.Endpoint{
					"a b": nil, "inapp": nil, "email": {
						"1": {Address: "x"}, "a b": {Address: "x"}, "main": {Address: "x"}, "ok": {Address: "x", Events: []string{"A*", "*", "B"}},
						"worse": {Address: "\ufffd"},
						"worst": {Events: []string{"A*B", ""}, Generation: -1, Previous: -1, Name: long + long + long + long, RotatedAt: never},
					},
				},
				Mute: map[string]time.Time{"*": time.Now(), "a b": time.Now(), "c": {}}, Digest: map[string]string{"*": "off", "a b": "1h", "c": "7m"},
				OptOut: map[string][]string{"*": {"*", "a b"}}, QuietHours: &contracts.QuietHours{From: "24:00", To: "7:00"}, TimeZone: "Factory",
			},
			"/user_id /recipient_type /addresses/a b /addresses/email /addresses/sms /endpoints/a b /endpoints/email/1 /endpoints/email/a b " +
				"/endpoints/email/main/address /endpoints/email/worse/address /endpoints/email/worst/address /endpoints/email/worst/events/0 " +
				"/endpoints/email/worst/events/1 /endpoints/email/worst/generation /endpoints/email/worst/previous " +
				"/endpoints/email/worst/name /endpoints/email/worst/rotated_at /endpoints/inapp /locale /opt_out/* /mute/a b /mute/c /digest/a b /digest/c /quiet_hours/from /quiet_hours/to /time_zone",
		},
	} {
		var want []string
		for path := range strings.SplitSeq(test.want, " /") {
			want = append(want, "/"+strings.TrimPrefix(path, "/"))
		}
		got := paths(test.message.Validate())
		check.That(t, slices.Equal(got, want), "%s: got  %v\nwant %v", name, got, want)
	}
}

func TestParseDigest(t *testing.T) {
	t.Parallel()
	for wish, want := range map[string]contracts.Digest{
		"off": {}, "30m": {Every: 30}, "24h": {Every: 1440}, "09:00": {At: []string{"09:00"}}, "09:00,17:30": {At: []string{"09:00", "17:30"}},
	} {
		var got contracts.Digest
		err := got.Parse(wish)
		check.That(t, err == nil && reflect.DeepEqual(got, want), "%s: %+v, %v", wish, got, err)
	}
	for _, wish := range []string{"", "0m", "-30m", "90s", "7m", "48h", "9:00", "24:00", "09:00, 17:00", "09:00,09:00", strings.Repeat("09:00,", 30)} {
		var got contracts.Digest
		err := got.Parse(wish)
		check.That(t, err != nil, "%q is %+v", wish, got)
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	url := "https://x.example"
	for outcome, want := range map[contracts.Outcome]contracts.ProviderState{
		contracts.OutcomeFound:     {Status: contracts.StatusFound, URL: new(url)},
		contracts.OutcomeNotFound:  {Status: contracts.StatusNotFound},
		contracts.OutcomeAmbiguous: {Status: contracts.StatusPending, Reason: "ambiguous"},
		contracts.OutcomeError:     {Status: contracts.StatusPending, Reason: "provider_error"},
	} {
		result := contracts.EnrichResult{Outcome: outcome, Status: outcome.Status(), UpdatedAt: time.Unix(1, 0)}
		if outcome == contracts.OutcomeFound {
			result.URL = &url
		}
		state := result.State()
		if err := result.Validate(); err != nil || state.Validate() != nil || state.Status != want.Status || state.Reason != want.Reason {
			t.Errorf("%s: got %+v, %v", outcome, state, err)
		}
		answer := want.Status != contracts.StatusPending
		check.That(t, outcome.Answer() == answer, "%s: Answer() is %v", outcome, !answer)
	}
	for state, final := range map[contracts.ImportState]bool{
		contracts.ImportQueued: false, contracts.ImportRunning: false, contracts.ImportReady: true, contracts.ImportFailed: true,
	} {
		check.That(t, state.Final() == final, "%s: Final() is %v", state, !final)
	}
}

const minimalEvent = `{"event_id":"e","event_type":"X","aggregate_type":"Y"`

// Members without a field are kept in Extra, and written next to the fields: the bytes of each value stay, but for white space.
func TestExtraIsWrittenAsItWasRead(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		minimalEvent + `}`: ``,
		minimalEvent + `,"b":1.0,"a":{ "z": 1, "y": [ 2 ] }}`:                `,"a":{"z":1,"y":[2]},"b":1.0`,
		minimalEvent + `,"n":null}`:                                          `,"n":null`,
		minimalEvent + `,"Event_ID":"f","Extra":{},"extra":[],"-":0}`:        `,"-":0,"Event_ID":"f","Extra":{},"extra":[]`,
		minimalEvent + `,"":1,"\u0061/~\"":"\u003c<\u2028&>"}`:               `,"":1,"a/~\"":"\u003c<\u2028&>"`,
		minimalEvent + `,"half":["\ud83d","\udc00"],"whole":"\ud83d\ude00"}`: `,"half":["\ud83d","\udc00"],"whole":"\ud83d\ude00"`,
		minimalEvent + `,"\ud83d":"half a name","nul":"\u0000"}`:             `,"nul":"\u0000","�":"half a name"`,
		minimalEvent + `,"big":12345678901234567890.10,"huge":1e400}`:        `,"big":12345678901234567890.10,"huge":1e400`,
		minimalEvent + `,"user_id":null,"payload":null,"x":""}`:              `,"payload":null,"x":""`,
	} {
		e := check.Must(contracts.Decode[contracts.Event]([]byte(body)))(t)
		check.Equal(t, string(check.Must(contracts.Encode(e))(t)), minimalEvent+want+`}`, body)

		// All other ways to read and to write an event are the same.
		var v1, v2 contracts.Event
		check.OK(t, json.Unmarshal([]byte(body), &v1))
		check.Equal(t, v1, e)
		if !strings.Contains(body, `\ud83d"`) { // which encoding/json/v2 refuses by default
			check.OK(t, jsonv2.Unmarshal([]byte(body), &v2))
			check.Equal(t, v2, e)
		}
		again := check.Must(contracts.Decode[contracts.Event](check.Must(json.Marshal(e))(t)))(t)
		check.Equal(t, check.Must(again.Fingerprint())(t), check.Must(e.Fingerprint())(t), "fingerprint of "+body)
		msg := check.Must(e.Msg("/source"))(t)
		envelope := check.Must(contracts.ParseCloudEvent(msg.Header, msg.Data))(t)
		inside := check.Must(contracts.Decode[contracts.Event](envelope.Data))(t)
		check.Equal(t, string(check.Must(contracts.Encode(inside))(t)), minimalEvent+want+`}`, "in a CloudEvent")
	}
}

// Extra is as strict as the rest of an event.
func TestExtraIsChecked(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 64) + strings.Repeat("]", 64)
	for body, want := range map[string]string{
		`,"a":1,"\u0061":2}`:             "/a",
		`,"a":{"b":[{"c":1,"c":2}]}}`:    "/a/b/0/c",
		`,"event\u005fid":"f"}`:          "/event_id",
		`,"\ud83d":1,"\ud83e":2}`:        "/�",
		`,"a":` + deep + `}`:             "",
		`,"a":"` + "\xed\xa0\x80" + `"}`: "",
		`,"a":01}`:                       "",
		`,"a":}`:                         "",
	} {
		_, err := contracts.Decode[contracts.Event]([]byte(minimalEvent + body))
		got := paths(err)
		check.That(t, len(got) == 1 && got[0] == want, "%.60s: %v, want a problem at %q", body, err, want)
		check.That(t, json.Unmarshal([]byte(minimalEvent+body), new(contracts.Event)) != nil, "encoding/json takes %.60s", body)
	}
	made := contracts.Event{EventID: "e", EventType: "X", AggregateType: "Y"}
	for name, value := range map[string]string{"event_id": `"f"`, "occurred_at": "null", "a": "{", "b": deep, "c": `{"x":1,"x":2}`, "d": "1 2", "\xff": "1"} {
		made.Extra = map[string]json.RawMessage{name: json.RawMessage(value)}
		_, err := contracts.Encode(made)
		check.That(t, errors.Is(err, contracts.ErrInvalid), "%q: %v", name, err)
	}
	made.Extra = map[string]json.RawMessage{"large": json.RawMessage(`"` + strings.Repeat("x", contracts.MaxBody) + `"`)}
	check.ErrorIs(t, check.Err(made.Msg("/source")), contracts.ErrTooLarge)
	made.Extra = map[string]json.RawMessage{"a": nil, "b": {}}
	check.Equal(t, string(check.Must(contracts.Encode(made))(t)), minimalEvent+"}", "empty values")
}

// The members of Extra count for the identity of an event, as its fields do.
func TestFingerprintCountsExtra(t *testing.T) {
	t.Parallel()
	mark := func(more string) string {
		e := check.Must(contracts.Decode[contracts.Event]([]byte(minimalEvent + more + "}")))(t)
		return check.Must(e.Fingerprint())(t)
	}
	check.Equal(t, mark(`,"b":{"d":4.0,"c":1},"a":"\u0041"`), mark(`,"a":"A","b":{"c":1,"d":4},"occurred_at":"2026-01-01T00:00:00Z"`),
		"order and spelling")
	for _, other := range []string{`,"a":null`, `,"a":1`, `,"a":"1"`, `,"b":1`, `,"user_id":"1"`, `,"payload":1`} {
		check.That(t, mark(other) != mark(""), "%s is the event without it", other)
		check.That(t, other == `,"a":1` || mark(other) != mark(`,"a":1`), "%s is another", other)
	}
}

// compile returns the validator of a schema, as a user of the embedded files would make it.
func compile(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	raw := check.Must(contracts.Schema(name))(t)
	document := check.Must(jsonschema.UnmarshalJSON(bytes.NewReader(raw)))(t)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	check.OK(t, compiler.AddResource(render.URI(name), document))
	return check.Must(compiler.Compile(render.URI(name)))(t)
}

func validate(t *testing.T, schema *jsonschema.Schema, body string) error {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	check.Require(t, err == nil, "%s: %v", body, err)
	return schema.Validate(document)
}

// pathsOf returns the places that a schema complains about, as JSON Pointers. A missing member is at its parent.
func pathsOf(err error) []string {
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return nil
	}
	paths := []string{pointer(invalid.InstanceLocation)}
	for _, cause := range invalid.Causes {
		paths = append(paths, pathsOf(cause)...)
	}
	return paths
}

func pointer(location []string) string {
	var b strings.Builder
	for _, token := range location {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	return b.String()
}

// bad are inputs that both the schema and Decode refuse, at the same place.
var bad = map[string][]struct{ body, path string }{
	"provider-state": {
		{`{"status":"MAYBE","url":null}`, "/status"},
		{`{"status":"FOUND","url":null}`, "/url"},
		{`{"status":"FOUND","url":"ftp://x.example"}`, "/url"},
		{`{"status":"NOT_FOUND","url":"https://x.example"}`, "/url"},
		{`{"status":"PENDING","url":null,"updatedAt":"yesterday"}`, "/updatedAt"},
	},
	"restaurant": {
		{`{"placeId":"","name":"n"}`, "/placeId"},
		{`{"placeId":"p","name":" "}`, "/name"},
		{`{"placeId":"` + strings.Repeat("x", 321) + `","name":"n"}`, "/placeId"},
		{`{"placeId":"p","name":"n","location":{"lat":90.1,"lng":0}}`, "/location/lat"},
		{`{"placeId":"p","name":"n","providers":{"x":1}}`, "/providers/x"},
	},
	"enrich-request": {
		{`{"results":[{"placeId":"p","name":"n"},{"placeId":"","name":"n"}]}`, "/results/1/placeId"},
		{`{"results":[` + strings.TrimSuffix(strings.Repeat(`{"placeId":"p","name":"n"},`, 101), ",") + `]}`, "/results"},
		{`{"results":[],"providers":["a.b"]}`, "/providers/0"},
		{`{"results":[],"waitMs":60001}`, "/waitMs"},
		{`{"results":[],"waitMs":1.5}`, "/waitMs"},
	},
	"enrich-response": {
		{`{"requestId":"","results":[],"pending":0}`, "/requestId"},
		{`{"requestId":"r","results":[],"pending":-1}`, "/pending"},
	},
	"enrich-job": {
		{`{"provider":"a.b","placeId":"p","requestId":"r","claim":"c","name":"n"}`, "/provider"},
		{`{"provider":"wolt","placeId":"p","requestId":"r","claim":"c","name":""}`, "/name"},
		{`{"provider":"wolt","placeId":"p","requestId":"r","claim":"c","name":"n","location":{"lat":0,"lng":181}}`, "/location/lng"},
	},
	"enrich-result": {
		{`{"status":"FOUND","url":null,"updatedAt":"2026-02-03T12:00:00Z"}`, "/url"},
		{`{"status":"NOT_FOUND","url":null,"updatedAt":"2026-02-03T12:00:00Z","score":1.1}`, "/score"},
	},
	"result-patch": {
		{`{"type":"PATCH","requestId":"r","placeId":"p","patch":{"providers":{"wolt":{"status":"PENDING","url":null}}}}`, "/type"},
		{`{"type":"RESULT_PATCH","requestId":"r","placeId":"p","patch":{"providers":{}}}`, "/patch/providers"},
	},
	"import-job": {
		{`{"job_id":"../etc","owner_id":"o","url":"https://x.example"}`, "/job_id"},
		{`{"job_id":"a\u0000b","owner_id":"o","url":"https://x.example"}`, "/job_id"},
		{`{"job_id":"j","owner_id":"o","url":"file:///etc/passwd"}`, "/url"},
		{`{"job_id":"j","owner_id":"o","url":"https://x.example","priority":"urgent"}`, "/priority"},
	},
	"import-status": {
		{`{"status":"FAILED","code":"a b"}`, "/code"},
	},
	"event": {
		{`{"event_id":"","event_type":"X","aggregate_type":"Y"}`, "/event_id"},
		{`{"event_id":"e","event_type":"X","aggregate_type":"Y","occurred_at":"2025"}`, "/occurred_at"},
	},
	"notification": {
		{`{"event_id":"e","user_id":"u","recipient_type":"ADMIN","channel":"push","address":"1","event_type":"X","created_at":"2025-01-21T10:15:30Z"}`, "/address"},
	},
	"recipient": {
		{`{"user_id":"u","recipient_type":"ADMIN","endpoints":{"push":{"phone":{"address":5}}}}`, "/endpoints/push/phone/address"},
		{`{"user_id":"u","recipient_type":"ADMIN","endpoints":{"push":{"phone":{"address":"x","generation":-1}}}}`, "/endpoints/push/phone/generation"},
	},
}

func TestSchemaAndDecodeRefuseTheSame(t *testing.T) {
	t.Parallel()
	for name, inputs := range bad {
		schema := compile(t, name)
		for _, input := range inputs {
			got := pathsOf(validate(t, schema, input.body))
			check.That(t, slices.Contains(got, input.path), "%s: %.120s: the schema complains about %q, want %s", name, input.body, got,
				input.path)
			err := check.Err(recoders[name]([]byte(input.body)))
			check.That(t, failsAt(err, input.path), "%s: %.120s: Decode says %v, want %s", name, input.body, err, input.path)
		}
	}
}

// TestSchemaAndDecodeRequireTheSame takes each member out of a golden file in turn.
func TestSchemaAndDecodeRequireTheSame(t *testing.T) {
	t.Parallel()
	for name, required := range map[string]struct{ golden, members string }{
		"enrich-job":      {"minimal", "provider placeId requestId claim name"},
		"enrich-request":  {"minimal", "results"},
		"enrich-response": {"skipped", "requestId results pending"},
		"enrich-result":   {"cache-entry", "status url updatedAt"},
		"event":           {"minimal", "event_id event_type aggregate_type"},
		"import-job":      {"three-members", "job_id owner_id url"},
		"import-status":   {"running", "status"},
		"notification":    {"minimal", "event_id user_id recipient_type channel event_type created_at"},
		"provider-state":  {"found", "status url"},
		"result-patch":    {"migrated", "type requestId placeId patch"},
	} {
		schema := compile(t, name)
		golden := check.Must(os.ReadFile(filepath.Join("testdata", name, "v1", required.golden+".json")))(t)
		for member := range strings.FieldsSeq(required.members) {
			body := strings.Replace(string(golden), `"`+member+`"`, `"other"`, 1)
			check.That(t, validate(t, schema, body) != nil, "%s: the schema accepts it without %s", name, member)
			err := check.Err(recoders[name]([]byte(body)))
			check.That(t, failsAt(err, "/"+member), "%s without %s: Decode says %v", name, member, err)
		}
	}
}
