package row

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Decoding by frames returns the rows that contracts.Decode returns, and refuses those that it refuses, whatever their senders
// write, and whichever rows came before.
func TestRowsAreDecodedAsContractsDo(t *testing.T) {
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
		for range rapid.IntRange(1, 20).Draw(r, "rows") {
			event := rapid.SampledFrom([]string{"e", "e", "e", "f", `e\"`, `e","user_id":"u1`, ""}).Draw(r, "event")
			user := rapid.SampledFrom([]string{"u1", "u2", "u3", "", `u\u0031`, `u"`, `u1","user_id":"u2`, "a b"}).Draw(r, "user")
			data := fmt.Appendf(nil, shape, event, user)
			got, err := d.Decode(data)
			want, wantErr := contracts.Decode[contracts.Notification](data)
			if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(got, want) {
				r.Fatalf("%s: %+v, %v: want %+v, %v", data, got, err, want, wantErr)
			}
		}
	})
}

// The rows of a plan are read by one frame, as their encoder wrote them, and frames are bounded.
func TestRowsOfAPlanHaveOneFrame(t *testing.T) {
	t.Parallel()
	var e Encoder
	var d Decoder
	row := contracts.Notification{
		EventID: "e", RecipientType: "CUSTOMER", Channel: "inapp", EventType: "X", CreatedAt: time.Unix(1, 0).UTC(),
		Payload: json.RawMessage(`{"a":1}`),
	}
	header := check.Must(Header(row.CreatedAt))(t)
	for event := range maxFrames + 1 {
		row.EventID = fmt.Sprint("e", event)
		e = Encoder{}
		for user := range 3 {
			row.UserID = fmt.Sprint("u", user)
			msg := check.Must(e.Write(row, header))(t)
			got := check.Must(d.Decode(msg.Data))(t)
			check.Equal(t, row, got)
		}
		check.Same(t, "frames", len(d.frames), event%maxFrames+1)
	}
}
