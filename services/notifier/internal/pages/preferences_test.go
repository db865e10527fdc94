package pages_test

import (
	"context"
	"encoding/json"
	"errors"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
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
			`"opt_out":{"*":["sms"],"chat":["*"],"gone":["email"],"news":["pigeon","email"]},"quiet_hours":{"from":"22:00","to":"07:00"}}`
		s.put("ada", was)
		s.has("ada", was)
		page := s.answers(s.token("ada"), nil, http.StatusOK)
		check.Contains(t, page, `<bdi lang="he">חדשות</bdi>`, "<bdi>Chat</bdi>", "Together: 30m", "Times are those of Asia/Jerusalem")
		for _, other := range []string{"ada", "urgent sms", "Admins", "gone", "pigeon"} {
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
			`"opt_out":{"*":["email","sms"],"chat":["email"],"gone":["email"],"news":["pigeon","inapp"]},"quiet_hours":{"from":"00:00","to":"00:00"}}`)
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
	s.page.Directory = meanwhile{s.directory, func() {
		check.OK(t, s.directory.OptOut(t.Context(), "CUSTOMER", "ada", "*", "inapp"))
	}}
	page := s.answers(s.token("ada"), values, http.StatusConflict)
	check.Contains(t, page, `name="on" value="* inapp">`)
	s.has("ada", `{"opt_out":{"*":["inapp"],"chat":["sms"],"news":["email"]}}`)
}

// meanwhile is a directory in which something happens before each write.
type meanwhile struct {
	*recipient.Directory

	happens func()
}

func (m meanwhile) Prefer(ctx context.Context, r contracts.Recipient, revision uint64) error {
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
	if err := s.page.Do(w, r); err != nil || w.Code != http.StatusForbidden {
		t.Errorf("a link to preferences unsubscribes: %d %v", w.Code, err)
	}
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
	s.page.Directory = meanwhile{Directory: s.directory, happens: func() { s.Error("it writes") }}
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
