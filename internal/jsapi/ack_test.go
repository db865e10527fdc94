package jsapi

import (
	"encoding/json"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// An acknowledgement that is read without encoding/json is one that encoding/json reads the same.
func FuzzAcknowledgement(f *testing.F) {
	for _, line := range []string{
		`{"stream":"KV_b","seq":7}`, `{"stream":"KV_b", "seq":7}`, `{"stream":"KV_b","domain":"d","seq":7}`,
		`{"stream":"KV_b","seq":7,"duplicate": true}`, `{"stream":"KV_c","seq":7}`, `{"stream":"KV_b","seq":07}`, `{"stream":"KV_b","seq":}`,
		`{"stream":"KV_b","seq":-1}`, `{"stream":"KV_b","seq":18446744073709551616}`, `{"error":{"code":400},"stream":"KV_b","seq":0}`,
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		sequence, ok := acknowledged([]byte(line), "KV_b")
		if !ok {
			return
		}
		var want acknowledgement
		if err := json.Unmarshal([]byte(line), &want); err != nil || want != (acknowledgement{Sequence: sequence, Stream: "KV_b"}) {
			t.Errorf("%q read as %d, not %+v: %v", line, sequence, want, err)
		}
	})
}

// The form in which servers write acknowledgements takes the short way.
func TestPlainAcknowledgement(t *testing.T) {
	t.Parallel()
	if sequence, ok := acknowledged([]byte(`{"stream":"KV_b","seq":42}`), "KV_b"); !ok || sequence != 42 {
		t.Errorf("read as %d, %v", sequence, ok)
	}
}

// LoseAt notes an event of a lost connection.
func (i *Inbox) LoseAt(at time.Time) { i.lost.Store(&at) }

// LostFor returns for how long that counts.
func (i *Inbox) LostFor() time.Duration { return i.lostFor }

// UnderWay is how many requests there are.
func (i *Inbox) UnderWay() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.calls)
}
