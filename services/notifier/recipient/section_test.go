package recipient_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
)

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

// What a profile leaves out stays: opt-outs and addresses have records of their own, also those that earlier versions
// stored in the profile. What a profile says anew counts, what it repeats does not.
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

// A field that is invalid counts as absent, which the log says once. What a recipient refuses is not guessed.
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
