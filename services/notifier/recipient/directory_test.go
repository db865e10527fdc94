package recipient_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

func newDirectory(t *testing.T) (*recipient.Directory, jetstream.JetStream) {
	t.Helper()
	return newDirectoryOn(t, natstest.Server(t))
}

func newDirectoryOn(t *testing.T, srv *natsrun.Server) (*recipient.Directory, jetstream.JetStream) {
	t.Helper()
	js, records := recordtest.Open(t, srv)
	return recipient.NewDirectory(js, records), js
}

func put(t *testing.T, d *recipient.Directory, kind contracts.RecipientType, user string, members ...recipient.Member) {
	t.Helper()
	check.OK(t, d.Put(t.Context(), contracts.Recipient{RecipientType: kind, UserID: user}, members...))
}

// ids are the users that are yielded, sorted, and the error at the end.
func ids(list iter.Seq2[contracts.Recipient, error]) (users []string, err error) {
	for r, e := range list {
		if err = e; err == nil {
			users = append(users, string(r.RecipientType)+"/"+r.UserID)
		}
	}
	slices.Sort(users)
	return users, err
}

var restaurant = recipient.Member{Type: "RESTAURANT", ID: "5"}

func TestDirectoryResolves(t *testing.T) {
	t.Parallel()
	d, _ := newDirectory(t)
	put(t, d, "RESTAURANT_USER", "ada", restaurant)
	put(t, d, "RESTAURANT_USER", "גל@example.com", restaurant, recipient.Member{Type: "RESTAURANT", ID: "6"})
	put(t, d, "RESTAURANT_USER", "elsewhere", recipient.Member{Type: "RESTAURANT", ID: "6"})
	put(t, d, "RESTAURANT_USER", "left", restaurant)
	put(t, d, "CUSTOMER", "guest", restaurant)
	put(t, d, "ADMIN", "root")
	check.OK(t, d.Leave(t.Context(), "RESTAURANT_USER", "left", restaurant))
	event := recipient.Event{EventID: "e", EventType: "X", AggregateType: "RESERVATION", RestaurantID: []byte("5"), UserID: "guest"}
	for name, test := range map[string]struct {
		event recipient.Event
		kind  contracts.RecipientType
		scope rules.Scope
		want  []string
	}{
		"those of a restaurant":         {event, "RESTAURANT_USER", rules.ScopeAggregate, []string{"RESTAURANT_USER/ada", "RESTAURANT_USER/גל@example.com"}},
		"of another kind":               {event, "CUSTOMER", rules.ScopeAggregate, []string{"CUSTOMER/guest"}},
		"of the aggregate":              {recipient.Event{AggregateType: "RESTAURANT", AggregateID: "6"}, "RESTAURANT_USER", rules.ScopeAggregate, []string{"RESTAURANT_USER/elsewhere", "RESTAURANT_USER/גל@example.com"}},
		"a restaurant that is a string": {recipient.Event{RestaurantID: []byte(`"5"`)}, "CUSTOMER", rules.ScopeAggregate, []string{"CUSTOMER/guest"}},
		"all":                           {event, "RESTAURANT_USER", rules.ScopeAll, []string{"RESTAURANT_USER/ada", "RESTAURANT_USER/elsewhere", "RESTAURANT_USER/left", "RESTAURANT_USER/גל@example.com"}},
		"the user, known or not":        {event, "AGENCY_USER", rules.ScopeUser, []string{"AGENCY_USER/guest"}},
		"nobody":                        {event, "ADMIN", rules.ScopeAggregate, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := recipient.Query{Event: test.event, Type: test.kind, Scope: test.scope}
			check.Equal(t, check.Must(ids(d.Resolve(t.Context(), q)))(t), test.want)
		})
	}
}

func TestDirectoryRefuses(t *testing.T) {
	t.Parallel()
	d, _ := newDirectory(t)
	for name, test := range map[string]struct {
		q    recipient.Query
		want error
	}{
		"no aggregate":          {recipient.Query{Type: "ADMIN", Scope: rules.ScopeAggregate}, recipient.ErrNoAggregate},
		"no user":               {recipient.Query{Type: "ADMIN", Scope: rules.ScopeUser}, recipient.ErrNoUser},
		"a type that is no key": {recipient.Query{Type: "*", Scope: rules.ScopeAll}, contracts.ErrTokenMalformed},
	} {
		_, err := ids(d.Resolve(t.Context(), test.q))
		e, ok := errors.AsType[*recipient.Error](err)
		check.That(t, errors.Is(err, test.want) && ok && e.Permanent, "%s: %v", name, err)
	}
}

// A list that breaks off says so: those who were yielded must not pass for all.
func TestDirectoryDoesNotEndEarly(t *testing.T) {
	t.Parallel()
	d, _ := newDirectory(t)
	for i := range 300 {
		put(t, d, "ADMIN", fmt.Sprint("u", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	var last error
	for _, err := range d.Resolve(ctx, recipient.Query{Type: "ADMIN", Scope: rules.ScopeAll}) {
		n++
		if n == 10 {
			cancel()
		}
		last = err
	}
	check.That(t, n >= 300 || errors.Is(last, recipient.ErrIncomplete), "%d of 300, then %v", n, last)
	cancel()
	check.That(t, check.Err(ids(d.Resolve(ctx, recipient.Query{Type: "ADMIN", Scope: rules.ScopeAll}))) != nil,
		"a list that never began was taken for an empty one")
}

// A recipient who is written while a list is read comes once, also one who is new after the consumer's last message.
func TestTheDirectoryIsWrittenWhileItIsListed(t *testing.T) {
	t.Parallel()
	const people = 1200 // are several pulls
	d, _ := newDirectory(t)
	for i := range people {
		put(t, d, "ADMIN", fmt.Sprint("u", i))
	}
	times := map[string]int{}
	for r, err := range d.Resolve(t.Context(), recipient.Query{Type: "ADMIN", Scope: rules.ScopeAll}) {
		check.OK(t, err)
		times[r.UserID]++
		rewrite, locale := []int{0, 5, people - 1}, "de"
		switch len(times) {
		case 1:
		case people: // nothing is pending
			rewrite = []int{1, people + 1}
		case people + 1:
			rewrite, locale = []int{people + 1}, "fr"
		default:
			continue
		}
		for _, i := range rewrite {
			check.OK(t, d.Put(t.Context(), contracts.Recipient{RecipientType: "ADMIN", UserID: fmt.Sprint("u", i), Locale: locale}))
		}
	}
	check.Equal(t, len(times), people+1, "people")
	for user, n := range times {
		check.Equal(t, n, 1, user+" comes, times")
	}
}

// A list is a consumer, of which a bucket may have a limited number: none is left behind, whether it was read to its end
// or not.
func TestDirectoryListsLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	d, js := newDirectory(t)
	for i := range 3 {
		put(t, d, "CUSTOMER", fmt.Sprint("u", i))
	}
	q := recipient.Query{Event: recipient.Event{EventID: "e", EventType: "X", AggregateType: "Y"}, Scope: rules.ScopeAll, Type: "CUSTOMER"}
	check.Equal(t, len(check.Must(ids(d.Resolve(t.Context(), q)))(t)), 3, "customers")
	for _, err := range d.Resolve(t.Context(), q) {
		check.OK(t, err)
		break
	}
	q.Type = "ADMIN"
	check.Equal(t, len(check.Must(ids(d.Resolve(t.Context(), q)))(t)), 0, "administrators")
	stream := check.Must(js.Stream(t.Context(), "KV_"+contracts.BucketDirectory))(t)
	check.Equal(t, stream.CachedInfo().State.Consumers, 0, "consumers are left")
}

func TestDirectoryGet(t *testing.T) {
	t.Parallel()
	d, js := newDirectory(t)
	want := contracts.Recipient{RecipientType: "ADMIN", UserID: "a/b", Addresses: map[string]string{"email": "a@b.example"}, TimeZone: "Asia/Jerusalem"}
	check.OK(t, d.Put(t.Context(), want))
	got, found, err := d.Get(t.Context(), "ADMIN", "a/b")
	check.That(t, err == nil && found, "%v %v", found, err)
	check.Equal(t, got, want)
	_, found, err = d.Get(t.Context(), "CUSTOMER", "a/b")
	check.That(t, !found && err == nil, "of another kind: %v %v", found, err)
	check.OK(t, check.Err(js.Publish(t.Context(), "$KV.directory.ADMIN.broken", []byte(`{"opt_out":5}`))))
	_, _, err = d.Get(t.Context(), "ADMIN", "broken")
	e, ok := errors.AsType[*recipient.Error](err)
	check.That(t, ok && e.Permanent && errors.Is(err, contracts.ErrInvalid), "a broken record: %v", err)
	check.ErrorIs(t, d.Put(t.Context(), contracts.Recipient{UserID: "u"}), contracts.ErrInvalid)
}

// An unreadable record may have opt-outs, so nothing replaces it until it is deleted.
func TestAnUnreadableRecordIsNotReplaced(t *testing.T) {
	t.Parallel()
	d, js := newDirectory(t)
	spoiled := check.Must(js.Publish(t.Context(), "$KV.directory.ADMIN.broken", []byte(`{"opt_out":5}`)))(t).Sequence
	check.ErrorIs(t, d.Put(t.Context(), contracts.Recipient{RecipientType: "ADMIN", UserID: "broken"}), recipient.ErrUnreadable)
	edit := recipient.Edit{Body: json.RawMessage(`{"opt_out":{"news":["email"]}}`), Revision: &spoiled}
	check.ErrorIs(t, check.Err(d.Write(t.Context(), "ADMIN", "broken", edit)), recipient.ErrUnreadable)
	check.OK(t, d.Remove(t.Context(), "ADMIN", "broken", nil))
	edit.Revision = nil
	check.OK(t, check.Err(d.Write(t.Context(), "ADMIN", "broken", edit)))
	r, found, err := d.Get(t.Context(), "ADMIN", "broken")
	check.That(t, err == nil && found && len(r.OptOut["news"]) == 1, "%+v %v %v", r, found, err)
}

func TestCarriedRecipientsAreAll(t *testing.T) {
	t.Parallel()
	d, _ := newDirectory(t)
	put(t, d, "ADMIN", "root")
	r := recipient.Carried(d)
	event := recipient.Event{Recipients: []contracts.Recipient{
		{UserID: "a", RecipientType: "CUSTOMER"},
		{UserID: "b", RecipientType: "AGENCY_USER"},
		{UserID: "c", RecipientType: "CUSTOMER"},
		{UserID: "a", RecipientType: "CUSTOMER"},
	}}
	for kind, want := range map[contracts.RecipientType][]string{
		"CUSTOMER": {"CUSTOMER/a", "CUSTOMER/c"}, "AGENCY_USER": {"AGENCY_USER/b"}, "ADMIN": nil,
	} {
		q := recipient.Query{Event: event, Type: kind, Scope: rules.ScopeAll}
		check.Equal(t, check.Must(ids(r.Resolve(t.Context(), q)))(t), want, kind)
	}
	got, err := ids(r.Resolve(t.Context(), recipient.Query{Type: "ADMIN", Scope: rules.ScopeAll}))
	check.That(t, err == nil && len(got) == 1, "without any: %v %v", got, err)
}

// Pages of any length have the same entries, in the same order, also where records were replaced and removed.
func TestPages(t *testing.T) {
	t.Parallel()
	d, _ := newDirectory(t)
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
			d, _ := newDirectoryOn(t, srv)
			for i := range test.people {
				put(t, d, "ADMIN", fmt.Sprint("u", i))
			}
			through, proxy := proxiedDirectory(t, srv)
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
				natstest.Pass(time.Minute) // fake time: the rest of the list ends
			}
		})
	}
}

// adaWebhooks are the addresses of ada's webhooks.
func adaWebhooks(t *testing.T, d *recipient.Directory) map[string]contracts.Endpoint {
	t.Helper()
	r, _, err := d.Get(t.Context(), "CUSTOMER", "ada")
	check.OK(t, err)
	return r.Endpoints["webhook"]
}

func patchAdaWebhooks(t *testing.T, d *recipient.Directory, endpoints string) {
	t.Helper()
	editAda(t, d, recipient.Edit{Body: json.RawMessage(`{"endpoints":{"webhook":` + endpoints + `}}`), Merge: true})
}

// A merge patch adds, changes and removes addresses one by one, and says nothing of the others.
func TestAddressesAreMerged(t *testing.T) {
	t.Parallel()
	d, _ := newDirectory(t)
	editAda(t, d, recipient.Edit{Body: json.RawMessage(`{"addresses":{"webhook":"https://m.example"}}`)})
	patchAdaWebhooks(t, d, `{"phone":{"address":"https://p.example","events":["A*"]},"work":{"address":"https://w.example"}}`)
	patchAdaWebhooks(t, d, `{"phone":{"disabled":true},"work":null}`)
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
	d, _ := newDirectory(t)
	editAda(t, d, recipient.Edit{Body: json.RawMessage(`{"addresses":{"webhook":"https://m.example"}}`)})
	patchAdaWebhooks(t, d, `{"main":{"generation":7,"previous":5,"rotated_at":"2026-01-02T03:04:05Z"},"phone":{"address":"https://p.example"}}`)
	was := adaWebhooks(t, d)
	check.Require(t, was["phone"].Generation != 0 && was["main"].Generation == 7, "%+v", was)
	for _, edit := range []string{
		`{"phone":{"generation":null},"main":null}`, `{"phone":{"generation":1,"previous":3},"main":{"generation":6,"previous":1}}`,
	} {
		patchAdaWebhooks(t, d, edit)
		check.Equal(t, adaWebhooks(t, d), was)
	}
	entry := check.Must(recipient.ParseEntry([]byte(`{"recipient_type":"CUSTOMER","user_id":"ada",
		"endpoints":{"webhook":{"phone":{"address":"https://p.example"},"new":{"address":"https://n.example"}}}}`)))(t)
	for _, changed := range []bool{true, false} {
		done := d.PutMany(t.Context(), []recipient.Entry{entry})[0]
		check.OK(t, done.Err)
		check.Equal(t, done.Changed, changed, "changed")
	}
	is := adaWebhooks(t, d)
	check.That(t, is["new"].Generation > 0 && is["phone"].Generation == was["phone"].Generation, "%+v", is)
	check.OK(t, check.Err(d.Write(t.Context(), "CUSTOMER", "ada", recipient.Edit{Body: json.RawMessage(`{}`)})))
	check.Equal(t, strings.Join(slices.Sorted(maps.Keys(adaWebhooks(t, d))), " "), "main", "ids that are left")
	patchAdaWebhooks(t, d, `{"phone":{"address":"https://p.example"}}`)
	again := adaWebhooks(t, d)
	check.That(t, again["phone"].Generation > was["phone"].Generation && again["main"].Generation == 7, "%+v after %+v", again, was)
}

// An export brings all addresses with their secrets into another directory.
func TestAddressesAreExported(t *testing.T) {
	t.Parallel()
	d, _ := newDirectory(t)
	first := `{"addresses":{"webhook":"https://m.example"},"endpoints":{"webhook":{"phone":{"address":"https://p.example","events":["A"],"name":"Phone"}}}}`
	editAda(t, d, recipient.Edit{Body: json.RawMessage(first)})
	lines, _, err := d.Page(t.Context(), "", 0, 100)
	check.OK(t, err)
	other, _ := newDirectory(t)
	for _, line := range lines {
		entry := check.Must(recipient.ParseEntry(line))(t)
		check.OK(t, other.PutMany(t.Context(), []recipient.Entry{entry})[0].Err)
	}
	check.Equal(t, adaWebhooks(t, other), adaWebhooks(t, d))
}

// An address that is gone is dropped by its value: one that has replaced it stays, and so do others.
func TestOneOfSeveralAddressesIsDropped(t *testing.T) {
	t.Parallel()
	d, _ := newDirectory(t)
	editAda(t, d, recipient.Edit{Body: json.RawMessage(`{"addresses":{"webhook":"https://m.example"}}`)})
	patchAdaWebhooks(t, d, `{"work":{"address":"https://w.example"}}`)
	patchAdaWebhooks(t, d, `{"phone":{"address":"https://p.example"}}`)
	for address, want := range map[string]bool{"https://p.example": true, "https://gone.example": false} {
		dropped, err := d.Drop(t.Context(), "CUSTOMER", "ada", "webhook", address)
		check.That(t, err == nil && dropped == want, "%s: %v, %v", address, dropped, err)
	}
	r, _, err := d.Get(t.Context(), "CUSTOMER", "ada")
	check.OK(t, err)
	check.Equal(t, strings.Join(r.EndpointIDs("webhook"), " "), "main work", "addresses")
}
