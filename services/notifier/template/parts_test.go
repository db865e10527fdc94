package template_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/template"
)

// The locale is chosen before the channel, and within a locale a part for the channel goes before the one for all.
func TestPartsPerChannel(t *testing.T) {
	t.Parallel()
	set := parse(t, map[string]string{
		"x/default.subject": "all", "x/default.txt": "{{.Channel}}", "x/default.html": "<p>", "x/default.sms.txt": "sms", "x/default.email.subject": "mail",
		"x/he.sms.txt": "he sms", "x/fr.subject": "fr", "x/fr.txt": "fr {{.Channel}}",
		"x/default.webpush.json": `{"title":"t","url":"https://ours.example/{{.Payload.id}}","icon":"{{link .Payload.icon}}",
			"data":{"n":1.50,"list":[true,null,"{{.Payload.text}}"]}}`,
		"sms/default.sms.txt": "only",
	})
	data := json.RawMessage(`{"list":[true,null,"\",\"evil.example"],"n":1.50}`)
	for name, test := range map[string]struct {
		template, locale, channel string
		want                      template.Text
	}{
		"general":                    {"x", "", "pigeon", template.Text{Subject: "all", Text: "pigeon", HTML: "<p>"}},
		"a part of one":              {"x", "", "email", template.Text{Subject: "mail", Text: "email", HTML: "<p>"}},
		"SMS":                        {"x", "", "sms", template.Text{Subject: "all", Text: "sms"}},
		"SMS, of a locale":           {"x", "he-IL", "sms", template.Text{Text: "he sms"}},
		"mail, of another locale":    {"x", "he-IL", "email", template.Text{Subject: "mail", Text: "email", HTML: "<p>"}},
		"the locale goes before":     {"x", "fr", "sms", template.Text{Subject: "fr", Text: "fr sms"}},
		"a push":                     {"x", "", "webpush", template.Text{Subject: "t", Text: "webpush", URL: "https://ours.example/a%2Fb", Icon: "https://example.com/i.png", Data: data}},
		"a push without JSON":        {"x", "fr", "webpush", template.Text{Subject: "fr", Text: "fr webpush"}},
		"a template for one channel": {"sms", "fr", "sms", template.Text{Text: "only"}},
	} {
		m := channel.Message{
			Locale: test.locale, Payload: json.RawMessage(`{"id":"a/b","icon":"https://example.com/i.png","text":"\",\"evil.example"}`), Template: test.template,
		}
		got, err := set.Render(m, test.channel, "")
		diff := cmp.Diff(test.want, got)
		check.That(t, err == nil && diff == "", "%s: %v\n%s", name, err, diff)
	}
	if _, err := set.Render(channel.Message{Template: "sms"}, "email", ""); !errors.Is(err, template.ErrNotFound) || set.Has("sms", "email") || !set.Has("sms", "sms") {
		t.Errorf("a mail has the text of an SMS: %v", err)
	}
}

// What breaks links is only in what could be one, and comes from an event; an SMS has a space, and a push nothing.
func TestOnlyWhatCouldBeALinkIsBroken(t *testing.T) {
	t.Parallel()
	const own = `www.ours.example {{"ours.example"}} {{printf "%s/%d" "ours.example" 5}} {{.CreatedAt.Format "2.Jan"}}`
	set := parse(t, map[string]string{
		"x/default.subject": own + "|{{.Payload.v}}", "x/default.txt": own + "|{{.Payload.v}}", "x/default.html": own + "|{{.Payload.v}}",
		"x/default.webpush.json": `{"title":"www.ours.example|{{.Payload.v}}"}`,
	})
	const z = "\u200b"
	for value, want := range map[string][2]string{
		"12.50": {}, "1.234.567,89": {}, "24.12.2026 19.30": {}, "7.30 p.m.": {}, "z.B.": {}, "No.5": {}, "02.12.345.678": {}, "12.50EUR": {}, "1.5.": {},
		"Ph.D., e.g.": {}, "end. Next": {}, "12:30": {}, "3.14": {}, "v1.2.3": {},
		"evil.example":        {"evil." + z + "example", "evil. example"},
		"www.evil.example/x":  {"www." + z + "evil." + z + "example/x", "www. evil. example/x"},
		"http://127.0.0.1/x":  {"http:" + z + "//127." + z + "0." + z + "0." + z + "1/x", "http: //127. 0. 0. 1/x"},
		"(10.0.0.1)":          {"(10." + z + "0." + z + "0." + z + "1)", "(10. 0. 0. 1)"},
		"eur 12.50, a@b.info": {"eur 12.50, a@b." + z + "info", "eur 12.50, a@b. info"},
		"x。рф":                {"x。" + z + "рф", "x。 рф"},
		"a\ufdd0.example":     {"a." + z + "example", "a. example"},
	} {
		payload, err := json.Marshal(map[string]string{"v": value})
		check.OK(t, err)
		m := channel.Message{CreatedAt: time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC), Payload: payload, Template: "x"}
		for on, want := range map[string]string{"email": want[0], "sms": want[1], "webpush": strings.ReplaceAll(value, "\ufdd0", "")} {
			if want == "" {
				want = value
			}
			got, err := set.Render(m, on, "")
			const ours = "www.ours.example ours.example ours.example/5 24.Dec|"
			if on == "webpush" {
				got.Subject = strings.Replace(got.Subject, "www.ours.example|", ours, 1)
			}
			if err != nil || got.Text != ours+want || got.Subject != ours+want || on == "email" && got.HTML != ours+want {
				t.Errorf("%q by %s: %+q (%v), want %+q", value, on, got, err, want)
			}
		}
	}
}

// Times are those of the user's zone, as the user's language writes them. One without a zone is not converted.
func TestTimesOfTheReader(t *testing.T) {
	t.Parallel()
	set := parse(t, map[string]string{
		"x/default.subject": "{{.DateTime .Payload.at}}", "x/default.txt": `{{range .Payload.list}}{{$.Date .}}, {{$.Time .}};{{end}} {{.CreatedAt.Format "15:04"}} {{.TimeZone}}`,
	})
	m := channel.Message{CreatedAt: time.Date(2026, 11, 25, 22, 5, 0, 0, time.UTC), Template: "x"}
	m.Payload = json.RawMessage(`{"at":"2026-11-25T22:05:00Z","list":["2026-11-25T19:30","2026-07-01T23:00:00+02:00"]}`)
	for where, want := range map[[2]string][2]string{
		{"", ""}:                     {"2026-11-25 22:05 UTC", "2026-11-25, 19:30;2026-07-01, 21:00 UTC; 22:05 "},
		{"en-US", "America/Chicago"}: {"Nov 25, 2026 4:05 PM", "Nov 25, 2026, 7:30 PM;Jul 1, 2026, 4:00 PM; 16:05 America/Chicago"},
		{"en_GB", "Europe/London"}:   {"25 Nov 2026 22:05", "25 Nov 2026, 19:30;1 Jul 2026, 22:00; 22:05 Europe/London"},
		{"he-IL", "Asia/Jerusalem"}:  {"26.11.2026 00:05", "25.11.2026, 19:30;02.07.2026, 00:00; 00:05 Asia/Jerusalem"},
		{"xx", "Nowhere/Town"}:       {"2026-11-25 22:05 UTC", "2026-11-25, 19:30;2026-07-01, 21:00 UTC; 22:05 "},
	} {
		m.Locale, m.TimeZone = where[0], where[1]
		got, err := set.Render(m, "email", "")
		check.That(t, err == nil && got.Subject == want[0] && got.Text == want[1], "%q: %q %q %v", where, got.Subject, got.Text, err)
	}
	m.Payload = json.RawMessage(`{"at":5}`)
	check.Contains(t, check.Err(set.Render(m, "email", "")), "x/default.subject:1:")
}

// What would fail when a message is sent is found before, with its line.
func TestMistakesOfPartsAreReported(t *testing.T) {
	t.Parallel()
	_, err := template.Parse(files(map[string]string{
		"a/default.subject": "{{.Paylod.x}}", "a/default.txt": "a\n{{with .Payload}}{{.Anything}}{{$.UserId}}{{end}}{{template \"no\"}}",
		"a/default.html": "<p>\n\n{{.CreatedAt.Fromat \"15\"}}{{.Unsubscribe.Host}}", "a/default.smss.txt": "", "a/default.sms.html": "", "a/default.json": "{}",
		"a/default.webpush.json": "{\"title\":\"{{.X}}\",\n\"data\":{\"x\":\n\"{{if}}\"}, \"uri\": \"\", \"body\": 5}", "a/en.webpush.json": "{\n\"data\":{\"a\":1,\n\"a\":2}}",
		"a/fr.webpush.json": "{\n", "a/de.webpush.json": "[]", "a/es.webpush.json": "{}{}",
		"b/he.sms.txt": "", "b/default.webpush.json": `{"title":""}`,
	}), template.Config{})
	want := []string{
		"a/de.webpush.json:1: want a JSON object", "a/default.html:3: .CreatedAt.Fromat: there is no Fromat", "a/default.html:3: .Unsubscribe.Host: there is no Host",
		"a/default.json: json is not for all channels", "a/default.sms.html: html is not for sms", `a/default.smss.txt: there is no channel "smss": want email, sms, webpush`,
		"a/default.subject:1: .Paylod.x: there is no Paylod", "a/default.txt:2: .UserId: there is no UserId", `a/default.txt:2: template "no" is not defined`,
		"a/default.webpush.json: body is no text", "a/default.webpush.json: there is no field uri", "a/default.webpush.json:1: .X: there is no X",
		"a/default.webpush.json:3: missing value for if", `a/en.webpush.json:3: "a" is there twice`, "a/es.webpush.json:1: there is more behind the JSON",
		"a/fr.webpush.json:1: unexpected EOF",
		"b: other locales have no text for sms", "b: default.webpush needs a title and a body",
	}
	lines := strings.Split(err.Error(), "\n")
	check.Require(t, len(lines) == len(want), "%d mistakes, want %d:\n%v", len(lines), len(want), err)
	for i := range want {
		check.That(t, strings.HasPrefix(lines[i], want[i]), "%q\ndoes not begin with\n%q", lines[i], want[i])
	}
}

// FuzzPush: whatever a file and a payload hold, the file is refused or makes texts, and a payload adds no field and no host.
func FuzzPush(f *testing.F) {
	f.Add(`{"title":"t","data":{"a":["{{.Payload.v}}",1]},"url":"/{{.Payload.v}}"}`, `","url":"https://evil.example`)
	f.Add("{\n", "")
	const safe = `{"title":"{{.Payload.v}}","body":"b","url":"https://ours.example/{{.Payload.v}}","icon":"{{.Payload.v}}","data":{"v":"{{.Payload.v}}"}}`
	set, err := template.Parse(files(map[string]string{"x/default.webpush.json": safe}), template.Config{})
	check.OK(f, err)
	f.Fuzz(func(t *testing.T, file, value string) {
		payload, err := json.Marshal(map[string]string{"v": value})
		check.OK(t, err)
		m := channel.Message{Payload: payload, Template: "x"}
		if own, err := template.Parse(files(map[string]string{"x/default.webpush.json": file}), template.Config{}); err == nil && len(file) < 200 {
			_, _ = own.Render(m, "webpush", "") //nolint:errcheck // it must not panic
		}
		got, err := set.Render(m, "webpush", "")
		if errors.Is(err, template.ErrTooLong) {
			return
		}
		var data map[string]string
		if err != nil || json.Unmarshal(got.Data, &data) != nil || len(data) != 1 || !strings.HasPrefix(got.URL, "https://ours.example/") ||
			strings.ContainsAny(got.URL[len("https://ours.example/"):]+got.Icon, "/:.?#") {
			t.Errorf("%+v %v", got, err)
		}
	})
}
