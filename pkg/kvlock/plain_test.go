package kvlock

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lines are what records begin with, and what looks like it.
var lines = []string{
	`{"v":1,"state":"held","claim":"c","owner":"o","instance":"host-1","ttl":30}`,
	`{"v":1,"state":"pending","claim":"c","owner":"o","attempt":2,"member":"m","server":"s"}`,
	`{"member":"m","since":1763663523000}`,
	`{"asked":true,"member":"m","granted":false,"renewal":7,"renewed":1763663523000000000,"since":1,"stolen":"host-2","token":9}`,
	`{"member":"m","metadata":{"a":"b"},"since":1}`,
	`{"stream":"KV_b", "seq":7}`, `{"stream":"KV_b","seq":7}`, `{"stream":"KV_b","domain":"d","seq":7,"duplicate":true}`, `{"error":true,"seq":7}`,
	`{"error":{"code":400},"stream":"KV_b","seq":0}`, `{"seq":7,"batch":"x","count":3}`, `{"domain":1}`, `{"duplicate":"no"}`,
	`{}`, `{"v":1}`, `{"v":01}`, `{"v":-1}`, `{"v":1.0}`, `{"v":1e3}`, `{"v":"1"}`, `{"v":99999999999999999999}`, `{"v":true}`, `{"v":}`, `{"v":null}`,
	`{"V":1}`, `{"claim":null}`, `{"claim":"a\u0041"}`, `{"claim":"ü"}`, "{\"claim\":\"\xff\"}", "{\"claim\":\"\x01\"}", `{"claim":"a"b"}`,
	`{"claim":"a","claim":"b"}`, `{"claim":"a",}`, `{"claim":"a"`, `{"claim":"a"}}`, `{"claim" :"a"}`, `{ "claim":"a"}`, `{"":1}`, `{:1}`, `{,}`,
	`{"asked":tru}`, `{"asked":"true"}`, `{"token":18446744073709551615}`, `{"token":999999999999999999}`, ``, `{`, `}`, `"`, `[]`,
}

// What is read without encoding/json is what encoding/json reads.
func FuzzPlain(f *testing.F) {
	for _, line := range lines {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var r, wantRecord record
		if plain(line, r.set) {
			if err := json.Unmarshal([]byte(line), &wantRecord); err != nil || !cmp.Equal(r, wantRecord, cmp.AllowUnexported(record{}, packed{}, kept{})) {
				t.Errorf("%q read as %+v, not %+v: %v", line, r, wantRecord, err)
			}
		}
		var a, wantAck acknowledgement
		if plain(line, a.set) {
			if err := json.Unmarshal([]byte(line), &wantAck); err != nil || !cmp.Equal(a, wantAck) {
				t.Errorf("%q read as %+v, not %+v: %v", line, a, wantAck, err)
			}
		}
		var l, wantLock lockRecord
		if plain(line, l.set) {
			if err := json.Unmarshal([]byte(line), &wantLock); err != nil || !cmp.Equal(l, wantLock, cmp.AllowUnexported(lockRecord{})) {
				t.Errorf("%q read as %+v, not %+v: %v", line, l, wantLock, err)
			}
		}
	})
}

// What this package writes most is read without encoding/json.
func TestPlainRecords(t *testing.T) {
	t.Parallel()
	r := record{Version: recordVersion, State: held.String(), Claim: "c", Owner: "o", Instance: "host-1:7", TTL: 30}
	line, err := r.encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	var gotRecord record
	if !plain(string(line[:len(line)-1]), gotRecord.set) {
		t.Errorf("%q is not plain", line)
	}
	l := &lockRecord{Member: "m", Granted: true, Asked: true, Renewal: 3, Renewed: 4, Since: 5, Stolen: "other", Token: 6}
	if line, err = l.encode(); err != nil {
		t.Fatal(err)
	}
	var gotLock lockRecord
	if !plain(string(line[:len(line)-1]), gotLock.set) {
		t.Errorf("%q is not plain", line)
	}
}

func BenchmarkDecodeLock(b *testing.B) {
	l := &lockRecord{Member: "WtHXeWWtHXeWWtHXeW", Since: 1763663523000}
	for range 31 {
		l.queue = append(l.queue, run{member: "WtHXeWWtHXeWWtHXeW", instance: "host-12345", places: 1})
	}
	value, err := l.encode()
	if err != nil {
		b.Fatal(err)
	}
	r := record{Version: recordVersion, State: held.String(), Claim: "WtHXeWWtHXeWWtHXeW", Owner: "WtHXeWWtHXeWWtHXeW", Instance: "host-12345", TTL: 30}
	data, err := r.encode(value)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r, value, err := decodeRecord(data)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := decodeLock(r, value); err != nil {
			b.Fatal(err)
		}
	}
}
