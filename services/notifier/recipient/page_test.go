package recipient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

// Pages of any length have the same entries, in the same order, also where records were replaced and removed.
func TestPages(t *testing.T) {
	t.Parallel()
	d, _ := open(t)
	const people = 600
	for i := range people {
		put(t, d, "ADMIN", fmt.Sprint("u", i), recipient.Member{Type: "CITY", ID: fmt.Sprint(i % 3)})
	}
	for i := 0; i < people; i += 7 {
		check.OK(t, setAddress(t.Context(), d, "ADMIN", fmt.Sprint("u", i), "fax", "12"))
		check.OK(t, check.Err(d.Forget(t.Context(), "ADMIN", fmt.Sprint("u", i+1))))
	}
	var want []string
	for _, limit := range []int{2000, 501, 500, 7, 1} {
		var got []string
		for from := uint64(0); ; {
			entries, next, err := d.Page(t.Context(), "ADMIN", from, limit)
			check.OK(t, err)
			check.That(t, len(entries) <= limit, "a page of %d has %d entries", limit, len(entries))
			for _, line := range entries {
				got = append(got, string(line))
			}
			if from = next; next == 0 {
				break
			}
		}
		if want == nil {
			want = got
			check.That(t, len(got) > people, "%d entries", len(got))
		}
		check.That(t, slices.Equal(want, got), "limit %d: %d entries, want %d", limit, len(got), len(want))
	}
}

// A directory that gets no answer returns an error within seconds, whichever answer is missing, although its caller has
// minutes: the server may have died with the request, and is back.
func TestTheDirectoryGivesAnswersUpThatDoNotCome(t *testing.T) {
	const (
		most   = 16 * time.Second
		people = 1200 // are several pulls
	)
	all := recipient.Query{Scope: rules.ScopeAll, Type: "ADMIN"}
	for name, test := range map[string]struct {
		people int
		step   int // to the next answer that is the first not to come
		ask    func(t *testing.T, d *recipient.Directory) error
	}{
		"one": {1, 1, func(t *testing.T, d *recipient.Directory) error {
			_, _, err := d.Get(t.Context(), "ADMIN", "u0")
			return err
		}},
		"a change": {1, 1, func(t *testing.T, d *recipient.Directory) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return setAddress(ctx, d, "ADMIN", "u0", "fax", "12")
		}},
		"a short list": {3, 1, func(t *testing.T, d *recipient.Directory) error { return check.Err(ids(d.Resolve(t.Context(), all))) }},
		"a long list":  {people, 251, func(t *testing.T, d *recipient.Directory) error { return check.Err(ids(d.Resolve(t.Context(), all))) }},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			d, _ := openOn(t, srv)
			for i := range test.people {
				put(t, d, "ADMIN", fmt.Sprint("u", i))
			}
			through, proxy := through(t, srv)
			for answers := 0; ; answers += test.step {
				came := 0
				proxy.Filter(func(f natstest.Frame) natstest.Verdict {
					if f.FromClient {
						return natstest.Relay
					}
					came++
					if came > answers {
						return natstest.Lose
					}
					return natstest.Relay
				})
				begun := time.Now()
				err := test.ask(t, through)
				proxy.Filter(nil)
				took := time.Since(begun)
				check.That(t, took <= most, "%d answers: %v after %s, want at most %s", answers, err, took, most)
				if err == nil {
					t.Logf("all is there after %d answers", came)
					return
				}
				e, ok := errors.AsType[*recipient.Error](err)
				check.That(t, ok && !e.Permanent, "%d answers: %v", answers, err)
				time.Sleep(time.Minute) //nolint:forbidigo // fake time: the rest of the list ends
			}
		})
	}
}

// hooks are the addresses of ada's webhooks.
func hooks(t *testing.T, d *recipient.Directory) map[string]contracts.Endpoint {
	t.Helper()
	r, _, err := d.Get(t.Context(), "CUSTOMER", "ada")
	check.OK(t, err)
	return r.Endpoints["webhook"]
}

func patch(t *testing.T, d *recipient.Directory, endpoints string) {
	t.Helper()
	write(t, d, recipient.Edit{Body: json.RawMessage(`{"endpoints":{"webhook":` + endpoints + `}}`), Merge: true})
}

// A merge patch adds, changes and removes addresses one by one, and says nothing of the others.
func TestAddressesAreMerged(t *testing.T) {
	t.Parallel()
	d, _ := open(t)
	write(t, d, recipient.Edit{Body: json.RawMessage(`{"addresses":{"webhook":"https://m.example"}}`)})
	patch(t, d, `{"phone":{"address":"https://p.example","events":["A*"]},"work":{"address":"https://w.example"}}`)
	patch(t, d, `{"phone":{"disabled":true},"work":null}`)
	r, _, err := d.Get(t.Context(), "CUSTOMER", "ada")
	check.OK(t, err)
	phone := r.Endpoint("webhook", "phone")
	check.That(t, phone.Address == "https://p.example" && phone.Disabled && phone.Takes("AB") && !phone.Takes("B"), "%+v", phone)
	check.Equal(t, strings.Join(r.EndpointIDs("webhook"), " "), "main phone", "addresses")
	_, err = d.Write(t.Context(), "CUSTOMER", "ada", recipient.Edit{
		Body: json.RawMessage(`{"endpoints":{"webhook":{"main":{"address":"x"},"7":{"address":""}}}}`), Merge: true,
	})
	check.ErrorContains(t, err, "/endpoints/webhook/main/address", "/endpoints/webhook/7", "/endpoints/webhook/7/address")
}

// No edit, import or address of an old name brings back a secret that was replaced, and none changes one that is in use.
func TestSecretsOnlyGoOn(t *testing.T) {
	t.Parallel()
	d, _ := open(t)
	write(t, d, recipient.Edit{Body: json.RawMessage(`{"addresses":{"webhook":"https://m.example"}}`)})
	patch(t, d, `{"main":{"generation":7,"previous":5,"rotated_at":"2026-01-02T03:04:05Z"},"phone":{"address":"https://p.example"}}`)
	was := hooks(t, d)
	check.Require(t, was["phone"].Generation != 0 && was["main"].Generation == 7, "%+v", was)
	for _, edit := range []string{
		`{"phone":{"generation":null},"main":null}`, `{"phone":{"generation":1,"previous":3},"main":{"generation":6,"previous":1}}`,
	} {
		patch(t, d, edit)
		check.Equal(t, hooks(t, d), was)
	}
	entry, err := recipient.ParseEntry([]byte(`{"recipient_type":"CUSTOMER","user_id":"ada",
		"endpoints":{"webhook":{"phone":{"address":"https://p.example"},"new":{"address":"https://n.example"}}}}`))
	check.OK(t, err)
	for _, changed := range []bool{true, false} {
		done := d.PutMany(t.Context(), []recipient.Entry{entry})[0]
		check.OK(t, done.Err)
		check.Equal(t, done.Changed, changed, "changed")
	}
	is := hooks(t, d)
	check.That(t, is["new"].Generation > 0 && is["phone"].Generation == was["phone"].Generation, "%+v", is)
	check.OK(t, check.Err(d.Write(t.Context(), "CUSTOMER", "ada", recipient.Edit{Body: json.RawMessage(`{}`)})))
	check.Equal(t, strings.Join(slices.Sorted(maps.Keys(hooks(t, d))), " "), "main", "ids that are left")
	patch(t, d, `{"phone":{"address":"https://p.example"}}`)
	again := hooks(t, d)
	check.That(t, again["phone"].Generation > was["phone"].Generation && again["main"].Generation == 7, "%+v after %+v", again, was)
}

// An export brings all addresses with their secrets into another directory.
func TestAddressesAreExported(t *testing.T) {
	t.Parallel()
	d, _ := open(t)
	first := `{"addresses":{"webhook":"https://m.example"},"endpoints":{"webhook":{"phone":{"address":"https://p.example","events":["A"],"name":"Phone"}}}}`
	write(t, d, recipient.Edit{Body: json.RawMessage(first)})
	lines, _, err := d.Page(t.Context(), "", 0, 100)
	check.OK(t, err)
	other, _ := open(t)
	for _, line := range lines {
		entry := check.Must(recipient.ParseEntry(line))(t)
		check.OK(t, other.PutMany(t.Context(), []recipient.Entry{entry})[0].Err)
	}
	check.Equal(t, hooks(t, other), hooks(t, d))
}

// An address that is gone is dropped by its value: one that has replaced it stays, and so do others.
func TestOneOfSeveralAddressesIsDropped(t *testing.T) {
	t.Parallel()
	d, _ := open(t)
	write(t, d, recipient.Edit{Body: json.RawMessage(`{"addresses":{"webhook":"https://m.example"}}`)})
	patch(t, d, `{"work":{"address":"https://w.example"}}`)
	patch(t, d, `{"phone":{"address":"https://p.example"}}`)
	for address, want := range map[string]bool{"https://p.example": true, "https://gone.example": false} {
		dropped, err := d.Drop(t.Context(), "CUSTOMER", "ada", "webhook", address)
		check.That(t, err == nil && dropped == want, "%s: %v, %v", address, dropped, err)
	}
	r, _, err := d.Get(t.Context(), "CUSTOMER", "ada")
	check.OK(t, err)
	check.Equal(t, strings.Join(r.EndpointIDs("webhook"), " "), "main work", "addresses")
	for _, address := range []string{"https://m.example", "https://w.example"} {
		check.OK(t, check.Err(d.Drop(t.Context(), "CUSTOMER", "ada", "webhook", address)))
	}
	r, _, err = d.Get(t.Context(), "CUSTOMER", "ada")
	check.OK(t, err)
	check.Equal(t, strings.Join(r.EndpointIDs("webhook"), " "), "", "addresses")
}
