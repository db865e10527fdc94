package template_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
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

// Only values of an event that could become links are broken: by a space in an SMS, and not at all in a push.
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
		payload := check.Must(json.Marshal(map[string]string{"v": value}))(t)
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
			check.That(t, err == nil && got.Text == ours+want && got.Subject == ours+want && (on != "email" || got.HTML == ours+want),
				"%q by %s: %+q (%v), want %+q", value, on, got, err, want)
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
	check.ErrorContains(t, check.Err(set.Render(m, "email", "")), "x/default.subject:1:")
}

// Mistakes that would fail when a message is sent are found before, with their lines.
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
		"a/default.webpush.json:3: missing value for if", `a/en.webpush.json:3: jsontext: duplicate object member name "a"`,
		"a/es.webpush.json:1: jsontext: invalid character '{' after top-level value",
		"a/fr.webpush.json:1: jsontext: unexpected EOF",
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
	set := check.Must(template.Parse(files(map[string]string{"x/default.webpush.json": safe}), template.Config{}))(f)
	f.Fuzz(func(t *testing.T, file, value string) {
		payload := check.Must(json.Marshal(map[string]string{"v": value}))(t)
		m := channel.Message{Payload: payload, Template: "x"}
		if own, err := template.Parse(files(map[string]string{"x/default.webpush.json": file}), template.Config{}); err == nil && len(file) < 200 {
			_, _ = own.Render(m, "webpush", "") // it must not panic
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

// A digest has a text also where nobody wrote one, and its own where somebody did.
func TestADigestWithoutATemplate(t *testing.T) {
	t.Parallel()
	set, err := template.Parse(fstest.MapFS{
		"c.digest/default.subject": {Data: []byte("news")}, "c.digest/default.txt": {Data: []byte("{{range .Payload.items}}{{with .payload}}{{.a}}{{end}};{{end}}")},
	}, template.Config{})
	check.OK(t, err)
	m := channel.Message{
		EventType: "DIGEST", Template: "d.digest",
		Payload: json.RawMessage(`{"count":7,"items":[
			{"event_type":"ORDER_CREATED","created_at":"2000-01-01T00:00:00Z","payload":{"a":1}},{"event_type":"Y","created_at":"2000-01-01T01:00:00Z","payload":null}],"more":5}`),
	}
	text, err := set.Render(m, "email", "")
	want := "- Order created, 2000-01-01 00:00 UTC\n- Y, 2000-01-01 01:00 UTC\nand 5 more\n"
	check.That(t, err == nil && text.Subject == "7 notifications" && text.Text == want, "%q %q, %v", text.Subject, text.Text, err)
	text, err = set.Render(m, "sms", "")
	check.That(t, err == nil && text.Text == "7 notifications", "%q, %v", text.Text, err)
	m.Template = "c.digest"
	text, err = set.Render(m, "email", "")
	check.That(t, err == nil && text.Subject == "news" && text.Text == "1;;", "%q %q, %v", text.Subject, text.Text, err)
	m.EventType, m.Template = "X", "x"
	_, err = set.Render(m, "email", "")
	check.That(t, err != nil, "an event without a template has a text")
}

// Shared texts are chosen by the locale of the text that they are part of, and by the channel that it is for. A layout is around all but
// subjects and whole documents.
func TestSharedTexts(t *testing.T) {
	t.Parallel()
	set := parse(t, map[string]string{
		"_shared/default.layout.html":      `<h1>{{template "brand"}}</h1>{{template "content" .}}<p>{{template "footer" .}}</p>`,
		"_shared/default.email.layout.txt": "{{template \"content\" .}}\n-- \n{{template \"footer\" .}}",
		"_shared/default.brand.txt":        "Ours", "_shared/default.brand.html": "<i>Ours</i>",
		"_shared/default.footer.txt": "{{.UserID}} {{.Channel}}", "_shared/default.footer.html": `<a href="{{.Unsubscribe}}">stop</a>`,
		"_shared/default.sms.footer.txt": "sms", "_shared/he.footer.txt": "he", "_shared/he.email.footer.txt": "he mail",
		"x/default.subject": `{{template "brand"}}: {{.Payload.v}}`, "x/default.txt": `{{.Payload.v}} {{template "footer" .}}`,
		"x/default.html": `<b title="{{.Payload.v}}">{{.Payload.v}}</b>`, "x/he.subject": "he", "x/he.txt": `{{template "footer" .}}`,
		"x/he.html":              "<!doctype html><HTML><p>{{template \"own\"}}</p></html>{{define \"own\"}}whole{{end}}",
		"x/default.webpush.json": `{"title":"{{template \"brand\"}}","body":"{{template \"footer\" .}}"}`,
	})
	const v = `"a.example<`
	for on, want := range map[string]template.Text{
		"email default": {
			Subject: "Ours: \"a.\u200bexample<", Text: "\"a.\u200bexample< u email\n-- \nu email",
			HTML: "<h1><i>Ours</i></h1><b title=\"&#34;a.\u200bexample&lt;\">&#34;a.\u200bexample&lt;</b><p><a href=\"https://n.example\">stop</a></p>",
		},
		"email he-IL":     {Subject: "he", Text: "he mail\n-- \nhe mail", HTML: "<!doctype html><HTML><p>whole</p></html>"},
		"sms default":     {Subject: `Ours: "a. example<`, Text: `"a. example< sms`},
		"sms he":          {Subject: "he", Text: "he"},
		"webpush default": {Subject: "Ours", Text: "u webpush"},
		"pigeon fr":       {Subject: "Ours: \"a.\u200bexample<", Text: "\"a.\u200bexample< u pigeon"},
	} {
		on, locale, _ := strings.Cut(on, " ")
		payload := check.Must(json.Marshal(map[string]string{"v": v}))(t)
		got, err := set.Render(channel.Message{Template: "x", Locale: locale, UserID: "u", Payload: payload}, on, "https://n.example")
		if on == "pigeon" {
			want.HTML = got.HTML
		}
		check.OK(t, err)
		check.Equal(t, got, want)
	}
	check.Equal(t, set.Names(), []string{"x"})
	for on, want := range map[string]template.Text{"sms": {Subject: "[test] he", Text: "[test] he"}, "webpush": {Subject: "[test] he", Text: "he"}} {
		got := check.Must(set.Render(channel.Message{Template: "x", Locale: "he", Test: true}, on, ""))(t)
		check.Equal(t, got, want)
	}
}

// A mistake of a shared text is reported once, in its own file, however many files call it. One that fails later does it there, too.
func TestMistakesOfSharedTexts(t *testing.T) {
	t.Parallel()
	texts := map[string]string{
		"_shared/default.txt": "", "_shared/default.content.txt": "", "_shared/default.pigeon.a.txt": "", "_shared/1.a.txt": "", "_shared/default.sms.a.html": "",
		"_shared/.hidden": "", "_shared/sub/x": "",
		"_shared/default.layout.txt":  "\n{{with .Payload}}{{template \"content\" .}}{{end}}{{.Usr}}",
		"_shared/default.layout.html": "<p>no place",
		"_shared/default.a.txt":       "\n\n{{template \"b\"}}", "_shared/default.c.txt": "{{if}}", "_shared/default.d.html": "\n<a href={{if .}}\"{{end}}>",
		"x/default.subject": `{{template "a"}}{{template "layout"}}`, "x/default.txt": `{{template "a"}}{{template "e"}}`, "x/default.html": `<html>{{template "d" .}}`,
		"x/default.email.subject": `{{template "a"}}`, "_shared/default.sms.f.txt": "",
	}
	_, err := template.Parse(files(texts), template.Config{})
	check.Equal(t, regexp.MustCompile("contexts: .*").ReplaceAllString(err.Error(), "contexts"),
		`_shared/1.a.txt: "1" is no locale: want a language tag such as en-GB, or default
_shared/default.a.txt:3: template "b" is not defined
_shared/default.c.txt:1: missing value for if
_shared/default.content.txt: want <locale>.<name>.txt or <locale>.<name>.html, or <locale>.<channel>.<name> with one of these; no name is content
_shared/default.d.html:2: {{if}} branches end in different contexts
_shared/default.layout.html: has no place for the content: want {{template "content" .}}
_shared/default.layout.txt:2: want {{template "content" $}}, outside of definitions: the content is a template over all
_shared/default.layout.txt:2: .Usr: there is no Usr
_shared/default.pigeon.a.txt: there is no channel "pigeon": want email, sms, webpush
_shared/default.sms.a.html: html is not for sms
_shared/default.txt: want <locale>.<name>.txt or <locale>.<name>.html, or <locale>.<channel>.<name> with one of these; no name is content
_shared/sub: want <locale>.<name>.txt or <locale>.<name>.html, or <locale>.<channel>.<name> with one of these; no name is content
x/default.subject:1: template "layout" is not defined
x/default.txt:1: template "e" is not defined`)
	set := parse(t, map[string]string{
		"_shared/default.layout.txt": "{{template \"content\" .}}\n{{template \"a\" .}}", "_shared/default.a.txt": "\n{{.Payload.x}}",
		"x/default.subject": "", "x/default.txt": "{{range 1000000}}{{end}}", "y/default.subject": "", "y/default.txt": "",
	})
	check.ErrorContains(t, check.Err(set.Render(channel.Message{Template: "x"}, "email", "")), "template x/default.txt: it takes more than")
	check.ErrorContains(t, check.Err(set.Render(channel.Message{Template: "y"}, "email", "")), "_shared/default.a.txt:2:")
}

// Numbers are those of the reader's language, and plurals those of the language that the text is in.
func TestNumbersAndPlurals(t *testing.T) {
	t.Parallel()
	const pl = `{{$.Plural . "one" "# stół" "few" "# stoły" "many" "# stołów" "other" "# stołu"}}`
	texts := map[string]string{
		"x/default.txt": `{{range .Payload}}{{$.Plural . "other" "# tables" "one" "a table"}}|{{$.Number .}};{{end}}`, "x/pl.txt": "{{range .Payload}}" + pl + ";{{end}}",
		"x/he.txt": `{{range .Payload}}{{$.Plural . "one" "one" "two" "two" "other" "#"}};{{end}}`, "x/default.subject": "", "x/pl.subject": "", "x/he.subject": "",
	}
	set := parse(t, texts)
	polish, err := template.Parse(files(map[string]string{"x/default.subject": "", "x/default.txt": texts["x/pl.txt"]}), template.Config{Language: "pl"})
	check.OK(t, err)
	for _, test := range []struct {
		set                   *template.Set
		locale, payload, want string
	}{
		{set, "", `[1,2,1234567.50]`, "a table|1;2 tables|2;1,234,567.50 tables|1,234,567.50;"},
		{set, "de", `[1,1234567.5,-1.0]`, "a table|1;1.234.567,5 tables|1.234.567,5;-1,0 tables|-1,0;"},
		{set, "ja", `[1,"2"]`, "a table|1;2 tables|2;"},
		{set, "pl-PL", `[1,3,5,22,1.5]`, "1 stół;3 stoły;5 stołów;22 stoły;1,5 stołu;"},
		{set, "he-IL", `[0,1,2,11]`, "0;one;two;11;"},
		{polish, "fr", `[1,3,5,22]`, "1 stół;3 stoły;5 stołów;22 stoły;"},
		{set, "", `[123456789012345678,1e3,0]`, "123,456,789,012,345,678 tables|123,456,789,012,345,678;1,000 tables|1,000;0 tables|0;"},
	} {
		got, err := test.set.Render(channel.Message{Template: "x", Locale: test.locale, Payload: json.RawMessage(test.payload)}, "email", "")
		check.OK(t, err)
		check.Equal(t, got.Text, test.want)
	}
	for text, want := range map[string]string{
		`{{.Plural 1 "one" "a"}}`: "always other", `{{.Plural 5 "on" "a" "other" "b"}}`: "want forms", `{{.Plural 5 "other"}}`: "want forms",
		`{{.Number .Payload.v}}`: "no number", `{{.Plural .Payload.v "other" ""}}`: "no number", `{{.Number true}}`: "no number", `{{.Number 1e300}}`: "no number",
	} {
		_, err := one(t, text, `{"v":"0x10"}`)
		check.ErrorContains(t, err, want)
	}
}
