package pages_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// startApp starts a notifier, and an application with the element behind a policy. It returns the address of its page.
func startApp(t *testing.T) (string, *notifier.Notifier) {
	t.Helper()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	check.OK(t, os.WriteFile(rules, []byte("version: 1\nevents: {}\n"), 0o600))
	nc, _ := natstest.Connect(t, natstest.Server(t))
	n := check.Must(notifier.Start(t.Context(), nc, notifier.Config{
		BaseConfig: service.BaseConfig{CreateAssets: true, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}, Rules: rules,
	}))(t)
	proxy := httputil.NewSingleHostReverseProxy(check.Must(url.Parse(n.URL()))(t))
	proxy.FlushInterval, proxy.ErrorLog = -1, slog.NewLogLogger(slog.DiscardHandler, 0)
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir("testdata/app")))
	mux.Handle("/v1/", proxy)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'")
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		check.OK(t, n.Stop())
	})
	return web.URL, n
}

// until waits until a script returns true. chromedp.Poll would hang: the policy of the page forbids how it looks again.
func until(p *consoletest.Page, script string) {
	p.Helper()
	wait := `new Promise((r) => { const look = () => (` + script + `) ? r(true) : setTimeout(look, 10); look(); })`
	consoletest.Get(p, chromedp.Evaluate[bool](wait, chromedp.EvalAwaitPromise))
}

func put(t *testing.T, n *notifier.Notifier, id, payload string) {
	t.Helper()
	check.OK(t, check.Err(n.Inbox.Send(t.Context(), channel.Message{
		CreatedAt: time.Now(), EventID: id, EventType: "ORDER_PAID", ID: id, Payload: []byte(payload), RecipientType: "CUSTOMER", UserID: "ada",
	})))
}

// Everybody can use the element: on a telephone and a large screen, by day and by night, with the keyboard alone.
func TestInboxElementForEverybody(t *testing.T) {
	b := consoletest.Browse(t)
	at, n := startApp(t)
	p := b.Open(t, at, consoletest.View{Width: 360})
	until(p, `!!window.app && app.root.querySelector("[part=empty]").checkVisibility()`)
	p.Looks("inbox-empty")
	put(t, n, "1", `{"title":"שולם","text":"ההזמנה שלך (Pizza & Co.) מוכנה","url":"/orders/1"}`)
	put(t, n, "2", `{"title":"<b>Paid</b>","url":"javascript:alert(1)"}`)
	put(t, n, "3", `{}`)
	p = b.Open(t, at, consoletest.View{Dark: true, Width: 1440}) // as is the paper, later
	until(p, `!!window.app && app.items.length === 3`)
	p.Everybody("inbox")
	for script, want := range map[string]string{
		`[...app.root.querySelectorAll("[part=title]")].map(e => e.textContent + getComputedStyle(e).direction).join()`: "Order paidltr,<b>Paid</b>ltr,שולםrtl",
		`[...app.root.querySelectorAll("a")].map(e => e.getAttribute("href")).join()`:                                   at + "/orders/1",
		`getComputedStyle(app.root.querySelector("[part=heading]")).letterSpacing`:                                      "1px",
		`app.box.style.setProperty("--expediter-paper", "rgb(1, 2, 3)"), getComputedStyle(app.box).backgroundColor`:     "rgb(1, 2, 3)",
	} {
		got := consoletest.Get(p, chromedp.Evaluate[string](script))
		check.That(t, got == want, "%s: want %s, got %s", script, want, got)
	}
	p.Press(kb.Tab, kb.Tab, kb.ArrowDown, kb.Enter) // mark all, the first item, the second one
	until(p, `app.root.querySelector("[part=count]").textContent === "2 unread" && app.root.activeElement.textContent === "○"`)
	p.Press(kb.Tab, kb.Enter) // put it away
	until(p, `app.root.querySelectorAll("li").length === 2 && app.root.activeElement.ariaLabel === "Archive: שולם"`)
	p.Press(kb.Home, kb.Enter)
	until(p, `app.root.querySelectorAll("li").length === 1`)
	p.Press(kb.Enter)
	until(p, `app.root.activeElement === app.root.querySelector("h2") && app.root.querySelector("[part=empty]").checkVisibility()`)
	page, err := n.Inbox.Page(t.Context(), "CUSTOMER", "ada", inapp.ListOptions{})
	check.That(t, err == nil && len(page.Items) == 0 && page.Counts.Archived == 3, "%+v: %v", page.Counts, err)
	p.Looks("inbox-used")
}
