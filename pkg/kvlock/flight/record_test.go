package flight

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/kvlock"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/kv"
	"github.com/expediter-io/expediter/pkg/kvlock/internal/record"
)

func TestRecordThatCannotBeRead(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, data, want string
		newer            bool
	}{
		{name: "empty", data: "", want: "no line feed"},
		{name: "no line feed", data: `{"v":1}`, want: "no line feed"},
		{name: "line feed too late", data: `{"v":1,"reason":"` + strings.Repeat("x", record.MaxLineBytes) + "\"}\n", want: "no line feed"},
		{name: "not JSON", data: "PENDING\nvalue", want: "not a record"},
		{name: "wrong type", data: `{"v":1,"state":7}` + "\n", want: "not a record"},
		{name: "no version", data: `{"state":"done","claim":"c","owner":"o"}` + "\n", want: "version 0"},
		{name: "negative version", data: `{"v":-1}` + "\n", want: "version -1"},
		{name: "unknown state", data: `{"v":1,"state":"cooking","claim":"c","owner":"o"}` + "\n", want: `unknown state "cooking"`},
		{name: "no claim", data: `{"v":1,"state":"done","owner":"o"}` + "\n", want: "without claim"},
		{name: "no owner", data: `{"v":1,"state":"done","claim":"c"}` + "\n", want: "without claim or owner"},
		{name: "negative TTL", data: `{"v":1,"state":"done","claim":"c","owner":"o","ttl":-1}` + "\n", want: "out of range"},
		{name: "endless TTL", data: `{"v":1,"state":"done","claim":"c","owner":"o","ttl":9223372036854775807}` + "\n", want: "out of range"},
		{name: "value of before all time", data: `{"v":1,"state":"done","claim":"c","owner":"o","kept":{"since":-1}}` + "\n", want: "stored at"},
		{name: "fresh for ever", data: `{"v":1,"state":"done","claim":"c","owner":"o","kept":{"fresh":9223372036854775807}}` + "\n", want: "fresh of"},
		{name: "claim for ever", data: `{"v":1,"state":"pending","claim":"c","owner":"o","kept":{"holds":-5}}` + "\n", want: "holds of"},
		{name: "newer", data: `{"v":2,"state":"cooking"}` + "\n", want: "version 2", newer: true},
		{name: "newer with other types", data: `{"state":{"is":"done"},"v":2}` + "\n", want: "version 2", newer: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, _, err := decodeRecord([]byte(tt.data))
			if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, kvlock.ErrVersion) != tt.newer {
				t.Errorf("got %v, want an error with %q, kvlock.ErrVersion %v", err, tt.want, tt.newer)
			}
		})
	}
}

// With any texts of a caller in its record, a claim that could be begun can be completed and failed.
func TestRecordOfTheWorstTextFits(t *testing.T) {
	t.Parallel()
	for _, worst := range []string{"\x00", "<", "\u2028", "\xff", `"`, "é"} {
		id := strings.Repeat("x", record.MaxIDBytes)
		fill := func(n int) string { return record.Truncate(strings.Repeat(worst, n), n) }
		r := claimRecord{
			Head: record.Head{
				Version: record.Version, State: "pending", Claim: fill(record.MaxIDBytes), Owner: "0123456789012345678901",
				Instance: fill(kv.MaxInstanceBytes),
			},
			Attempt: maxAttempt, Fingerprint: fill(maxFingerprintBytes), Handoff: true, Reason: fill(maxReasonBytes), Released: true,
			TTL: kv.Seconds(kv.MaxTTL), Member: id, Server: id, NotFound: true,
			Kept: staleValue{
				Claim: id, Instance: fill(kv.MaxInstanceBytes), Since: math.MaxInt64, Fresh: kv.MaxTTL.Milliseconds(),
				Holds: kv.Seconds(kv.MaxTTL), RetryAfter: kv.MaxTTL.Milliseconds(), FailedClaim: id,
			},
		}
		if err := checkFingerprint(r.Fingerprint); err != nil {
			t.Fatal(err)
		}
		data, err := record.Encode(r, nil)
		if err != nil {
			t.Errorf("filled with %q: %v", worst, err)
			continue
		}
		if _, _, err := decodeRecord(data); err != nil {
			t.Errorf("filled with %q: %v", worst, err)
		}
	}
	if _, err := record.Encode(claimRecord{Reason: strings.Repeat("x", record.MaxLineBytes)}, nil); err == nil {
		t.Error("a first line over the limit was encoded")
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte(`{"v":1,"state":"done","claim":"c","owner":"o","ttl":5}` + "\nvalue"))
	f.Add([]byte(`{"v":1,"state":"pending","claim":"c","owner":"o","ttl":9,"kept":{"since":1,"fresh":5,"holds":3}}` + "\nvalue"))
	f.Add([]byte(`{"v":2}` + "\n"))
	f.Add([]byte("\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, value, err := decodeRecord(data)
		if err != nil {
			return
		}
		again, err := record.Encode(r, value)
		if err != nil {
			return // escaping made it too long
		}
		r2, value2, err := decodeRecord(again)
		if err != nil || r2 != r || !bytes.Equal(value, value2) {
			t.Errorf("%q decoded to %+v, and encoded again to %+v, %v", data, r, r2, err)
		}
		s := r.slot("k", value, 1, time.Now()).readable()
		if !s.hasValue() && s.Value != nil {
			t.Errorf("%s has a value: %+v", s.State, s)
		}
		s.Stale()
		if c := s.carry(); c.stale.Since > 0 {
			ch, next := change{ttl: time.Minute}, claimRecord{Head: record.Head{State: "pending"}}
			c.load(&ch, &next)
		}
	})
}

func FuzzRecordRoundTrip(f *testing.F) {
	for _, value := range [][]byte{nil, {}, []byte("\n"), []byte("{}\n{}"), []byte("value"), make([]byte, 1<<20)} {
		f.Add("claim", "owner", "fingerprint", "no \"venue\"\n<b>\u2028", 3, int64(60), value)
	}
	f.Fuzz(func(t *testing.T, claim, owner, fingerprint, reason string, attempt int, ttl int64, value []byte) {
		for _, s := range []string{claim, owner, fingerprint, reason} {
			if !utf8.ValidString(s) {
				t.Skip("JSON is UTF-8")
			}
		}
		r := claimRecord{
			Head: record.Head{Version: record.Version, State: "done", Claim: "c" + claim, Owner: "o" + owner}, Fingerprint: fingerprint,
			Reason: reason, Attempt: attempt, TTL: max(0, ttl%kv.Seconds(kv.MaxTTL)),
		}
		data, err := record.Encode(r, value)
		if err != nil {
			t.Skip("too long")
		}
		got, gotValue, err := decodeRecord(data)
		if err != nil || got != r || !bytes.Equal(gotValue, value) {
			t.Errorf("got %+v, %q, %v; want %+v, %q", got, gotValue, err, r, value)
		}
	})
}

// Records as the bucket has them have been the same since the first version.
func TestRecordAsStored(t *testing.T) {
	t.Parallel()
	r := claimRecord{
		Head: record.Head{Version: 1, State: "pending", Claim: "c", Owner: "o", Instance: "i"}, Attempt: 2, Fingerprint: "f", Handoff: true,
		Job: "j", Reason: "<r>", Released: true, TTL: 60, Value: packed{Codec: "zstd", Size: 9}, Member: "m", Server: "s", NotFound: true,
		Kept: staleValue{Claim: "d", Instance: "k", Job: "l", Since: 1, Fresh: 2, Holds: 3, RetryAfter: 4, FailedClaim: "e"},
	}
	const want = `{"v":1,"state":"pending","claim":"c","owner":"o","instance":"i","attempt":2,"fingerprint":"f","handoff":true,"job":"j",` +
		`"reason":"\u003cr\u003e","released":true,"ttl":60,"value":{"codec":"zstd","size":9},"member":"m","server":"s","notFound":true,` +
		`"kept":{"claim":"d","instance":"k","job":"l","since":1,"fresh":2,"holds":3,"pause":4,"tried":"e"}}` + "\nvalue"
	data, err := record.Encode(r, []byte("value"))
	if err != nil || string(data) != want {
		t.Errorf("stored as\n%s, %v, not\n%s", data, err, want)
	}
	if got, value, err := decodeRecord(data); err != nil || got != r || string(value) != "value" {
		t.Errorf("read as %+v with %q, %v", got, value, err)
	}
}
