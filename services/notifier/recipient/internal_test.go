package recipient

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Each key is new once, however many come after those that were expected, and the memory is that of twelve bytes for each that was.
func TestKeySet(t *testing.T) {
	t.Parallel()
	for _, expected := range []int{0, 1, 10_000, 100_000} {
		s := newKeySet(uint64(expected))
		check.Same(t, "slots", len(s.slots), expected+expected/2+8)
		for i := range 2 * 50_000 {
			there := s.add(strconv.Itoa(i % 50_000))
			check.Require(t, there == (i >= 50_000), "of %d: key %d was there: %t", expected, i, there)
		}
		check.Same(t, "keys", s.n, 50_000)
	}
	full := newKeySet(0)
	full.slots[len(full.slots)-1] = 1
	check.Same(t, "the last slot is taken: there", full.put(^uint64(0)), false)
	check.Same(t, "from the beginning", full.slots[0], ^uint64(0))
}

// FuzzReadProfile: whatever a program writes, the recipient read from it is valid, and has every opt-out.
func FuzzReadProfile(f *testing.F) {
	f.Add([]byte(`{"user_id":"u","recipient_type":"CUSTOMER","locale":5,"addresses":{"a":1,"b":"x"},"opt_out":{"news":["email"]}}`))
	f.Add([]byte(`{"opt_out":{"news":"email"}}`))
	f.Add([]byte(`{"quiet_hours":[],"time_zone":"Local"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, _, err := readProfile(data, contracts.Recipient{RecipientType: "ADMIN", UserID: "root"})
		if err != nil {
			return
		}
		var said struct {
			OptOut map[string][]string `json:"opt_out"`
		}
		err = json.Unmarshal(data, &said)
		check.That(t, err == nil && r.Validate() == nil, "%q: %+v %v", data, r, err)
		diff := cmp.Diff(said.OptOut, r.OptOut)
		check.That(t, diff == "" || len(said.OptOut)+len(r.OptOut) == 0, "%v", diff)
	})
}
