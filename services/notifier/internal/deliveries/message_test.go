package deliveries

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// Encoding by frames returns the bytes that contracts.Encode returns, and refuses the notifications that it refuses, whatever is
// in ids, payloads and profiles.
func TestNotificationsAreEncodedAsContractsDo(t *testing.T) {
	t.Parallel()
	id := rapid.SampledFrom([]string{
		"u1", "u2", "customer-3", "", `q"u`, `,"user_id":"u1"`, "ü", "a b", "a.b", "x\\y", "<&>", "event_id", string(make([]byte, 321)),
		string(bytes.Repeat([]byte{'a'}, 320)), string(bytes.Repeat([]byte{'a'}, 321)),
	})
	rapid.Check(t, func(r *rapid.T) {
		p := &plan.Plan{
			CreatedAt: time.Unix(rapid.Int64Range(0, 1<<32).Draw(r, "at"), 0).UTC(), EventID: id.Draw(r, "event"), EventType: "X",
			Payload: json.RawMessage(rapid.SampledFrom([]string{"", `{"user_id":"u1"}`, `[1,"u2"]`}).Draw(r, "payload")),
			Routes: map[contracts.RecipientType]rules.Route{"CUSTOMER": {Category: "c", Template: `"t`}, "ADMIN": {
				Digest: &rules.Digest{Digest: contracts.Digest{Every: 30}, Channels: []string{"email"}}, Throttle: &contracts.Throttle{Limit: 1, Per: 60},
			}},
		}
		var e Encoder
		for range rapid.IntRange(1, 20).Draw(r, "notifications") {
			entry := contracts.Recipient{
				RecipientType: rapid.SampledFrom([]contracts.RecipientType{"CUSTOMER", "ADMIN"}).Draw(r, "kind"), UserID: id.Draw(r, "user"),
				Locale: rapid.SampledFrom([]string{"", "it", "de", "no locale"}).Draw(r, "locale"),
			}
			if rapid.Bool().Draw(r, "profile") {
				entry.Addresses = map[string]string{"email": "ada@example.com"}
			}
			notification := p.Notification(entry, rapid.SampledFrom([]string{"inapp", "email"}).Draw(r, "channel"))
			want, wantErr := contracts.Encode(notification)
			got, err := e.encode(notification)
			if (err == nil) != (wantErr == nil) || !bytes.Equal(got, want) {
				r.Fatalf("%s, %v: want %s, %v", got, err, want, wantErr)
			}
		}
	})
}

// For a new field of notifications the author has to decide whether it is the same in all notifications of a plan, like the event, or
// distinguishes frames.
func TestFramesKnowAllFields(t *testing.T) {
	t.Parallel()
	const known = 21
	check.Equal(t, reflect.TypeFor[contracts.Notification]().NumField(), known, "fields of a notification")
}

func TestFramesAreBounded(t *testing.T) {
	t.Parallel()
	var e Encoder
	for i := range 2 * maxFrames {
		notification := contracts.Notification{
			EventID: "e", UserID: "u", RecipientType: "CUSTOMER", Channel: "inapp", EventType: "X", Locale: "l" + string(rune('A'+i%26)) + string(rune('A'+i/26)),
			CreatedAt: time.Unix(1, 0),
		}
		check.OK(t, check.Err(e.encode(notification)))
	}
	check.Equal(t, len(e.frames), maxFrames, "frames")
}

// Decoding by frames returns the notifications that contracts.Decode returns, and refuses those that it refuses, whatever their senders
// write, and whichever notifications came before.
func TestNotificationsAreDecodedAsContractsDo(t *testing.T) {
	t.Parallel()
	const rest = `,"recipient_type":"CUSTOMER","channel":"inapp","event_type":"X","created_at":"2025-01-01T00:00:00Z"`
	rapid.Check(t, func(r *rapid.T) {
		shape := rapid.SampledFrom([]string{
			`{"event_id":"%[1]s","user_id":"%[2]s"` + rest + `}`,
			`{"event_id":"%[1]s","user_id":"%[2]s"` + rest + `,"user_id":"u1"}`,
			`{"event_id":"%[1]s","payload":{"user_id":"u1"},"user_id":"%[2]s"` + rest + `}`,
			`{"payload":{"event_id":"e","user_id":"%[2]s"},"event_id":"%[1]s","user_id":"u1"` + rest + `}`,
			`{"event_id":"%[1]s","user_id":"%[2]s"` + rest + `,"recipient":{"recipient_type":"CUSTOMER","user_id":"u1"}}`,
			`{"a":{"b":"ccccc","user_id":"%[2]s"},"event_id":"%[1]s","user_id":"u1"` + rest + `}`,
			`{"event_id":"%[1]s","user_id":"%[2]s"`,
		}).Draw(r, "shape")
		var d Decoder
		for range rapid.IntRange(1, 20).Draw(r, "notifications") {
			event := rapid.SampledFrom([]string{"e", "e", "e", "f", `e\"`, `e","user_id":"u1`, ""}).Draw(r, "event")
			user := rapid.SampledFrom([]string{"u1", "u2", "u3", "", `u\u0031`, `u"`, `u1","user_id":"u2`, "a b"}).Draw(r, "user")
			data := fmt.Appendf(nil, shape, event, user)
			var got contracts.Notification
			err := d.DecodeArgs(nil, data, &got)
			want, wantErr := contracts.Decode[contracts.Notification](data)
			if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(got, want) {
				r.Fatalf("%s: %+v, %v: want %+v, %v", data, got, err, want, wantErr)
			}
		}
	})
}

// The notifications of a plan are read by one frame, as their encoder wrote them, and frames are bounded.
func TestNotificationsOfAPlanHaveOneFrame(t *testing.T) {
	t.Parallel()
	var e Encoder
	var d Decoder
	notification := contracts.Notification{
		EventID: "e", RecipientType: "CUSTOMER", Channel: "inapp", EventType: "X", CreatedAt: time.Unix(1, 0).UTC(),
		Payload: json.RawMessage(`{"a":1}`),
	}
	header := check.Must(Header(notification.CreatedAt))(t)
	for event := range maxFrames + 1 {
		notification.EventID = fmt.Sprint("e", event)
		e = Encoder{}
		for user := range 3 {
			notification.UserID = fmt.Sprint("u", user)
			msg := check.Must(e.Write(notification, header))(t)
			var got contracts.Notification
			check.OK(t, d.DecodeArgs(nil, msg.Data, &got))
			check.Equal(t, got, notification)
		}
		check.Equal(t, len(d.frames), event%maxFrames+1, "frames")
	}
}
