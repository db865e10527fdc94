package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// The relay sets aside what the notifier would refuse, before the event is in the stream.
func TestRelayRefusesWhatTheNotifierRefuses(t *testing.T) {
	t.Parallel()
	for extra, want := range map[string]string{
		`{}`: "", `{"tenant":1,"Route":{}}`: "", `{"restaurant_id":"5","recipientType":"BROADCAST"}`: "", `{"recipients":null}`: "",
		`{"recipients":{"a":1}}`: "/recipients",
		`{"recipients":[[[1]]]}`: "/recipients/0",
		`{"recipients":[{"user_id":"a","recipient_type":"CUSTOMER","time_zone":"Mars/Olympus"}]}`:     "/recipients/0/time_zone",
		`{"recipients":[{"user_id":"a","recipient_type":"CUSTOMER"}],"route":{"channels":["email"]}}`: "/route is not relayed",
		`{"route":{}}`:               "/recipients",
		`{"restaurant_id":"\udc00"}`: "/restaurant_id",
		`{"restaurant_id":{}}`:       "/restaurant_id",
		`{"restaurant_id":` + strings.Repeat("9", 10_000) + `}`: "/restaurant_id",
		`{"recipientType":"` + strings.Repeat("x", 65) + `"}`:   "/recipientType",
		`{"recipientType":7}`: "/recipientType",
	} {
		e := contracts.Event{EventID: "e", EventType: "X", AggregateType: "Y"}
		check.OK(t, json.Unmarshal([]byte(extra), &e.Extra))
		to, err := relayedSubject(e)
		if want == "" {
			check.That(t, err == nil && to == "events.Y.X", "%s: %q, %v", extra, to, err)
			continue
		}
		check.ErrorContains(t, err, want)
	}
}
