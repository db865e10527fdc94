// Package pages_test looks at the pages of services as people do: in a browser.
package pages_test

import (
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(consoletest.Tests{M: natstest.Parallel(m, 4)}) }

const someRules = `
version: 1
categories:
  news: {default: News and offers, he: "חדשות (News & offers)"}
events:
  HELLO: {CUSTOMER: {scope: user, channels: [sms], template: hello}}
  NEWS: {CUSTOMER: {scope: user, channels: [inapp, sms], category: news, template: hello}}
  CHAT: {CUSTOMER: {scope: user, channels: [inapp], category: chat_messages}}
`

// site is a notifier, and the pages of a user.
type site struct {
	*notifier.Notifier

	preferences, unsubscribe string
}

// start starts a notifier that tells a user about the pages.
func start(t *testing.T) *site {
	t.Helper()
	texts := make(chan string, 1)
	phone := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // an empty text is none
		texts <- string(body)
	}))
	t.Cleanup(phone.Close)
	folder := t.TempDir()
	check.OK(t, os.Mkdir(filepath.Join(folder, "hello"), 0o700))
	text := "choose {{.Preferences}} or stop {{.Unsubscribe}} now"
	check.OK(t, os.WriteFile(filepath.Join(folder, "hello", "default.sms.txt"), []byte(text), 0o600))
	check.OK(t, os.WriteFile(filepath.Join(folder, "hello", "default.txt"), []byte(text), 0o600))
	check.OK(t, os.WriteFile(filepath.Join(folder, "hello", "default.subject"), []byte("hello"), 0o600))
	rules, roots := filepath.Join(t.TempDir(), "rules.yaml"), filepath.Join(t.TempDir(), "roots.pem")
	check.OK(t, os.WriteFile(rules, []byte(someRules), 0o600))
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: phone.Certificate().Raw})
	check.OK(t, os.WriteFile(roots, authority, 0o600))

	nc, js := natstest.Connect(t, natstest.Server(t))
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
	n, err := notifier.Start(t.Context(), nc, notifier.Config{
		BaseConfig: service.BaseConfig{CreateAssets: true, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}, Rules: rules,
		ChannelConfig: notifier.ChannelConfig{
			LinkSecrets: []string{strings.Repeat("x", 32)}, PublicURL: "https://n.example", RootCAs: roots, SMSURL: phone.URL,
			Templates: folder,
		},
	})
	check.OK(t, err)
	t.Cleanup(func() { check.OK(t, n.Stop()) })
	check.OK(t, n.Directory.Put(t.Context(), contracts.Recipient{
		RecipientType: "CUSTOMER", UserID: "ada", Addresses: map[string]string{"sms": "+1"}, Locale: "he", TimeZone: "Asia/Jerusalem",
		Mute: map[string]time.Time{"news": time.Now().Add(24 * time.Hour)},
	}))
	publisher := check.Must(contracts.NewPublisher(js, contracts.PublisherConfig{Source: "/test"}))(t)
	check.OK(t, check.Err(publisher.Publish(t.Context(), contracts.Event{
		EventID: "evt-1", EventType: "HELLO", AggregateType: "USER", UserID: "ada",
	})))
	said := strings.Fields(<-texts)
	after := func(word string) string {
		return n.URL() + strings.TrimPrefix(said[slices.IndexFunc(said, func(s string) bool { return strings.HasSuffix(s, word) })+1], "https://n.example")
	}
	return &site{Notifier: n, preferences: after("choose"), unsubscribe: after("stop")}
}

// Everybody can use the pages, and what was changed elsewhere in the meantime is not overwritten.
func TestPagesForEverybody(t *testing.T) {
	t.Parallel()
	b := consoletest.Browse(t)
	s := start(t)
	view := consoletest.View{Width: 1440}
	p := b.Open(t, s.preferences+"&saved=1", view)
	p.Everybody("saved")
	p.Visit(s.unsubscribe, view)
	p.Everybody("unsubscribe")
	p.Visit(s.preferences, view)
	p.Everybody("preferences")
	check.OK(t, s.Directory.OptOut(t.Context(), "CUSTOMER", "ada", "news", "sms"))
	p.Do(chromedp.Focus(chromedp.CSS("button")))
	p.Submit(kb.Enter)
	check.Contains(t, consoletest.Get(p, chromedp.Text(chromedp.CSS(".note"))), "nothing was saved")
}

// Nothing but a keyboard is needed, and no script.
func TestPreferencesByKeyboard(t *testing.T) {
	t.Parallel()
	b := consoletest.Browse(t)
	s := start(t)
	for _, view := range []consoletest.View{{Width: 1440}, {Width: 360, NoScript: true}} {
		before, _, err := s.Directory.Get(t.Context(), "CUSTOMER", "ada")
		check.OK(t, err)
		p := b.Open(t, s.preferences, view)
		p.Press(kb.Tab, " ") // everything in the app
		p.Submit(kb.Enter)   // as the only button does
		after, _, err := s.Directory.Get(t.Context(), "CUSTOMER", "ada")
		check.OK(t, err)
		check.That(t, len(before.OptOut["*"]) != len(after.OptOut["*"]) && len(after.Mute) == 1, "%+v: %v became %v", view, before, after)
	}
	p := b.Open(t, s.unsubscribe, consoletest.View{Width: 360, NoScript: true})
	p.Press(kb.Tab)
	p.Submit(kb.Enter)
	r, _, err := s.Directory.Get(t.Context(), "CUSTOMER", "ada")
	check.OK(t, err)
	check.Contains(t, fmt.Sprint(r.OptOut["*"]), "sms")
}

// up builds the program, runs `expediter up`, and returns the address of its page.
func up(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "expediter")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s", "-o", program, "../../cmd/expediter").CombinedOutput()
	check.Require(t, err == nil, "build: %v\n%s", err, out)
	p := crash.Start(t, exec.Command(program, "up", "--console-port", "0", "--http-port", "0", "--importer-port", "0", "--nats-port", "0",
		"--notifier-port", "0"))
	return p.Await(`Open (http://\S+) to try it`)[1]
}

// pending reports whether a place of a page is.
const pending = `document.querySelector("#found .warn") !== null || document.querySelector("#found li") === null`

// A newcomer sees a recipe made, a notification arrive and links appear, with nothing but a keyboard.
func TestNewcomerSeesItHappen(t *testing.T) {
	t.Parallel()
	b := consoletest.Browse(t)
	home := up(t)
	b.Open(t, home, consoletest.View{Width: 1440}).Everybody("newcomer-first")
	p := b.Open(t, home+"/?q=pizza", consoletest.View{Width: 1280})
	p.Do(chromedp.Focus(chromedp.CSS("#source")))
	p.Press(kb.Tab, kb.Enter)
	p.Do(chromedp.WaitVisible(chromedp.CSS("#imported .recipe")), chromedp.Focus(chromedp.CSS("input[name=name]")))
	p.Press(kb.Tab, kb.Tab, kb.Enter)
	p.Do(chromedp.WaitVisible(chromedp.CSS("ol[sse-connect] bdi")), chromedp.Focus(chromedp.CSS("#q")))
	p.Press(kb.Enter)
	p.Do(chromedp.WaitVisible(chromedp.CSS("#found a")))
	p.Looks("newcomer")
	settle(p)
	check.Contains(t, consoletest.Get(p, chromedp.Text(chromedp.CSS("#found"))), "https://wolt.com/")
}

// settle waits until nothing is under way on a page.
func settle(p *consoletest.Page) {
	p.Helper()
	for consoletest.Get(p, chromedp.Evaluate[bool](pending)) {
		retry.Sleep(p.Context(), 100*time.Millisecond)
	}
}
