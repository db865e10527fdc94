package recipient_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

func write(t *testing.T, d *recipient.Directory, part recipient.Part, e recipient.Edit) recipient.Document {
	t.Helper()
	return check.Must(d.Write(t.Context(), "CUSTOMER", "ada", part, e))(t)
}

// Of all edits of one revision exactly one is made, and of edits of any revision all.
func TestTwoWritersAtATime(t *testing.T) {
	t.Parallel()
	d, _ := open(t)
	write(t, d, recipient.Profile, recipient.Edit{Body: json.RawMessage(`{}`)})
	for _, part := range []recipient.Part{recipient.Profile, recipient.Addresses, recipient.Preferences} {
		was := check.Must(d.Read(t.Context(), "CUSTOMER", "ada", part))(t)
		var wg sync.WaitGroup
		var won atomic.Int32
		for i := range 16 {
			body := map[recipient.Part]string{
				recipient.Profile:     `{"n%d":1}`,
				recipient.Addresses:   `{"addresses":{"c%d":"x"}}`,
				recipient.Preferences: `{"opt_out":{"c%d":["email"]}}`,
			}[part]
			for _, e := range []recipient.Edit{
				{Body: json.RawMessage(fmt.Sprintf(body, i)), Merge: true, Revision: &was.Revision},
				{Body: json.RawMessage(fmt.Sprintf(body, 100+i)), Merge: true},
			} {
				wg.Go(func() {
					_, err := d.Write(t.Context(), "CUSTOMER", "ada", part, e)
					switch {
					case err == nil && e.Revision != nil:
						won.Add(1)
					case e.Revision == nil || !errors.Is(err, recipient.ErrChanged):
						check.OK(t, err)
					}
				})
			}
		}
		wg.Wait()
		is := check.Must(d.Read(t.Context(), "CUSTOMER", "ada", part))(t)
		for i := range 16 {
			if name := fmt.Sprintf("%d", 100+i); part == recipient.Profile {
				check.Says(t, string(is.Body), `"n`+name+`":1`)
			} else {
				check.Says(t, string(is.Body), `"c`+name+`":`)
			}
		}
		if won.Load() > 1 {
			t.Errorf("%s: %d edits of one revision were made", part, won.Load())
		}
	}
}

// No write of a profile, an address or a preference takes an opt-out back that is stored at the same time.
func TestWritesBesideAnUnsubscribe(t *testing.T) {
	t.Parallel()
	d, _ := open(t)
	write(t, d, recipient.Profile, recipient.Edit{Body: json.RawMessage(`{}`)})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() { check.OK(t, d.OptOut(t.Context(), "CUSTOMER", "ada", fmt.Sprintf("c%d", i), "email")) })
		wg.Go(func() {
			write(t, d, recipient.Profile, recipient.Edit{Body: json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))})
		})
		wg.Go(func() {
			write(t, d, recipient.Preferences, recipient.Edit{Body: json.RawMessage(fmt.Sprintf(`{"quiet_hours":{"from":"2%d:00","to":"07:00"}}`, i%4))})
		})
		wg.Go(func() {
			entry, err := recipient.ParseEntry([]byte(fmt.Sprintf(`{"recipient_type":"CUSTOMER","user_id":"ada","addresses":{"sms":"%d"},"m":%d}`, i, i)))
			check.OK(t, err)
			check.OK(t, d.PutMany(t.Context(), []recipient.Entry{entry})[0].Err)
		})
	}
	wg.Wait()
	r, _, err := d.Get(t.Context(), "CUSTOMER", "ada")
	check.OK(t, err)
	check.That(t, len(r.OptOut) == 20 && r.Addresses["sms"] != "" && r.QuietHours != nil, "%+v", r)
}

// What earlier versions have written into the profile is read as the parts that it belongs to, and no write of the profile loses it.
func TestPartsOfAnOldProfile(t *testing.T) {
	t.Parallel()
	d, js := open(t)
	const old = `{"user_id":"ada","recipient_type":"CUSTOMER","addresses":{"email":"a@example.com"},"opt_out":{"news":["email"]},"locale":"he"}`
	check.OK(t, check.Err(js.Publish(t.Context(), "$KV.directory.CUSTOMER.ada", []byte(old))))
	doc := write(t, d, recipient.Profile, recipient.Edit{Body: json.RawMessage(`{"locale":"fr"}`)})
	check.Same(t, "profile", string(doc.Body), `{"locale":"fr","recipient_type":"CUSTOMER","user_id":"ada"}`)
	for part, want := range map[recipient.Part]string{
		recipient.Addresses:   `{"addresses":{"email":"a@example.com"},"recipient_type":"CUSTOMER","user_id":"ada"}`,
		recipient.Preferences: `{"opt_out":{"news":["email"]},"recipient_type":"CUSTOMER","user_id":"ada"}`,
	} {
		doc := check.Must(d.Read(t.Context(), "CUSTOMER", "ada", part))(t)
		check.Same(t, string(part), string(doc.Body), want)
		check.That(t, doc.Revision != 0, "%s has no record", part)
	}
	doc = write(t, d, recipient.Addresses, recipient.Edit{Body: json.RawMessage(`{"addresses":{"email":null}}`), Merge: true})
	check.Same(t, "addresses", string(doc.Body), `{"recipient_type":"CUSTOMER","user_id":"ada"}`)
	r, _, err := d.Get(t.Context(), "CUSTOMER", "ada")
	check.OK(t, err)
	check.Equal(t, contracts.Recipient{
		RecipientType: "CUSTOMER", UserID: "ada", Locale: "fr", OptOut: map[string][]string{"news": {"email"}},
	}, r)
}
