package template_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
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

func TestLocalesFallBack(t *testing.T) {
	t.Parallel()
	texts := map[string]string{}
	for _, locale := range []string{"default", "en", "en-GB", "iw", "nb", "es-419", "fil", "zh", "zh-Hant"} {
		texts["x/"+locale+".subject"], texts["x/"+locale+".txt"] = locale, ""
	}
	set := parse(t, texts)
	for locale, want := range map[string]string{
		"": "default", "fr": "default", "en": "en", "EN": "en", "en-gb": "en-GB", "en_GB": "en-GB", "en-US": "en", "en-GB-oed": "en-GB",
		"he-IL": "iw", "zh": "zh", "zh-SG": "zh", "zh-Hant-TW": "zh-Hant", "zh-TW": "zh-Hant", "zh-HK": "zh-Hant", "zh_MO": "zh-Hant",
		"he": "iw", "no": "nb", "no-NO": "nb", "tl": "fil", "tl-PH": "fil", "es-MX": "es-419", "es": "es-419", "nn": "nb", "da": "nb", "zh-CN": "zh", "in": "default", "-": "default", "en-": "en", "--x": "default", "default": "default",
	} {
		got, err := set.Render(channel.Message{Template: "x", Locale: locale}, "email", "")
		check.That(t, err == nil && got.Subject == want, "%q is notified in %s, want %s (%v)", locale, got.Subject, want, err)
	}
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

func TestLoad(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	check.ErrorIs(t, check.Err(template.Load(filepath.Join(folder, "none"), template.Config{})), os.ErrNotExist)
	check.OK(t, os.Mkdir(filepath.Join(folder, "x"), 0o700))
	for _, name := range []string{"default.subject", "default.txt"} {
		check.OK(t, os.WriteFile(filepath.Join(folder, "x", name), []byte("hello"), 0o600))
	}
	set, err := template.Load(folder, template.Config{})
	check.That(t, err == nil && set.Has("x"), "%v", err)
}

// FuzzRender: whatever a payload holds, subjects are one line, and HTML has no markup but the template's.
func FuzzRender(f *testing.F) {
	f.Add("a\r\nb", "<b>")
	f.Add("www.example.com", "https://evil.example")
	set, err := template.Parse(files(map[string]string{
		"x/default.subject": "{{.Payload.a}} {{.Payload.b}}", "x/default.txt": "{{.Payload.a}}", "x/default.html": "<i>{{.Payload.a}}{{.Payload.b}}</i>",
	}), template.Config{})
	check.OK(f, err)
	f.Fuzz(func(t *testing.T, a, b string) {
		payload, err := json.Marshal(map[string]string{"a": a, "b": b})
		if err != nil {
			t.Skip()
		}
		sms, err := set.Render(channel.Message{Template: "x", Payload: payload}, "sms", "")
		check.That(t, !strings.ContainsRune(sms.Text, '\ufdd0') && !strings.Contains(sms.Text, "://") && (err != nil || sms.HTML == ""),
			"%+v", sms)
		got, err := set.Render(channel.Message{Template: "x", Payload: payload}, "email", "")
		if errors.Is(err, template.ErrTooLong) {
			return
		}
		if err != nil || strings.ContainsFunc(got.Subject, unicode.IsControl) || strings.Count(got.HTML, "<") != 2 || strings.Contains(got.Text, "://") {
			t.Errorf("%+v %v", got, err)
		}
	})
}
