package recipient

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

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
