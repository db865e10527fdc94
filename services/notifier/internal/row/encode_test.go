package row

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/plan"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Encoding by frames returns the bytes that contracts.Encode returns, and refuses the rows that it refuses, whatever is
// in ids, payloads and profiles.
func TestRowsAreEncodedAsContractsDo(t *testing.T) {
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
		for range rapid.IntRange(1, 20).Draw(r, "rows") {
			entry := contracts.Recipient{
				RecipientType: rapid.SampledFrom([]contracts.RecipientType{"CUSTOMER", "ADMIN"}).Draw(r, "kind"), UserID: id.Draw(r, "user"),
				Locale: rapid.SampledFrom([]string{"", "it", "de", "no locale"}).Draw(r, "locale"),
			}
			if rapid.Bool().Draw(r, "profile") {
				entry.Addresses = map[string]string{"email": "ada@example.com"}
			}
			row := p.Row(entry, rapid.SampledFrom([]string{"inapp", "email"}).Draw(r, "channel"))
			want, wantErr := contracts.Encode(row)
			got, err := e.encode(row)
			if (err == nil) != (wantErr == nil) || !bytes.Equal(got, want) {
				r.Fatalf("%s, %v: want %s, %v", got, err, want, wantErr)
			}
		}
	})
}

// For a new field of rows the author has to decide whether it is the same in all rows of a plan, like the event, or
// distinguishes frames.
func TestFramesKnowAllFields(t *testing.T) {
	t.Parallel()
	const known = 21
	check.Same(t, "fields of a row", reflect.TypeFor[contracts.Notification]().NumField(), known)
}

func TestFramesAreBounded(t *testing.T) {
	t.Parallel()
	var e Encoder
	for i := range 2 * maxFrames {
		row := contracts.Notification{
			EventID: "e", UserID: "u", RecipientType: "CUSTOMER", Channel: "inapp", EventType: "X", Locale: "l" + string(rune('A'+i%26)) + string(rune('A'+i/26)),
			CreatedAt: time.Unix(1, 0),
		}
		check.OK(t, check.Err(e.encode(row)))
	}
	check.Same(t, "frames", len(e.frames), maxFrames)
}
