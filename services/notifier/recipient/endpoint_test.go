package recipient_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

// hooks are the addresses of ada's webhooks.
func hooks(t *testing.T, d *recipient.Directory) map[string]contracts.Endpoint {
	t.Helper()
	r, _, err := d.Get(t.Context(), "CUSTOMER", "ada")
	check.OK(t, err)
	return r.Endpoints["webhook"]
}

func patch(t *testing.T, d *recipient.Directory, endpoints string) {
	t.Helper()
	write(t, d, recipient.Addresses, recipient.Edit{Body: json.RawMessage(`{"endpoints":{"webhook":` + endpoints + `}}`), Merge: true})
}

// A merge patch adds, changes and removes addresses one by one, and says nothing of the others.
func TestAddressesAreMerged(t *testing.T) {
	t.Parallel()
	d, _ := open(t)
	write(t, d, recipient.Profile, recipient.Edit{Body: json.RawMessage(`{}`)})
	write(t, d, recipient.Addresses, recipient.Edit{Body: json.RawMessage(`{"addresses":{"webhook":"https://m.example"}}`)})
	patch(t, d, `{"phone":{"address":"https://p.example","events":["A*"]},"work":{"address":"https://w.example"}}`)
	patch(t, d, `{"phone":{"disabled":true},"work":null}`)
	r, _, err := d.Get(t.Context(), "CUSTOMER", "ada")
	check.OK(t, err)
	phone := r.Endpoint("webhook", "phone")
	check.That(t, phone.Address == "https://p.example" && phone.Disabled && phone.Takes("AB") && !phone.Takes("B"), "%+v", phone)
	check.Same(t, "addresses", strings.Join(r.EndpointIDs("webhook"), " "), "main phone")
	_, err = d.Write(t.Context(), "CUSTOMER", "ada", recipient.Addresses, recipient.Edit{
		Body: json.RawMessage(`{"endpoints":{"webhook":{"main":{"address":"x"},"7":{"address":""}}}}`), Merge: true,
	})
	check.Contains(t, err, "/endpoints/webhook/main/address", "/endpoints/webhook/7", "/endpoints/webhook/7/address")
}

// No edit, import or address of an old name brings back a secret that was replaced, and none changes one that is in use.
func TestSecretsOnlyGoOn(t *testing.T) {
	t.Parallel()
	d, _ := open(t)
	write(t, d, recipient.Profile, recipient.Edit{Body: json.RawMessage(`{}`)})
	write(t, d, recipient.Addresses, recipient.Edit{Body: json.RawMessage(`{"addresses":{"webhook":"https://m.example"}}`)})
	patch(t, d, `{"main":{"generation":7,"previous":5,"rotated_at":"2026-01-02T03:04:05Z"},"phone":{"address":"https://p.example"}}`)
	was := hooks(t, d)
	check.Require(t, was["phone"].Generation != 0 && was["main"].Generation == 7, "%+v", was)
	for _, edit := range []string{
		`{"phone":{"generation":null},"main":null}`, `{"phone":{"generation":1,"previous":3},"main":{"generation":6,"previous":1}}`,
	} {
		patch(t, d, edit)
		check.Equal(t, was, hooks(t, d))
	}
	entry, err := recipient.ParseEntry([]byte(`{"recipient_type":"CUSTOMER","user_id":"ada",
		"endpoints":{"webhook":{"phone":{"address":"https://p.example"},"new":{"address":"https://n.example"}}}}`))
	check.OK(t, err)
	for _, changed := range []bool{true, false} {
		done := d.PutMany(t.Context(), []recipient.Entry{entry})[0]
		check.OK(t, done.Err)
		check.Same(t, "changed", done.Changed, changed)
	}
	is := hooks(t, d)
	check.That(t, is["new"].Generation > 0 && is["phone"].Generation == was["phone"].Generation, "%+v", is)
	check.OK(t, check.Err(d.Write(t.Context(), "CUSTOMER", "ada", recipient.Addresses, recipient.Edit{Body: json.RawMessage(`{}`)})))
	check.Same(t, "ids that are left", strings.Join(slices.Sorted(maps.Keys(hooks(t, d))), " "), "main")
	patch(t, d, `{"phone":{"address":"https://p.example"}}`)
	again := hooks(t, d)
	check.That(t, again["phone"].Generation > was["phone"].Generation && again["main"].Generation == 7, "%+v after %+v", again, was)
}

// An export brings all addresses with their secrets into another directory, and says nothing of them in the profile.
func TestAddressesAreExported(t *testing.T) {
	t.Parallel()
	d, _ := open(t)
	first := `{"addresses":{"webhook":"https://m.example"},"endpoints":{"webhook":{"phone":{"address":"https://p.example","events":["A"],"name":"Phone"}}}}`
	write(t, d, recipient.Profile, recipient.Edit{Body: json.RawMessage(`{"locale":"fr"}`)})
	write(t, d, recipient.Addresses, recipient.Edit{Body: json.RawMessage(first)})
	lines, _, err := d.Page(t.Context(), "", 0, 100)
	check.OK(t, err)
	other, _ := open(t)
	for _, line := range lines {
		entry, err := recipient.ParseEntry(line)
		check.OK(t, err)
		check.OK(t, other.PutMany(t.Context(), []recipient.Entry{entry})[0].Err)
	}
	check.Equal(t, hooks(t, d), hooks(t, other))
	doc, err := other.Read(t.Context(), "CUSTOMER", "ada", recipient.Profile)
	check.OK(t, err)
	check.Same(t, "profile", string(doc.Body), `{"locale":"fr","recipient_type":"CUSTOMER","user_id":"ada"}`)
}

// An address that is gone is dropped by what it is: one that was put in its place stays, and so do others.
func TestOneOfSeveralAddressesIsDropped(t *testing.T) {
	t.Parallel()
	d, js := open(t)
	const old = `{"user_id":"ada","recipient_type":"CUSTOMER","endpoints":{"webhook":{"work":{"address":"https://w.example"}}}}`
	check.OK(t, check.Err(js.Publish(t.Context(), "$KV.directory.CUSTOMER.ada", []byte(old))))
	write(t, d, recipient.Addresses, recipient.Edit{Body: json.RawMessage(`{"addresses":{"webhook":"https://m.example"}}`), Merge: true})
	patch(t, d, `{"phone":{"address":"https://p.example"}}`)
	for address, want := range map[string]bool{"https://p.example": true, "https://gone.example": false} {
		dropped, err := d.Drop(t.Context(), "CUSTOMER", "ada", "webhook", address)
		check.That(t, err == nil && dropped == want, "%s: %v, %v", address, dropped, err)
	}
	r, _, err := d.Get(t.Context(), "CUSTOMER", "ada")
	check.OK(t, err)
	check.Same(t, "addresses", strings.Join(r.EndpointIDs("webhook"), " "), "main work")
	for _, address := range []string{"https://m.example", "https://w.example"} {
		check.OK(t, check.Err(d.Drop(t.Context(), "CUSTOMER", "ada", "webhook", address)))
	}
	r, _, err = d.Get(t.Context(), "CUSTOMER", "ada")
	check.OK(t, err)
	check.Same(t, "addresses", strings.Join(r.EndpointIDs("webhook"), " "), "")
}
