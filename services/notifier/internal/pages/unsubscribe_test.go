package pages_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/internal/pages"
)

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
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	_, err := pages.New("http://n.example", []string{"sesame", newer})
	for _, want := range []string{"NOTIFIER_PUBLIC_URL", "NOTIFIER_LINK_SECRETS", "number 1 has 6 bytes"} {
		check.That(t, err != nil && strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "sesame"),
			"%v does not say %s", err, want)
	}
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
