package template_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/template"
)

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
		payload, err := json.Marshal(map[string]string{"v": v})
		check.OK(t, err)
		got, err := set.Render(channel.Message{Template: "x", Locale: locale, UserID: "u", Payload: payload}, on, "https://n.example")
		if on == "pigeon" {
			want.HTML = got.HTML
		}
		check.OK(t, err)
		check.Equal(t, want, got)
	}
	check.Equal(t, []string{"x"}, set.Names())
	for on, want := range map[string]template.Text{"sms": {Subject: "[test] he", Text: "[test] he"}, "webpush": {Subject: "[test] he", Text: "he"}} {
		got, err := set.Render(channel.Message{Template: "x", Locale: "he", Test: true}, on, "")
		check.OK(t, err)
		check.Equal(t, want, got)
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
	check.Equal(t, `_shared/1.a.txt: "1" is no locale: want a language tag such as en-GB, or default
_shared/default.a.txt:3: template "b" is not defined
_shared/default.c.txt:1: missing value for if
_shared/default.content.txt: want <locale>.<name>.txt or <locale>.<name>.html, or <locale>.<channel>.<name> with one of these; no name is content
_shared/default.d.html:2: {{if}} branches end in different contexts
_shared/default.layout.html: has no place for what it is the layout of: want {{template "content" .}}
_shared/default.layout.txt:2: want {{template "content" $}}, outside of what is defined: the content is a template over all
_shared/default.layout.txt:2: .Usr: there is no Usr
_shared/default.pigeon.a.txt: there is no channel "pigeon": want email, sms, webpush
_shared/default.sms.a.html: html is not for sms
_shared/default.txt: want <locale>.<name>.txt or <locale>.<name>.html, or <locale>.<channel>.<name> with one of these; no name is content
_shared/sub: want <locale>.<name>.txt or <locale>.<name>.html, or <locale>.<channel>.<name> with one of these; no name is content
x/default.subject:1: template "layout" is not defined
x/default.txt:1: template "e" is not defined`, regexp.MustCompile("contexts: .*").ReplaceAllString(err.Error(), "contexts"))
	set := parse(t, map[string]string{
		"_shared/default.layout.txt": "{{template \"content\" .}}\n{{template \"a\" .}}", "_shared/default.a.txt": "\n{{.Payload.x}}",
		"x/default.subject": "", "x/default.txt": "{{range 1000000}}{{end}}", "y/default.subject": "", "y/default.txt": "",
	})
	check.Contains(t, check.Err(set.Render(channel.Message{Template: "x"}, "email", "")), "template x/default.txt: it takes more than")
	check.Contains(t, check.Err(set.Render(channel.Message{Template: "y"}, "email", "")), "_shared/default.a.txt:2:")
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
		check.Equal(t, test.want, got.Text)
	}
	for text, want := range map[string]string{
		`{{.Plural 1 "one" "a"}}`: "always other", `{{.Plural 5 "on" "a" "other" "b"}}`: "want forms", `{{.Plural 5 "other"}}`: "want forms",
		`{{.Number .Payload.v}}`: "no number", `{{.Plural .Payload.v "other" ""}}`: "no number", `{{.Number true}}`: "no number", `{{.Number 1e300}}`: "no number",
	} {
		_, err := one(t, text, `{"v":"0x10"}`)
		check.Contains(t, err, want)
	}
}
