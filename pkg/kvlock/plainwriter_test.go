package kvlock

import (
	"bytes"
	"encoding/json"
	"testing"
)

// What is written without encoding/json is what encoding/json writes.
func FuzzPlainWriter(f *testing.F) {
	f.Add("held", "WtHXeWWtHXeWWtHXeW", "host-1:7", "", int64(30), uint64(0), true)
	f.Add("", "", "", "a reason", int64(-1), uint64(1<<64-1), false)
	for _, text := range []string{`"`, `\`, "<", ">", "&", "\n", "\x00", "\x7f", "\u2028", "ü", "\xff", " ~"} {
		f.Add("done", text, "i", "r", int64(1), uint64(2), true)
		f.Add("done", "c", text, text, int64(1), uint64(2), false)
	}
	f.Fuzz(func(t *testing.T, state, claim, instance, reason string, number int64, revision uint64, flag bool) {
		r := record{
			Version: int(number % 3), State: state, Claim: claim, Owner: claim, Instance: instance, Attempt: int(number), Fingerprint: reason,
			Handoff: flag, Job: instance, Reason: reason, Released: !flag, TTL: number, Member: claim, Server: reason, NotFound: flag,
		}
		samePlain(t, r.plain, r)
		l := &lockRecord{
			lease: claim, instance: instance, Asked: flag, Member: claim, Granted: !flag, Renewal: revision, Renewed: number, Since: -number,
			Stolen: instance, Token: revision,
		}
		samePlain(t, l.plain, l)
	})
}

func samePlain(t *testing.T, plain func() ([]byte, bool), of any) {
	t.Helper()
	want, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := plain(); ok && !bytes.Equal(got, want) {
		t.Errorf("written as\n%s, not\n%s", got, want)
	}
}

// What is written most is written without encoding/json, and what it cannot say is left to that.
func TestPlainWriterWritesLocks(t *testing.T) {
	t.Parallel()
	r := record{Version: recordVersion, State: held.String(), Claim: "c", Owner: "o", Instance: "host-1:7", TTL: 30}
	if _, ok := r.plain(); !ok {
		t.Error("the record of a lock is not plain")
	}
	l := &lockRecord{Member: "m", Since: 5}
	if _, ok := l.plain(); !ok {
		t.Error("a lock is not plain")
	}
	packedRecord, keptRecord := r, r
	packedRecord.Value.Size, keptRecord.Kept.Since = 1, 1
	for _, r := range []record{packedRecord, keptRecord} {
		if line, ok := r.plain(); ok {
			t.Errorf("%+v is written as %s", r, line)
		}
	}
	l.Metadata = map[string]string{"for": "<b>"}
	value, err := l.encode()
	if want := `{"member":"m","metadata":{"for":"\u003cb\u003e"},"since":5}` + "\n"; err != nil || string(value) != want {
		t.Errorf("got %s, %v, not %s", value, err, want)
	}
}

// Members that a record gets are members that plain writes, or it has to be told that it cannot.
func TestPlainWriterKnowsAllMembers(t *testing.T) {
	t.Parallel()
	r := record{1, "s", "c", "o", "i", 2, "f", true, "j", "r", true, 3, packed{}, "m", "s", true, kept{}, "p"}
	samePlain(t, r.plain, r)
	l := &lockRecord{"l", "i", 1, nil, true, "m", true, nil, 1, 2, 3, "s", 4}
	samePlain(t, l.plain, l)
}
