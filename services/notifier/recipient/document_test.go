package recipient_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
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

// Addresses and preferences that earlier versions have written into the profile are read as those parts, and no write of the
// profile loses them.
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

// Reads that begin while one is under way share the next round trip, and each gets its own recipient: also when the caller gives up that
// reads for the others, and beside a recipient that there cannot be.
func TestReadsShareRoundTrips(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const people = 100
		d, _ := openOn(t, srv)
		for i := range people {
			check.OK(t, d.SetAddress(t.Context(), contracts.RecipientAdmin, fmt.Sprint("u", i), "fax", fmt.Sprint(i)))
		}
		d, proxy := through(t, srv)
		var all sync.WaitGroup
		get := func(ctx context.Context, user, fax string, want error) {
			all.Go(func() {
				r, _, err := d.Get(ctx, contracts.RecipientAdmin, user)
				check.Is(t, err, want)
				check.That(t, r.Addresses["fax"] == fax, "%.10s: %+v, %v", user, r, err)
			})
		}
		lose := func(which ...int) (requests *int) {
			requests = new(int)
			proxy.Filter(func(f natstest.Frame) natstest.Verdict {
				if !f.FromClient || !strings.HasPrefix(f.Subject, "$JS.API.DIRECT.GET.") {
					return natstest.Relay
				}
				*requests++
				if slices.Contains(which, *requests) {
					return natstest.Lose
				}
				return natstest.Relay
			})
			return requests
		}

		requests := lose(1)
		get(t.Context(), "u0", "0", nil)
		synctest.Wait()
		for i := range people {
			get(t.Context(), fmt.Sprint("u", i), fmt.Sprint(i), nil)
		}
		all.Wait()
		check.Same(t, "requests, of which the first was lost and sent again", *requests, 3)

		lose(1)
		get(t.Context(), "u0", "0", nil)
		synctest.Wait()
		get(t.Context(), strings.Repeat("u", 1000), "", contracts.ErrTokenTooLong)
		get(t.Context(), "u1", "1", nil)
		all.Wait()

		lose(1, 3) // and so is the request of the caller that reads for all
		crowd, leave := context.WithCancel(t.Context())
		get(t.Context(), "u0", "0", nil)
		synctest.Wait()
		for i := range people {
			get(crowd, fmt.Sprint("u", i), "", context.Canceled)
		}
		get(t.Context(), "u2", "2", nil)
		time.Sleep(600 * time.Millisecond) //nolint:forbidigo // fake time: the request of the first is sent again, and answered
		synctest.Wait()
		leave()
		all.Wait()
	})
}

// step is something that happens to the records of customer u.
type step func(t *testing.T, d *recipient.Directory, js jetstream.JetStream, user string)

// profile is a program that writes a profile as it knows it.
func profile(fields string) step {
	return func(t *testing.T, _ *recipient.Directory, js jetstream.JetStream, user string) {
		t.Helper()
		data := fmt.Sprintf(`{"user_id":%q,"recipient_type":"CUSTOMER"%s}`, user, fields)
		check.OK(t, check.Err(js.Publish(t.Context(), "$KV.directory.CUSTOMER."+user, []byte(data))))
	}
}

// api is a call of the directory.
func api(call func(t *testing.T, d *recipient.Directory, user string) error) step {
	return func(t *testing.T, d *recipient.Directory, _ jetstream.JetStream, user string) {
		t.Helper()
		check.OK(t, call(t, d, user))
	}
}

// reading reads a customer.
func reading(t *testing.T, d *recipient.Directory, user string) error {
	t.Helper()
	_, _, err := d.Get(t.Context(), "CUSTOMER", user)
	return err
}

// Opt-outs and addresses that a profile leaves out stay: they have records of their own, also those that earlier
// versions stored in the profile. A profile's new values are taken over, repeated ones are not.
func TestNoProfileTouchesAddressesAndPreferences(t *testing.T) {
	t.Parallel()
	type (
		channels  = map[string]string
		refusals  = map[string][]string
		person    = contracts.Recipient
		directory = recipient.Directory
	)
	put := func(r person) step {
		return api(func(t *testing.T, d *directory, user string) error {
			r.RecipientType, r.UserID = "CUSTOMER", user
			return d.Put(t.Context(), r)
		})
	}
	read := api(reading)
	optOut := api(func(t *testing.T, d *directory, user string) error {
		return d.OptOut(t.Context(), "CUSTOMER", user, "news", "email")
	})
	optIn := api(func(t *testing.T, d *directory, user string) error {
		return d.OptIn(t.Context(), "CUSTOMER", user, "news", "email")
	})
	mail := func(address string) step {
		return api(func(t *testing.T, d *directory, user string) error {
			return d.SetAddress(t.Context(), "CUSTOMER", user, "email", address)
		})
	}
	const old = `,"addresses":{"email":"old@x.example"},"opt_out":{"news":["email"]}`
	const muted = `,"mute":{"*":"2030-01-01T00:00:00Z"},"digest":{"*":"off","news":"1h"}`
	all := person{Addresses: channels{"email": "old@x.example"}, OptOut: refusals{"news": {"email"}}}
	french := all
	french.Locale = "fr"
	for name, test := range map[string]struct {
		steps []step
		want  person
	}{
		"an opt-out, then a profile":          {[]step{profile(""), optOut, profile(`,"locale":"fr"`)}, person{Locale: "fr", OptOut: refusals{"news": {"email"}}}},
		"an opt-out, then another one by Put": {[]step{optOut, put(person{OptOut: refusals{"ads": {"*"}}}), put(person{})}, person{OptOut: refusals{"news": {"email"}, "ads": {"*"}}}},
		"an address, then a profile":          {[]step{mail("a@x.example"), profile(""), put(person{})}, person{Addresses: channels{"email": "a@x.example"}}},
		"an earlier shape, read":              {[]step{profile(old), read, profile(`,"locale":"fr"`)}, french},
		"an earlier shape, changed":           {[]step{profile(old), optOut, mail("old@x.example"), profile(`,"locale":"fr"`)}, french},
		"an earlier shape, put":               {[]step{profile(old), put(person{Locale: "fr"}), read, put(person{Locale: "fr"})}, french},
		"a new address in a profile":          {[]step{profile(old), mail("a@x.example"), profile(`,"addresses":{"email":"b@x.example"}`)}, person{Addresses: channels{"email": "b@x.example"}, OptOut: all.OptOut}},
		"an address that is repeated":         {[]step{profile(old), mail("a@x.example"), profile(old)}, person{Addresses: channels{"email": "a@x.example"}, OptOut: all.OptOut}},
		"an address that is taken away":       {[]step{profile(old), mail(""), profile(old)}, person{OptOut: all.OptOut}},
		"an opt-out that is taken back":       {[]step{profile(old), optIn, profile(old)}, person{Addresses: all.Addresses}},
		"a mute that is ended": {[]step{profile(muted), read, api(func(t *testing.T, d *directory, _ string) error {
			edit := recipient.Edit{Body: json.RawMessage(`{"mute":null,"digest":{"news":null}}`), Merge: true}
			return check.Err(d.Write(t.Context(), "CUSTOMER", "u", recipient.Preferences, edit))
		}), profile(muted)}, person{Digest: channels{"*": "off"}}},
		"a profile that cannot be read": {[]step{profile(old), read, profile(`,,`), optOut, put(person{})}, all},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, js := open(t)
			for _, do := range test.steps {
				do(t, d, js, "u")
			}
			want := test.want
			want.RecipientType, want.UserID = "CUSTOMER", "u"
			got, found, err := d.Get(t.Context(), "CUSTOMER", "u")
			diff := cmp.Diff(want, got)
			check.That(t, err == nil && found && diff == "", "%v %v\n%s", found, err, diff)
		})
	}
}

// A read is one request, whatever there is of the recipient, and a profile of an earlier version costs one write for each section.
func TestAReadIsOneRequest(t *testing.T) {
	t.Parallel()
	srv, other := serve(t)
	check.OK(t, other.Put(t.Context(), contracts.Recipient{
		RecipientType: "CUSTOMER", UserID: "a", Addresses: map[string]string{"email": "a@x.example"}, OptOut: map[string][]string{"news": {"*"}},
	}))
	_, js := natstest.Connect(t, srv)
	profile(`,"opt_out":{"news":["email"]}`)(t, other, js, "b")
	d, proxy := through(t, srv)
	requests := 0
	proxy.Filter(func(f natstest.Frame) natstest.Verdict {
		if f.FromClient && f.Subject != "" {
			requests++
		}
		return natstest.Relay
	})
	for _, want := range []struct {
		user string
		n    int
	}{{"a", 1}, {"nobody", 1}, {"b", 2}, {"b", 1}} {
		requests = 0
		check.OK(t, reading(t, d, want.user))
		check.Same(t, want.user+": requests", requests, want.n)
	}
}

// A field that is invalid counts as absent, which the log says once. Opt-outs that cannot be read are an
// error.
func TestInvalidFieldsOfAProfile(t *testing.T) {
	t.Parallel()
	srv := natstest.Server(t)
	_, js := openOn(t, srv)
	var log bytes.Buffer
	d, err := recipient.OpenDirectory(t.Context(), js, recordtest.Client(t, js), slog.New(slog.NewTextHandler(&log, nil)))
	check.OK(t, err)
	for name, test := range map[string]struct {
		fields string
		want   contracts.Recipient
		err    string
	}{
		"a locale":                  {`,"locale":"en us","time_zone":"Asia/Jerusalem"`, contracts.Recipient{TimeZone: "Asia/Jerusalem"}, ""},
		"a locale that is a number": {`,"locale":5,"time_zone":"Asia/Jerusalem"`, contracts.Recipient{TimeZone: "Asia/Jerusalem"}, ""},
		"a zone and quiet hours":    {`,"time_zone":"Mars","quiet_hours":{"from":"25:00","to":"7"},"locale":"fr"`, contracts.Recipient{Locale: "fr"}, ""},
		"an address":                {`,"addresses":{"email":"a@x.example","sms":"1\n2","fax":5}`, contracts.Recipient{Addresses: map[string]string{"email": "a@x.example"}}, ""},
		"a channel":                 {`,"addresses":{"e mail":"x","email":"a@x.example"}`, contracts.Recipient{Addresses: map[string]string{"email": "a@x.example"}}, ""},
		"addresses that are none":   {`,"addresses":["a@x.example"],"locale":"fr"`, contracts.Recipient{Locale: "fr"}, ""},
		"an opt-out":                {`,"opt_out":{"news":"email"}`, contracts.Recipient{}, "/opt_out"},
		"no JSON":                   {`,`, contracts.Recipient{}, "JSON"},
	} {
		profile(test.fields)(t, d, js, "u")
		got, _, err := d.Get(t.Context(), "CUSTOMER", "u")
		if test.err != "" {
			check.That(t, err != nil && strings.Contains(err.Error(), test.err), "%s: %v", name, err)
			continue
		}
		test.want.RecipientType, test.want.UserID = "CUSTOMER", "u"
		got.QuietHours = nil
		if test.want.Addresses == nil {
			got.Addresses = nil // of an earlier one
		}
		diff := cmp.Diff(test.want, got)
		check.That(t, err == nil && diff == "", "%s: %v\n%s", name, err, diff)
	}
	lines := strings.Count(log.String(), "\n")
	check.That(t, lines == 1 && strings.Contains(log.String(), "fields of a recipient are ignored"), "%d lines: %s", lines, log.String())
}
