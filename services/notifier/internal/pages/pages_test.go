package pages_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/pages"
	"github.com/expediter-io/expediter/services/notifier/internal/recordtest"
	"github.com/expediter-io/expediter/services/notifier/recipient"
	"github.com/expediter-io/expediter/services/notifier/rules"
)

const someRules = `
version: 1
categories:
  news: {default: "News <b>", he: חדשות}
events:
  N: {CUSTOMER: {channels: [inapp, email], category: news}}
  C: {CUSTOMER: {fallback: [sms, email], category: chat}}
  U: {CUSTOMER: {channels: [sms], category: urgent, priority: critical}}
  A: {ADMIN: {channels: [email], category: admins}}
`

// site is a directory, and the page of preferences for it.
type site struct {
	*testing.T

	directory *recipient.Directory
	links     *pages.Links
	page      *pages.Site
}

func newSite(t *testing.T, srv *natsrun.Server) *site {
	t.Helper()
	js, records := recordtest.Open(t, srv)
	d := recipient.NewDirectory(js, records)
	r := check.Must(rules.Parse([]byte(someRules), []string{"inapp", "email", "sms"}))(t)
	l := links(t, newer)
	return &site{T: t, directory: d, links: l, page: &pages.Site{Directory: d, Links: l, Rules: func() *rules.Rules { return r }}}
}

// put replaces the preferences of a user by JSON.
func (s *site) put(user, body string) {
	s.Helper()
	check.OK(s.T,
		s.directory.Put(s.Context(), contracts.Recipient{RecipientType: "CUSTOMER", UserID: user, Locale: "he", TimeZone: "Asia/Jerusalem"}))
	doc := check.Must(s.directory.Read(s.Context(), "CUSTOMER", user))(s.T)
	r := check.Must(contracts.Decode[contracts.Recipient]([]byte(strings.Replace(body, "{", `{"recipient_type":"CUSTOMER","user_id":"`+user+`",`, 1))))(s.T)
	check.OK(s.T, s.directory.Prefer(s.Context(), r, doc.Revision))
}

// has checks the preferences of a user, and returns their revision.
func (s *site) has(user, want string) uint64 {
	s.Helper()
	doc := check.Must(s.directory.Read(s.Context(), "CUSTOMER", user))(s.T)
	var fields map[string]json.RawMessage
	check.OK(s.T, json.Unmarshal(doc.Body, &fields))
	for _, name := range []string{"locale", "recipient_type", "time_zone", "user_id"} {
		delete(fields, name)
	}
	got := check.Must(json.Marshal(fields))(s.T)
	check.Equal(s.T, string(got), want, "the preferences of "+user)
	return doc.Revision
}

func (s *site) token(user string) string {
	return s.links.Token(pages.PathPreferences, pages.Subject{Kind: "CUSTOMER", UserID: user})
}

// call makes a request to the page: a POST with values, and a GET without.
func (s *site) call(token string, values url.Values) (status int, body string, err error) {
	s.Helper()
	method, do := http.MethodGet, s.page.Show
	if values != nil {
		method, do = http.MethodPost, s.page.Save
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(s.Context(), method, pages.PathPreferences+"?token="+url.QueryEscape(token), strings.NewReader(values.Encode()))
	err = do(w, r)
	if err == nil && (w.Header().Get("Cache-Control") != "no-store" || w.Code != http.StatusSeeOther && !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'")) {
		s.Errorf("%v", w.Header())
	}
	if w.Code == http.StatusSeeOther {
		check.Equal(s.T, w.Header().Get("Location"), "?saved=1&token="+token, "where it leads")
	}
	return w.Code, w.Body.String(), err
}

// answers checks the answer to a request, and returns its page.
func (s *site) answers(token string, values url.Values, want int) string {
	s.Helper()
	status, body, err := s.call(token, values)
	check.That(s, err == nil && status == want, "%d %v, want %d: %s", status, err, want, body)
	return body
}

var (
	inputs  = regexp.MustCompile(`<input type="([a-z-]+)" name="([^"]*)" value="([^"]*)"( checked)?>`)
	selects = regexp.MustCompile(`(?s)<select name="([^"]*)">(.*?)</select>`)
	picked  = regexp.MustCompile(`<option value="([^"]*)" selected>`)
)

// form returns the values that a browser would send of the page of a user when nothing is changed.
func (s *site) form(user string) url.Values {
	s.Helper()
	page := s.answers(s.token(user), nil, http.StatusOK)
	values := url.Values{}
	for _, input := range inputs.FindAllStringSubmatch(page, -1) {
		if input[1] != "checkbox" || input[4] != "" {
			values.Add(html.UnescapeString(input[2]), html.UnescapeString(input[3]))
		}
	}
	for _, list := range selects.FindAllStringSubmatch(page, -1) {
		values.Set(html.UnescapeString(list[1]), picked.FindStringSubmatch(list[2])[1])
	}
	return values
}

// The form shows the stored preferences; its changes are stored, preferences that it does not show stay, and times are those of the
// user.
func TestPreferencesAreWhatTheFormSays(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		s := newSite(t, srv)
		const was = `{"digest":{"chat":"1h","news":"30m"},"mute":{"*":"2000-01-02T08:00:30Z","news":"1999-12-31T00:00:00Z"},` +
			`"opt_out":{"*":["sms"],"chat":["*"],"gone":["email"],"news":["push","email"]},"quiet_hours":{"from":"22:00","to":"07:00"}}`
		s.put("ada", was)
		s.has("ada", was)
		page := s.answers(s.token("ada"), nil, http.StatusOK)
		check.Contains(t, page, `<bdi lang="he">חדשות</bdi>`, "<bdi>Chat</bdi>", "Together: 30m", "Times are those of Asia/Jerusalem")
		for _, other := range []string{"ada", "urgent sms", "Admins", "gone", "push"} {
			check.That(t, !strings.Contains(page, other), "the page has %q", other)
		}
		values := s.form("ada")
		check.Equal(t, values.Encode(), url.Values{
			"state": values["state"], "on": {"* email", "* inapp", "news inapp"}, "digest.*": {""}, "digest.news": {"30m"},
			"mute.*": {"2000-01-02T10:00"}, "mute.news": {""}, "mute.chat": {""}, "from": {"22:00"}, "to": {"07:00"},
		}.Encode(), "the form")

		s.answers(s.token("ada"), values, http.StatusSeeOther)
		s.has("ada", strings.Replace(was, `,"news":"1999-12-31T00:00:00Z"`, "", 1)) // it is over

		values = s.form("ada")
		values["on"] = []string{"* inapp", "news email", "chat sms"}
		values.Set("digest.news", "off")
		values.Set("mute.*", "")
		values.Set("mute.news", "2000-01-03T00:00")
		values.Set("from", "")
		values.Set("to", "")
		s.answers(s.token("ada"), values, http.StatusSeeOther)
		s.has("ada", `{"digest":{"chat":"1h","news":"off"},"mute":{"news":"2000-01-03T00:00:00+02:00"},`+
			`"opt_out":{"*":["email","sms"],"chat":["email"],"gone":["email"],"news":["push","inapp"]},"quiet_hours":{"from":"00:00","to":"00:00"}}`)
		values = s.form("ada")
		check.That(t, values.Get("from") == "" && values.Get("to") == "", "quiet hours that are none: %v", values)

		// A problem is shown with the chosen values.
		for problem, fields := range map[string][2]string{
			"News: a pause needs a time that is to come": {"mute.news", "2000-01-01T01:00"}, "Quiet hours need both times": {"from", "22:00"},
		} {
			values = s.form("ada")
			values.Set("digest.news", "1h")
			values.Set(fields[0], fields[1])
			page := s.answers(s.token("ada"), values, http.StatusUnprocessableEntity)
			check.Contains(t, page, strings.Replace(problem, "News", "חדשות", 1), `<option value="1h" selected>`,
				`name="`+fields[0]+`" value="`+fields[1]+`"`)
		}
		check.Contains(t, s.answers(s.token("ada")+"&saved=1", nil, http.StatusForbidden), "not valid") // one value, escaped
	})
}

// A form that is older than the preferences, the rules or the user's zone changes nothing, and the present preferences are shown.
// That holds until the very write.
func TestAStaleForm(t *testing.T) {
	t.Parallel()
	s := newSite(t, natstest.Server(t))
	s.put("ada", `{"opt_out":{"news":["email"]}}`)
	values := s.form("ada")
	check.OK(t, s.directory.OptOut(t.Context(), "CUSTOMER", "ada", "chat", "sms"))
	stale := func(values url.Values) {
		t.Helper()
		values.Set("digest.news", "1h")
		page := s.answers(s.token("ada"), values, http.StatusConflict)
		check.Contains(t, page, "so nothing was saved", `name="on" value="chat sms">`)
		s.has("ada", `{"opt_out":{"chat":["sms"],"news":["email"]}}`)
	}
	stale(values)

	values = s.form("ada")
	other := check.Must(rules.Parse([]byte(strings.Replace(someRules, "chat", "talk", 1)), []string{"inapp", "email", "sms"}))(t)
	current := s.page.Rules
	s.page.Rules = func() *rules.Rules { return other }
	status, _, err := s.call(s.token("ada"), values)
	check.Equal(t, status, http.StatusConflict, "other rules")
	check.OK(t, err)
	s.page.Rules = current

	values = s.form("ada")
	check.OK(t, s.directory.Put(t.Context(), contracts.Recipient{RecipientType: "CUSTOMER", UserID: "ada", TimeZone: "Asia/Tokyo"}))
	stale(values)

	values = s.form("ada")
	s.page.Directory = changingDirectory{s.directory, func() {
		check.OK(t, s.directory.OptOut(t.Context(), "CUSTOMER", "ada", "*", "inapp"))
	}}
	page := s.answers(s.token("ada"), values, http.StatusConflict)
	check.Contains(t, page, `name="on" value="* inapp">`)
	s.has("ada", `{"opt_out":{"*":["inapp"],"chat":["sms"],"news":["email"]}}`)
}

// changingDirectory is a directory in which something happens before each write.
type changingDirectory struct {
	*recipient.Directory

	happens func()
}

func (m changingDirectory) Prefer(ctx context.Context, r contracts.Recipient, revision uint64) error {
	m.happens()
	return m.Directory.Prefer(ctx, r, revision)
}

// Only a link to the preferences of a user shows and changes them, and those of nobody else.
func TestPreferencesNeedTheirLink(t *testing.T) {
	t.Parallel()
	s := newSite(t, natstest.Server(t))
	s.put("ada", `{"digest":{"news":"1h"}}`)
	s.put("eve", `{"digest":{"news":"4h"}}`)
	values := s.form("ada")
	values.Set("digest.news", "off")
	eve := pages.Subject{Kind: "CUSTOMER", UserID: "eve"}
	good := s.token("ada")
	head, _, _ := strings.Cut(good, ".")
	_, tail, _ := strings.Cut(s.token("eve"), ".")
	var answers []string
	for _, token := range []string{
		"", "x", head + "." + tail, good + "A", good + "\r\nSet-Cookie: a=b", links(t, older).Token(pages.PathPreferences, eve),
		s.links.Token(pages.PathUnsubscribe, eve), s.links.Token(pages.PathUnsubscribe, ada), strings.Repeat("A", 5000),
	} {
		answers = append(answers, s.answers(token, nil, http.StatusForbidden), s.answers(token, values, http.StatusForbidden))
	}
	for _, page := range answers {
		check.Equal(t, page, answers[0], "the answer to a wrong link")
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, pages.PathUnsubscribe+"?token="+s.token("eve"), http.NoBody)
	check.ErrorIs(t, s.page.Do(w, r), nil)
	check.Equal(t, w.Code, http.StatusForbidden, "a link to preferences to unsubscribe")
	s.has("ada", `{"digest":{"news":"1h"}}`)
	values.Set("token", s.token("eve")) // the link counts
	_, _, err := s.call(good, values)
	check.That(t, err != nil, "a token in the form")
	values.Del("token")
	s.answers(good, values, http.StatusSeeOther)
	s.has("ada", `{"digest":{"news":"off"}}`)
	s.has("eve", `{"digest":{"news":"4h"}}`)
}

// A body other than the form of the page is refused, and changes nothing.
func TestFormsThatNoBrowserSends(t *testing.T) {
	t.Parallel()
	s := newSite(t, natstest.Server(t))
	const was = `{"digest":{"news":"1h"}}`
	s.put("ada", was)
	revision := s.has("ada", was)
	for name, change := range map[string]func(url.Values){
		"another field":         func(v url.Values) { v.Set("opt_out", "x") },
		"a category":            func(v url.Values) { v.Set("digest.urgent", "1h") },
		"a box":                 func(v url.Values) { v.Add("on", "urgent sms") },
		"a box twice":           func(v url.Values) { v.Add("on", "* sms") },
		"a digest":              func(v url.Values) { v.Set("digest.news", "1m") },
		"a field twice":         func(v url.Values) { v.Add("from", "10:00") },
		"a field is missing":    func(v url.Values) { v.Del("mute.chat") },
		"no state":              func(v url.Values) { v.Del("state") },
		"an hour that is none":  func(v url.Values) { v.Set("from", "9:00"); v.Set("to", "10:00") },
		"nothing":               func(v url.Values) { clear(v) },
		"more than can be read": func(v url.Values) { v.Set("from", strings.Repeat("1", 70<<10)) },
	} {
		values := s.form("ada")
		change(values)
		status, page, err := s.call(s.token("ada"), values)
		_, invalid := errors.AsType[*contracts.ValidationError](err)
		check.That(t, (invalid || errors.Is(err, service.ErrBodyTooLarge)) && page == "", "%s: %d %v: %s", name, status, err, page)
	}
	check.Equal(t, s.has("ada", was), revision, "the revision")
	s.page.Directory = changingDirectory{Directory: s.directory, happens: func() { s.Error("it writes") }}
	status, _, err := s.call(s.token("ada"), url.Values{"state": {"1.x"}, "digest.old": {""}})
	check.That(t, err == nil && status == http.StatusConflict, "an old form: %d %v", status, err)
}

// For a user who is not in the directory the page shows the defaults, and stores changes. For one whose data was erased it stores
// nothing.
func TestPreferencesOfNobody(t *testing.T) {
	t.Parallel()
	s := newSite(t, natstest.Server(t))
	values := s.form("new")
	values.Set("digest.news", "1h")
	s.answers(s.token("new"), values, http.StatusSeeOther)
	s.has("new", `{"digest":{"news":"1h"}}`)
	check.OK(t, check.Err(s.directory.Forget(t.Context(), "CUSTOMER", "new")))
	s.answers(s.token("new"), nil, http.StatusForbidden)
	s.answers(s.token("new"), values, http.StatusForbidden)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	older = strings.Repeat("old ", 8)
	newer = strings.Repeat("new ", 8)
)

func links(t *testing.T, secrets ...string) *pages.Links {
	t.Helper()
	return check.Must(pages.New("https://n.example/told/", secrets))(t)
}

var ada = pages.Subject{Kind: "CUSTOMER", UserID: "ada@example.org", Category: "news", Channel: "email"}

func TestLinksAreReadByAnySecret(t *testing.T) {
	t.Parallel()
	before, now := links(t, older), links(t, newer, older)
	for name, l := range map[string]*pages.Links{"before": before, "now": now} {
		s, err := now.Read(pages.PathUnsubscribe, l.Token(pages.PathUnsubscribe, ada))
		check.That(t, err == nil && s == ada, "%s: %+v %v", name, s, err)
	}
	check.ErrorIs(t, check.Err(before.Read(pages.PathUnsubscribe, now.Token(pages.PathUnsubscribe, ada))), pages.ErrLink)
	check.That(t, before.Token(pages.PathUnsubscribe, ada) != now.Token(pages.PathUnsubscribe, ada), "it is not the newest secret that signs")
	m := channel.Message{RecipientType: ada.Kind, UserID: ada.UserID, Category: "news"}
	got, want := now.Unsubscribe("email")(m), "https://n.example/told/v1/unsubscribe?token="+now.Token(pages.PathUnsubscribe, ada)
	check.That(t, got == want, "%s, want %s", got, want)
	m.Category = ""
	_, token, _ := strings.Cut(now.Unsubscribe("email")(m), "=")
	s, err := now.Read(pages.PathUnsubscribe, token)
	check.That(t, err == nil && s.Category == contracts.Anything, "no category: %+v %v", s, err)
	m.Priority = channel.UrgencyCritical
	check.Equal(t, now.Unsubscribe("email")(m), "", "a critical message has a link")
}

// No byte of a link can be another one.
func TestLinksCannotBeMade(t *testing.T) {
	t.Parallel()
	l := links(t, newer)
	token := l.Token(pages.PathUnsubscribe, ada)
	for i := range token {
		for _, c := range "Ab.-" {
			if changed := token[:i] + string(c) + token[i+1:]; changed != token {
				_, err := l.Read(pages.PathUnsubscribe, changed)
				check.Require(t, errors.Is(err, pages.ErrLink), "byte %d as %q: %v", i, c, err)
			}
		}
	}
	head, tail, _ := strings.Cut(token, ".")
	for _, bad := range []string{"", ".", head, head + ".", "." + tail, token + "=", token + "A", strings.Repeat("A", 5000) + "." + tail} {
		check.ErrorIs(t, check.Err(l.Read(pages.PathUnsubscribe, bad)), pages.ErrLink, bad)
	}
	check.ErrorIs(t, check.Err(l.Read(pages.PathPreferences, token)), pages.ErrLink, "a link to unsubscribe opens the preferences")
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := pages.New("http://n.example", []string{"sesame", newer})
	check.ErrorContains(t, err, "NOTIFIER_PUBLIC_URL", "NOTIFIER_LINK_SECRETS", "number 1 has 6 bytes")
	check.That(t, err == nil || !strings.Contains(err.Error(), "sesame"), "%v has the secret", err)
	check.That(t, check.Err(pages.New("https://n.example", nil)) != nil, "no secret")
}

// optOuts keeps the opt-outs that it gets.
type optOuts struct {
	pages.Directory

	err error
	got []pages.Subject
}

func (b *optOuts) OptOut(_ context.Context, kind contracts.RecipientType, userID, category, on string) error {
	b.got = append(b.got, pages.Subject{Kind: kind, UserID: userID, Category: category, Channel: on})
	return b.err
}

func TestPage(t *testing.T) {
	t.Parallel()
	b := &optOuts{}
	l := links(t, newer)
	p := &pages.Site{Directory: b, Links: l}
	call := func(answer func(http.ResponseWriter, *http.Request) error, method, token string) (int, string, error) {
		w := httptest.NewRecorder()
		err := answer(w, httptest.NewRequestWithContext(t.Context(), method, pages.PathUnsubscribe+"?token="+token, strings.NewReader("List-Unsubscribe=One-Click")))
		if err == nil && (w.Header().Get("Cache-Control") != "no-store" || !strings.Contains(w.Header().Get("Content-Security-Policy"), "default-src 'none'")) {
			t.Errorf("%v", w.Header())
		}
		// A browser takes the style by its hash.
		_, rest, _ := strings.Cut(w.Body.String(), "<style>")
		css, _, found := strings.Cut(rest, "</style>")
		sum := sha256.Sum256([]byte(css))
		if hash := "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"; err == nil && (!found || !strings.Contains(w.Header().Get("Content-Security-Policy"), hash)) {
			t.Errorf("the style is not permitted: %v", w.Header())
		}
		return w.Code, w.Body.String(), err
	}
	status, body, err := call(p.Ask, http.MethodGet, l.Token(pages.PathUnsubscribe, ada))
	check.That(t,
		err == nil && status == http.StatusOK && len(b.got) == 0 && strings.Contains(body, `<form method="post"><button type="submit">`),
		"%d %s %v, %v", status, body, err, b.got)
	for _, secret := range []string{"ada", "news", "<script", "http"} {
		check.That(t, !strings.Contains(body, secret), "the page has %s: %s", secret, body)
	}
	for range 2 {
		status, body, err = call(p.Do, http.MethodPost, l.Token(pages.PathUnsubscribe, ada))
		check.That(t, err == nil && status == http.StatusOK && strings.Contains(body, "You are unsubscribed"), "%d %s %v", status, body, err)
	}
	check.That(t, len(b.got) == 2 && b.got[0] == ada && b.got[1] == ada, "%+v", b.got)
	var bodies []string
	for _, token := range []string{"", "x.y", l.Token(pages.PathUnsubscribe, ada) + "A", links(t, older).Token(pages.PathUnsubscribe, ada)} {
		for method, answer := range map[string]func(http.ResponseWriter, *http.Request) error{http.MethodGet: p.Ask, http.MethodPost: p.Do} {
			status, body, err := call(answer, method, token)
			check.That(t, err == nil && status == http.StatusForbidden, "%s %q: %d %v", method, token, status, err)
			bodies = append(bodies, body)
		}
	}
	for _, body := range bodies {
		check.Equal(t, body, bodies[0], "the answer to a wrong key")
	}
	check.That(t, len(b.got) == 2, "a bad link has switched something off: %+v", b.got)
	b.err = errors.New("the store does not answer")
	_, _, err = call(p.Do, http.MethodPost, l.Token(pages.PathUnsubscribe, ada))
	check.That(t, errors.Is(err, b.err), "a failure was taken for a success: %v", err)
}
