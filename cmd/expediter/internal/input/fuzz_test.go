package input

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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
		`[{"placeId":"p","name":"N"}]`, `{"cityText":"X","results":[{"id":1,"name":"N","lat":1,"lng":"2"}]}`, `{"id":"p","name":"N"}{"id":"p","name":"M"}`,
		`[{"id":"p","name":"N","location":{"latitude":1,"lng":2,"x":null}},null,[],{"`, `{"results":[],"results":[1]}`, "[[]]", `{"a`, "\xef\xbb\xbf[]",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) { checkInvariants(t, FormatJSON, text) })
}

func FuzzJSONLines(f *testing.F) {
	for _, seed := range []string{"{\"placeId\":\"p\",\"name\":\"N\"}\n{}\n\n[", `{"id":1e5,"name":"\ud800"}`, "{\"id\":\"\\u0000\",\"name\":\" x \"} {}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) { checkInvariants(t, FormatJSONLines, text) })
}

// checkInvariants reads a text in any state. Whatever comes out as a place has to be usable, has to say the same when
// its body is read again, and the report has to add up.
func checkInvariants(t *testing.T, format Format, text string) {
	t.Helper()
	reader, err := NewReader(Config{Format: format, MaxIDs: 100, MaxRecordBytes: 4096, Stdin: strings.NewReader(text)})
	check.OK(t, err)
	places := 0
	for place, err := range reader.Files(t.Context(), Stdin) {
		if err != nil {
			if !errors.Is(err, ErrSyntax) && !errors.Is(err, ErrHeader) && !errors.Is(err, ErrEncoding) && !errors.Is(err, ErrRecordTooLarge) {
				t.Errorf("untyped error: %v", err)
			}
			continue
		}
		places++
		checkPlace(t, place)
	}
	report := reader.Report()
	if report.Places != places || report.Rows != report.Bad+report.Duplicates+report.Places || len(report.Problems) > report.Bad {
		t.Errorf("%d places, report %+v", places, report)
	}
}

func checkPlace(t *testing.T, place Place) {
	t.Helper()
	if place.Restaurant.PlaceID == "" || place.Restaurant.Name == "" || place.Position.Line < 1 {
		t.Errorf("incomplete: %+v", place)
	}
	if !json.Valid(place.Body) {
		t.Fatalf("body is not JSON: %s", place.Body)
	}
	fields, err := parseObject(place.Body)
	if err != nil {
		t.Fatalf("body %s: %v", place.Body, err)
	}
	again, problem := record{fields: fields, raw: place.Body, position: place.Position, end: place.Offset}.place()
	if problem != nil {
		t.Fatalf("body %s: %v", place.Body, problem)
	}
	if string(again.Body) != string(place.Body) {
		t.Errorf("body changes when it is read again:\n%s\n%s", place.Body, again.Body)
	}
	if !again.Restaurant.Equal(place.Restaurant) {
		t.Errorf("the place changes when its body is read again:\n%+v\n%+v", place, again)
	}
}
