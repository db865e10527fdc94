package template_test

import (
	"encoding/json"
	"errors"
	"maps"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/template"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// files are templates by path.
func files(texts map[string]string) fstest.MapFS {
	folder := fstest.MapFS{}
	for name, text := range texts {
		folder[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return folder
}

func parse(t *testing.T, texts map[string]string) *template.Set {
	t.Helper()
	return check.Must(template.Parse(files(texts), template.Config{LinkHosts: []string{"Example.com"}}))(t)
}

// one renders one template, its subject, text and HTML being the same.
func one(t *testing.T, text, payload string) (template.Text, error) {
	t.Helper()
	set := parse(t, map[string]string{"x/default.subject": text, "x/default.txt": text, "x/default.html": "<p>" + text + "</p>"})
	return set.Render(channel.Message{Template: "x", Payload: json.RawMessage(payload)}, "email", "https://n.example/u?t=1")
}

func TestRender(t *testing.T) {
	t.Parallel()
	set := parse(t, map[string]string{
		"reservation.requested/default.subject": "Table for {{.Payload.guests}}\n",
		"reservation.requested/default.txt":     "{{.UserID}}: {{.EventType}} {{.Payload.at.time}} {{.Payload.price}}{{with index .Payload \"note\"}} ({{.}}){{end}}\n",
		"reservation.requested/default.html":    "<b>{{.Payload.guests}}</b> <a href=\"{{.Unsubscribe}}\">stop</a>",
		"X/default.subject":                     "by type",
		"X/default.txt":                         "",
	})
	m := channel.Message{
		EventType: "X", Payload: json.RawMessage(`{"guests":4,"at":{"time":"19:30"},"price":12345678901234567.50}`),
		Template: "reservation.requested", UserID: "ada",
	}
	got, err := set.Render(m, "email", "https://n.example/u?t=a.b&c=d")
	want := template.Text{
		Subject: "Table for 4", Text: "ada: X 19:30 12345678901234567.50",
		HTML: `<b>4</b> <a href="https://n.example/u?t=a.b&amp;c=d">stop</a>`,
	}
	diff := cmp.Diff(want, got)
	check.That(t, err == nil && diff == "", "%v\n%s", err, diff)
	m.Template = ""
	got, err = set.Render(m, "email", "")
	check.That(t, err == nil && got.Subject == "by type", "by type of event: %+v %v", got, err)
	m.Template = "nobody"
	check.ErrorIs(t, check.Err(set.Render(m, "email", "")), template.ErrNotFound)
	diff = cmp.Diff([]string{"X", "reservation.requested"}, set.Names())
	check.That(t, diff == "" && set.Has("X") && !set.Has("Y"), "%v", diff)
}

// TestByteOrderMarks: editors put a mark at the beginning of files, which is no part of the text.
func TestByteOrderMarks(t *testing.T) {
	t.Parallel()
	set := parse(t, map[string]string{
		"x/default.subject": "\ufeffs", "x/default.txt": "\ufeff{{template \"sign\"}}", "x/default.html": "\ufeff<p>h</p>",
		"x/default.webpush.json": "\ufeff{\"title\":\"t\",\"body\":\"b\"}", "_shared/default.sign.txt": "\ufeffAda",
	})
	mail, err := set.Render(channel.Message{Template: "x"}, "email", "")
	check.That(t, err == nil && mail.Subject == "s" && mail.Text == "Ada" && mail.HTML == "<p>h</p>", "%+q: %v", mail, err)
	push, err := set.Render(channel.Message{Template: "x"}, "webpush", "")
	check.That(t, err == nil && push.Subject == "t" && push.Text == "b", "%+q: %v", push, err)
}

// No value of a payload becomes markup, a header, or a link.
func TestPayloadsInjectNothing(t *testing.T) {
	t.Parallel()
	for _, evil := range []string{
		"x\r\nBcc: eve@evil.example", "x\nBcc: eve@evil.example", "x\u2028Bcc: a", "x\x00y", "x\x0by",
		"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "</p><a href='https://evil.example'>click</a>", "javascript:alert(1)",
		"https://evil.example/?a=1", "http://127.0.0.1/x", "HTTPS://EVIL.EXAMPLE", "www.evil.example", "evil.example", "a.b.c.d.example", "evil。example",
		"eve@evil.example", "\u202egnp.exe.example", "ftp://x", "x.\u200bevil.example",
	} {
		payload := check.Must(json.Marshal(map[string]string{"v": evil}))(t)
		for _, text := range []string{
			`{{.Payload.v}}`, `{{printf "%s" .Payload.v}}`, `{{with .Payload.v}}{{.}}{{end}}`, `{{range .Payload}}{{.}}{{end}}`,
			`{{$x := .Payload.v}}{{$x}}`, `{{define "d"}}{{.}}{{end}}{{template "d" .Payload.v}}`, `{{if false}}{{else}}{{.Payload.v}}{{end}}`,
			`{{.Payload.v | print}}`, `{{with false}}{{else}}{{.Payload.v}}{{end}}`, `{{range index .Payload "none"}}{{else}}{{.Payload.v}}{{end}}`,
		} {
			got, err := one(t, text, string(payload))
			check.Require(t, err == nil, "%s of %q: %v", text, evil, err)
			check.That(t, !strings.ContainsFunc(got.Subject, unicode.IsControl) && !strings.ContainsAny(got.Subject, "\u2028\u2029\u202e"),
				"%s of %q: the subject is %q", text, evil, got.Subject)
			for _, part := range []string{got.Subject, got.Text, got.HTML} {
				for _, link := range []string{"://", "evil.example", "EVIL.EXAMPLE", "b.c", "c.d", "d.example", "evil。example", "127.0", "exe.example", "\x00", "\u202e"} {
					check.That(t, !strings.Contains(part, link), "%s of %q: %q has %q", text, evil, part, link)
				}
			}
			inside := strings.TrimSuffix(strings.TrimPrefix(got.HTML, "<p>"), "</p>")
			check.That(t, !strings.ContainsAny(inside, `<>"`), "%s of %q: HTML is %s", text, evil, got.HTML)
		}
	}
}

func TestAddressesOutOfPayloadsAreDead(t *testing.T) {
	t.Parallel()
	set := parse(t, map[string]string{
		"x/default.subject": "", "x/default.txt": "",
		"x/default.html": `<a href="{{.Payload.v}}">a</a><img src="{{.Payload.v}}"><a href="https://ours.example/{{.Payload.v}}">b</a>`,
	})
	for _, evil := range []string{"https://evil.example/x", "//evil.example/x", "javascript:alert(1)"} {
		got, err := set.Render(channel.Message{Template: "x", Payload: json.RawMessage(`{"v":"` + evil + `"}`)}, "email", "")
		check.That(t, err == nil && !strings.Contains(got.HTML, "evil.example") && !strings.Contains(got.HTML, `"javascript`),
			"%s: %s (%v)", evil, got.HTML, err)
	}
}

func TestLinksOnPurpose(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`"https://example.com/a?b=c"`: "https://example.com/a?b=c", `"https://x.EXAMPLE.com/"`: "https://x.EXAMPLE.com/",
		`"http://example.com"`: "", `"https://evil.example"`: "", `"https://example.com.evil.example"`: "", `"https://notexample.com"`: "",
		`"https://example.com@evil.example"`: "", `"https://example.com:pw@example.com"`: "", `"javascript:alert(1)"`: "", `"//example.com"`: "",
		`5`: "", `null`: "", `"https://example.com/%zz"`: "", `"https://evil.example\\@example.com"`: "", `"https:example.com"`: "",
	} {
		got, err := one(t, "{{link .Payload.v}}{{with link .Payload.v}}|{{.}}{{end}}", `{"v":`+value+`}`)
		if want != "" {
			want += "|" + want
		}
		check.That(t, err == nil && got.Text == want, "%s: %q %v", value, got.Text, err)
	}
	for value, want := range map[string]string{`"a b"`: "a%20b", `"../x"`: "%2E%2E%2Fx", `"x?y#z"`: "x%3Fy%23z", `7`: "7", `"evil.example"`: "evil%2Eexample"} {
		got, err := one(t, "{{path .Payload.v}}", `{"v":`+value+`}`)
		check.That(t, err == nil && got.Text == want && got.HTML == "<p>"+want+"</p>", "%s: %+v %v", value, got, err)
	}
}

func TestWhatCannotBeRendered(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, payload, want string }{
		"a field that is not there": {"a\n{{.Payload.guest}}", `{"guests":4}`, "x/default.subject:2:"},
		"no payload":                {"{{.Payload.guests}}", ``, "x/default.subject:1:"},
		"a payload that is no JSON": {"{{.Payload.guests}}", `{`, "not JSON"},
		"too long":                  {`{{range .Payload.list}}{{$.Payload.text}}{{end}}`, `{"list":[` + strings.Repeat("0,", 600) + `0],"text":"` + strings.Repeat("x", 500) + `"}`, "more than"},
	} {
		_, err := one(t, test.text, test.payload)
		check.That(t, err != nil && strings.Contains(err.Error(), test.want), "%s: %v", name, err)
	}
	got, err := one(t, "{{.Payload.v}}", `{"v":"`+strings.Repeat("é", 5000)+`"}`)
	runes := []rune(got.Subject)
	check.That(t, err == nil && len(runes) == 200, "the subject has %d characters (%v)", len([]rune(got.Subject)), err)
}

// A template can neither run for ever nor make a text without end, in any of its parts, and hurts no other template.
func TestTemplatesAreBounded(t *testing.T) {
	t.Parallel()
	const loop = `{{define "a"}}{{template "b" .}}{{template "b" .}}{{end}}{{define "b"}}{{template "a" .}}{{end}}`
	double := `{{$x := "0123456789"}}` + strings.Repeat(`{{$x = F $x $x}}`, 40)
	for name, text := range map[string]string{
		"a loop":               `{{range 1000000000000}}{{end}}`,
		"a loop of a payload":  `{{range .Payload.list}}{{range $.Payload.list}}{{range $.Payload.list}}{{if .}}{{end}}{{end}}{{end}}{{end}}`,
		"loops in loops":       `{{range 10000}}{{range 10000}}{{range 10000}}{{$_ := .}}{{end}}{{end}}{{end}}`,
		"a recursion":          loop + `{{template "a" 1}}`,
		"a long text":          `{{range 9000}}0123456789012345678901234567890123456789{{end}}`,
		"a width":              `{{printf "%1000000d" 1}}`,
		"a width as a value":   `{{printf "%*d" 1000000 1}}`,
		"many widths":          `{{printf "` + strings.Repeat("%999d", 10_000) + `" 1}}`,
		"a value often":        `{{printf "` + strings.Repeat("%[1]s", 10_000) + `" .Payload.text}}`,
		"doubled by printf":    strings.ReplaceAll(double, "F", `printf "%s%s"`),
		"doubled by print":     strings.ReplaceAll(double, "F", "print"),
		"doubled by println":   strings.ReplaceAll(double, "F", "println"),
		"escaped again":        `{{$x := "<>&"}}` + strings.Repeat(`{{$x = js $x}}`, 40),
		"a value that is long": `{{if .Payload.huge}}{{.Payload.huge}}{{end}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := "[0" + strings.Repeat(",0", 9999) + "]"
			payload := json.RawMessage(`{"list":` + list + `,"text":"` + strings.Repeat("x", 10_000) + `","huge":"` + strings.Repeat("x", template.MaxText+1) + `"}`)
			good := map[string]string{"good/default.subject": "good", "good/default.txt": "good"}
			for _, part := range []string{"subject", "txt", "html"} {
				texts := map[string]string{"x/default.subject": "", "x/default.txt": ""}
				maps.Copy(texts, good)
				texts["x/default."+part] = text
				set, err := template.Parse(files(texts), template.Config{})
				if err == nil {
					_, err = set.Render(channel.Message{Template: "x", Payload: payload}, "email", "")
				}
				check.That(t, err != nil && strings.Contains(err.Error(), "more than") && strings.Contains(err.Error(), "x/default."+part),
					"%s: %v", part, err)
				if set == nil {
					continue
				}
				got, err := set.Render(channel.Message{Template: "good"}, "email", "")
				check.That(t, err == nil && got.Text == "good", "the other template: %+v %v", got, err)
			}
		})
	}
}

// Every mistake of every file is reported at once.
func TestMistakesAreToldAtOnce(t *testing.T) {
	t.Parallel()
	_, err := template.Parse(files(map[string]string{
		".hidden/x":         "",
		".gitkeep":          "",
		"README":            "",
		"a/default.subject": "{{.Payload.x}",
		"a/default.txt":     "a\nb\n{{if}}\n",
		"a/default.html":    "<p>\n<a href={{if .Payload}}\"{{end}}>",
		"b/default.subject": "{{nothing}}",
		"b/default.txt":     strings.Repeat("x", template.MaxFile+1),
		"b/en-gb.subject":   "", "b/en_GB.subject": "", "b/EN-GB.txt": "",
		"c/he.subject":    "",
		"c/default.text":  "",
		"c/1.txt":         "",
		"c/sub/x.subject": "",
		"c/.swp":          "",
	}), template.Config{})
	all, ok := errors.AsType[*template.Error](err)
	check.Require(t, ok, "%T %v", err, err)
	want := []string{
		"README: is a file", "a/default.html:2: ", "a/default.subject:1: ", "a/default.txt:3: ", "b/default.subject:1: function \"nothing\" not defined",
		"b/default.txt: has more than", "b/en_GB.subject: is there twice", "c: default.subject and default.txt are missing", "c: he needs a subject and a txt",
		"c/1.txt: \"1\" is no locale", "c/default.text: want <locale>.subject", "c/sub: want <locale>",
	}
	lines := strings.Split(err.Error(), "\n")
	check.Require(t, len(lines) == len(want) && len(all.Mistakes) == len(want), "%d mistakes, want %d:\n%v", len(lines), len(want), err)
	for i := range want {
		check.That(t, strings.HasPrefix(lines[i], want[i]), "%q\ndoes not begin with\n%q", lines[i], want[i])
	}
}

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
