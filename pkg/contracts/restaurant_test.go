package contracts_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// request wraps restaurants as they arrive.
func request(restaurants ...string) []byte {
	return []byte(`{"results":[` + strings.Join(restaurants, ",") + `]}`)
}

func decodeOne(t *testing.T, raw string) contracts.Restaurant {
	t.Helper()
	req, err := contracts.Decode[contracts.EnrichRequest](request(raw))
	check.Require(t, err == nil, "decode %s: %v", raw, err)
	return req.Results[0]
}

func appendJSON(t *testing.T, r contracts.Restaurant) string {
	t.Helper()
	raw := check.Must(r.AppendJSON(nil))(t)
	return string(raw)
}

func TestRestaurantKeepsWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"order":           `{"zeta":1,"placeId":"p","alpha":2,"name":"n"}`,
		"numbers":         `{"placeId":"p","name":"n","a":9007199254740993,"b":1.10,"c":1E400,"d":-0,"e":4.50e+0}`,
		"escapes":         `{"placeId":"p","name":"n","a":"\u0041\/<&>","\u0062":"\ud83c\udf55 é"}`,
		"known unchanged": `{"placeId":"\u0070","name":"Caf\u00e9 \/ <b>","location":{"lat":32.0850,"lng":34.780,"zoom":5}}`,
		"nested space":    `{"placeId":"p","name":"n","a":{ "x" : [1,  2]	, "y":{}}}`,
		"nulls":           `{"placeId":"p","name":"n","address":null,"providers":null,"wolt":null,"x":null}`,
		"other providers": `{"placeId":"p","name":"n","providers":{"tripadvisor":{"status":"OPEN","rating":4.50},"x":null}}`,
		"case":            `{"placeId":"p","PLACEID":"q","Name":"z","name":"n"}`,
	} {
		req := check.Must(contracts.Decode[contracts.EnrichRequest](request(raw)))(t)
		encoded := check.Must(contracts.Encode(req))(t)
		check.That(t, bytes.Equal(encoded, request(raw)), "%s: got  %s\nwant %s", name, encoded, request(raw))
	}
}

func TestRestaurantSetState(t *testing.T) {
	t.Parallel()
	found := contracts.ProviderState{Status: contracts.StatusFound, URL: new("https://wolt.com/x?a=1&b=2")}
	for name, test := range map[string]struct {
		in, out    string
		provider   string
		deprecated bool
	}{
		"new, both shapes": {
			in:  `{"placeId":"p","name":"n","k":1}`,
			out: `{"placeId":"p","name":"n","k":1,"providers":{"wolt":{"status":"FOUND","url":"https://wolt.com/x?a=1&b=2"}},"wolt":{"status":"FOUND","url":"https://wolt.com/x?a=1&b=2"}}`, provider: "wolt", deprecated: true,
		},
		"new, migrated": {
			in:  `{"placeId":"p","name":"n"}`,
			out: `{"placeId":"p","name":"n","providers":{"wolt":{"status":"FOUND","url":"https://wolt.com/x?a=1&b=2"}}}`, provider: "wolt",
		},
		"in place": {
			in:  `{"wolt":{"status":"PENDING","url":null},"providers":{"a":{"r":4.50},"wolt":{"status":"PENDING","url":null,"note":1e2},"b":{}},"placeId":"p","name":"n"}`,
			out: `{"wolt":{"status":"FOUND","url":"https://wolt.com/x?a=1&b=2"},"providers":{"a":{"r":4.50},"wolt":{"status":"FOUND","url":"https://wolt.com/x?a=1&b=2","note":1e2},"b":{}},"placeId":"p","name":"n"}`, provider: "wolt", deprecated: true,
		},
		"over null": {
			in:  `{"placeId":"p","name":"n","providers":null,"wolt":null}`,
			out: `{"placeId":"p","name":"n","providers":{"wolt":{"status":"FOUND","url":"https://wolt.com/x?a=1&b=2"}},"wolt":{"status":"FOUND","url":"https://wolt.com/x?a=1&b=2"}}`, provider: "wolt", deprecated: true,
		},
		"third provider": {
			in:  `{"placeId":"p","name":"n","wolt":{"status":"NOT_FOUND","url":null}}`,
			out: `{"placeId":"p","name":"n","wolt":{"status":"NOT_FOUND","url":null},"providers":{"tripadvisor":{"status":"FOUND","url":"https://wolt.com/x?a=1&b=2"}}}`, provider: "tripadvisor", deprecated: true,
		},
		"reason goes": {
			in:  `{"placeId":"p","name":"n","providers":{"wolt":{"status":"PENDING","url":null,"reason":"ambiguous","updatedAt":"2026-01-01T00:00:00Z"}}}`,
			out: `{"placeId":"p","name":"n","providers":{"wolt":{"status":"FOUND","url":"https://wolt.com/x?a=1&b=2"}}}`, provider: "wolt",
		},
	} {
		r := decodeOne(t, test.in)
		untouched := r
		r.SetState(test.provider, found, test.deprecated)
		check.Equal(t, appendJSON(t, r), test.out, name)
		check.Equal(t, appendJSON(t, untouched), test.in, name, "a copy changed")
		state, ok := r.State(test.provider)
		check.That(t, ok && state.Status == contracts.StatusFound && *state.URL == *found.URL, "%s: State = %+v, %v", name, state, ok)
	}
}

func TestRestaurantStatePrefersProviders(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		raw  string
		want contracts.ProviderStatus
		ok   bool
	}{
		"neither":             {`{"placeId":"p","name":"n"}`, "", false},
		"deprecated":          {`{"placeId":"p","name":"n","wolt":{"status":"NOT_FOUND","url":null}}`, "NOT_FOUND", true},
		"providers":           {`{"placeId":"p","name":"n","providers":{"wolt":{"status":"PENDING","url":null}}}`, "PENDING", true},
		"both":                {`{"placeId":"p","name":"n","wolt":{"status":"NOT_FOUND","url":null},"providers":{"wolt":{"status":"PENDING","url":null}}}`, "PENDING", true},
		"providers null":      {`{"placeId":"p","name":"n","wolt":{"status":"NOT_FOUND","url":null},"providers":{"wolt":null}}`, "NOT_FOUND", true},
		"providers no status": {`{"placeId":"p","name":"n","wolt":{"status":"NOT_FOUND","url":null},"providers":{"wolt":{}}}`, "NOT_FOUND", true},
	} {
		state, ok := decodeOne(t, test.raw).State(contracts.ProviderWolt)
		check.That(t, state.Status == test.want && ok == test.ok, "%s: got %q, %v", name, state.Status, ok)
	}
}

func TestRestaurantChangedFields(t *testing.T) {
	t.Parallel()
	r := decodeOne(t, `{"x":1,"phone":"1","name":"n","location":{"lat":1,"lng":2},"placeId":"p"}`)
	r.Name, r.Phone, r.CityText = "m<\"\\\n", "", "קפה"
	r.Location.Lat = 3
	want := `{"cityText":"קפה","x":1,"name":"m<\"\\\n","location":{"lat":3,"lng":2},"placeId":"p"}`
	check.Equal(t, appendJSON(t, r), want, "encoded")
}

func TestRestaurantMadeInGo(t *testing.T) {
	t.Parallel()
	r := contracts.Restaurant{PlaceID: "p", Name: "n", Location: &contracts.Location{Lat: 1.5, Lng: -2}}
	r.SetState("wolt", contracts.ProviderState{Status: contracts.StatusPending}, true)
	want := `{"placeId":"p","name":"n","location":{"lat":1.5,"lng":-2},"providers":{"wolt":{"status":"PENDING","url":null}},"wolt":{"status":"PENDING","url":null}}`
	check.Equal(t, appendJSON(t, r), want, "encoded")
	again := decodeOne(t, want)
	check.That(t, again.Equal(r), "the restaurant that was read back is not equal")
}

func TestRestaurantRefuses(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ raw, path string }{
		"duplicate":          {`{"placeId":"p","name":"n","x":1,"x":2}`, "/results/0/x"},
		"duplicate, escaped": {`{"placeId":"p","name":"n","x":1,"\u0078":2}`, "/results/0/x"},
		"duplicate, nested":  {`{"placeId":"p","name":"n","x":{"a/b":[{"y":1,"y":1}]}}`, "/results/0/x/a~1b/0/y"},
		"half a location":    {`{"placeId":"p","name":"n","location":{"lat":1}}`, "/results/0/location/lng"},
		"state not":          {`{"placeId":"p","name":"n","providers":{"a/b":"FOUND"}}`, "/results/0/providers/a~1b"},
		"deprecated not":     {`{"placeId":"p","name":"n","wolt":true}`, "/results/0/wolt"},
		"lone surrogate":     {`{"placeId":"\ud800","name":"n"}`, "/results/0/placeId"},
		"no id":              {`{"name":"n"}`, "/results/0/placeId"},
		"not an object":      {`"p"`, "/results/0"},
		"null":               {`null`, "/results/0"},
	} {
		_, err := contracts.Decode[contracts.EnrichRequest](request(test.raw))
		check.That(t, failsAt(err, test.path), "%s: got %v, want a complaint about %s", name, err, test.path)
	}
}

func TestRestaurantTextIsQuoted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain": `"plain"`, `a"b`: `"a\"b"`, `a\b`: `"a\\b"`, "a\nb": `"a\nb"`, "\x00": `"\u0000"`, "<é&>": `"<é&>"`, "\u2028": `"\u2028"`,
	} {
		r := contracts.Restaurant{PlaceID: text, Name: "n"}
		check.Equal(t, appendJSON(t, r), `{"placeId":`+want+`,"name":"n"}`, text)
	}
}
