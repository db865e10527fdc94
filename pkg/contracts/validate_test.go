package contracts_test

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []string
			for path := range strings.SplitSeq(test.want, " /") {
				want = append(want, "/"+strings.TrimPrefix(path, "/"))
			}
			got := paths(test.message.Validate())
			check.That(t, slices.Equal(got, want), "got  %v\nwant %v", got, want)
		})
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
