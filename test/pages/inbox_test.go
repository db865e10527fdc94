package pages_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/access"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// app is a page with an element behind a policy, and its notifier.
type app struct {
	*notifier.Notifier

	at string // the address of the page
}

// startApp starts a notifier with a file of keys, "" for none, and an application with the elements. front handles what the page sends
// to the notifier; nil forwards it.
func startApp(t *testing.T, keys string, front func(http.Handler) http.Handler) app {
	t.Helper()
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	check.OK(t, os.WriteFile(rules, []byte("version: 1\nevents: {}\n"), 0o600))
	nc, _ := natstest.Connect(t, natstest.Server(t))
	n := check.Must(notifier.Start(t.Context(), nc, notifier.Config{
		BaseConfig: service.BaseConfig{CreateAssets: true, Keys: keys, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)},
		Rules:      rules,
	}))(t)
	proxy := httputil.NewSingleHostReverseProxy(check.Must(url.Parse(n.URL()))(t))
	proxy.FlushInterval, proxy.ErrorLog = -1, slog.NewLogLogger(slog.DiscardHandler, 0)
	var forward http.Handler = proxy
	if front != nil {
		forward = front(proxy)
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir("testdata/app")))
	mux.Handle("/v1/", forward)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'")
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		check.OK(t, n.Stop())
	})
	return app{n, web.URL}
}

// until waits until a script returns true. chromedp.Poll would hang: the policy of the page forbids how it looks again.
func until(p *consoletest.Page, script string) {
	p.Helper()
	wait := `new Promise((r) => { const look = () => (` + script + `) ? r(true) : setTimeout(look, 10); look(); })`
	consoletest.Get(p, chromedp.Evaluate[bool](wait, chromedp.EvalAwaitPromise))
}

// says checks the results of scripts, which are texts.
func says(p *consoletest.Page, want map[string]string) {
	p.Helper()
	for script, want := range want {
		got := consoletest.Get(p, chromedp.Evaluate[string](`String(`+script+`)`))
		check.That(p.T, got == want, "%s: want %s, got %s", script, want, got)
	}
}

func (a app) put(t *testing.T, id, payload string) {
	t.Helper()
	check.OK(t, check.Err(a.Inbox.Send(t.Context(), channel.Message{
		CreatedAt: time.Now(), EventID: id, EventType: "ORDER_PAID", ID: id, Payload: []byte(payload), RecipientType: "CUSTOMER", UserID: "ada",
	})))
}

// mark marks items elsewhere, all unread ones without ids.
func (a app) mark(t *testing.T, state inapp.State, ids ...string) {
	t.Helper()
	check.OK(t, check.Err(a.Inbox.MarkAll(t.Context(), "CUSTOMER", "ada", ids, state)))
}

// three puts items with all that a payload can have.
func (a app) three(t *testing.T) {
	t.Helper()
	a.put(t, "1", `{"title":"שולם","text":"ההזמנה שלך (Pizza & Co.) מוכנה","url":"/orders/1"}`)
	a.put(t, "2", `{"title":"<b>Paid</b>","url":"javascript:alert(1)"}`)
	a.put(t, "3", `{}`)
}

// views calls look for a page on a telephone and a large screen, by day and by night, from left to right and from right to left.
func views(p *consoletest.Page, at string, look func(name string)) {
	p.Helper()
	for _, query := range []string{"dir=ltr", "dir=rtl&lang=he"} {
		for _, width := range []int64{390, 1440} {
			for _, dark := range []bool{false, true} {
				p.Visit(at+"&"+query, consoletest.View{Dark: dark, Width: width})
				until(p, `!!window.app && app.part("count").textContent === "3 unread"`)
				paper := map[bool]string{false: "rgb(255, 255, 255)", true: "rgb(27, 27, 31)"}[dark]
				says(p, map[string]string{`getComputedStyle(app.part("panel") ?? app.box).backgroundColor`: paper})
				look(fmt.Sprintf("%d-%s-%t", width, query[4:7], dark))
			}
		}
	}
}

// Everybody can use the inbox: on a telephone and a large screen, by day and by night, in both directions, with the keyboard alone.
func TestInboxElementForEverybody(t *testing.T) {
	t.Parallel()
	b := consoletest.Browse(t)
	a := startApp(t, "", nil)
	p := b.Open(t, a.at, consoletest.View{Width: 360})
	until(p, `!!window.app && app.part("empty").checkVisibility()`)
	says(p, map[string]string{`app.part("empty").getBoundingClientRect().top - app.part("header").getBoundingClientRect().bottom`: "0"})
	p.Looks("inbox-empty")
	a.three(t)
	views(p, a.at+"/?", func(name string) { p.Looks("inbox-" + name) })
	p.Visit(a.at+"/?scheme=light", consoletest.View{Dark: true, Width: 1440})
	until(p, `!!window.app && app.part("count").textContent === "3 unread"`)
	says(p, map[string]string{
		`getComputedStyle(app.box).backgroundColor`:                                       "rgb(255, 255, 255)", // as is the page
		`app.all("title").map(e => e.textContent + getComputedStyle(e).direction).join()`: "Order paidltr,<b>Paid</b>ltr,שולםrtl",
		`[...app.root.querySelectorAll("a")].map(e => e.getAttribute("href")).join()`:     a.at + "/orders/1",
		`app.part("mark-all").textContent`:                                                "Read all",
		`getComputedStyle(app.part("heading")).letterSpacing`:                             "1px",
	})
	p.Do(chromedp.Evaluate[chromedp.Void](`app.box.style.setProperty("--expediter-paper", "rgb(1, 2, 3)")`))
	says(p, map[string]string{`getComputedStyle(app.box).backgroundColor`: "rgb(1, 2, 3)"})
	p.Do(chromedp.Evaluate[chromedp.Void](`app.box.removeAttribute("style")`))
	p.Press(kb.Tab, kb.Tab, kb.Tab, kb.ArrowDown, kb.Enter) // mark all, the title of the first item, its button, that of the second one
	until(p, `app.part("count").textContent === "2 unread" && app.root.activeElement.textContent === "○"`)
	p.Press(kb.Tab, kb.Enter) // archive it
	until(p, `app.all("item").length === 2 && app.root.activeElement.ariaLabel === "Archive: שולם"`)
	p.Press(kb.Home, kb.Enter)
	until(p, `app.all("item").length === 1`)
	p.Press(kb.Enter)
	until(p, `app.root.activeElement === app.part("heading") && app.part("empty").checkVisibility()`)
	page, err := a.Inbox.Page(t.Context(), "CUSTOMER", "ada", inapp.ListOptions{})
	check.That(t, err == nil && len(page.Items) == 0 && page.Counts.Archived == 3, "%+v: %v", page.Counts, err)
	p.Looks("inbox-used")
}

// Everybody can use the bell, and its panel is inside the window wherever the bell is.
func TestBellElementForEverybody(t *testing.T) {
	t.Parallel()
	b := consoletest.Browse(t)
	a := startApp(t, "", nil)
	a.three(t)
	p := b.Open(t, a.at, consoletest.View{Width: 1440})
	const closed, open = `app.part("bell").ariaExpanded === "false" && !app.part("panel").checkVisibility()`, `app.events.at(-1) === "opened"`
	views(p, a.at+"/?element=expediter-bell", func(name string) {
		until(p, `app.part("badge").textContent === "3" && app.part("status").textContent === "3 unread" && `+closed)
		p.Looks("bell-" + name)
		p.Press(kb.Tab, kb.Enter)
		until(p, open)
		says(p, map[string]string{
			`app.part("bell").ariaExpanded`:                  "true",
			`app.part("bell").ariaLabel`:                     "Notifications, 3 unread",
			`app.root.activeElement === app.part("heading")`: "true",
			`((r) => r.left >= 0 && r.right <= innerWidth && r.bottom <= innerHeight)(app.part("panel").getBoundingClientRect())`: "true",
		})
		p.Looks("bell-open-" + name)
		p.Press(kb.Escape)
		until(p, closed+` && app.root.activeElement === app.part("bell") && app.events.at(-1) === "closed"`)
	})
	p.Press(" ")
	until(p, open)
	p.Do(chromedp.Evaluate[chromedp.Void](`void addEventListener("itemclick", (e) => e.preventDefault(), { once: true })`))
	p.Press(kb.Tab, kb.Tab, kb.End, kb.Enter) // mark all, the title of the first item, that of the last one, which is a link
	until(p, closed+` && app.part("badge").textContent === "2"`)
	says(p, map[string]string{`location.pathname`: "/", `app.events.filter((e) => /itemclick|not composed/.test(e))`: "itemclick"})
	p.Press(kb.Enter)
	until(p, `app.events.at(-1) === "opened"`)
	p.Do(chromedp.MouseClickXY(10, 700)) // elsewhere on the page
	until(p, closed+` && app.events.at(-1) === "closed"`)
	p.Do(chromedp.Evaluate[chromedp.Void](`void (app.part("bell").click(), app.box.remove(), document.querySelector("main").append(app.box))`))
	until(p, closed)
	says(p, map[string]string{`app.items.length`: "4"}) // it goes on where it was
}

// The badge has the number of all unread items, also of those that the panel does not show, whoever reads or archives them.
func TestBellCountsWhatIsReadElsewhere(t *testing.T) {
	t.Parallel()
	b := consoletest.Browse(t)
	a := startApp(t, "", nil)
	a.three(t)
	p := b.Open(t, a.at+"/?element=expediter-bell&limit=2", consoletest.View{Width: 1440})
	badge := func(text string) {
		until(p, `!!window.app && app.part("badge").textContent === "`+text+`" && app.box.unread === `+text)
	}
	badge("3")
	a.mark(t, inapp.Read, "1") // beyond the limit
	badge("2")
	a.mark(t, inapp.Unread, "1")
	badge("3")
	a.mark(t, inapp.Archived, "2")
	badge("2")
	a.mark(t, inapp.Read)
	until(p, `app.part("badge").hidden && app.box.unread === 0 && app.part("status").textContent === ""`)
	a.put(t, "4", `{}`)
	badge("1")
	says(p, map[string]string{`app.events.filter((e) => e === "unread").length`: "6", `app.part("bell").ariaLabel`: "Notifications, 1 unread"})
	p.Do(chromedp.Evaluate[chromedp.Void](`void app.box.setAttribute("labels", '{"bell":"{n} neue Nachrichten","inbox":"Posteingang"}')`))
	says(p, map[string]string{`app.part("bell").ariaLabel + app.part("heading").textContent`: "1 neue NachrichtenPosteingang"})
	p.Do(chromedp.Evaluate[chromedp.Void](`void (app.box.labels = { bell: "{n} new" })`))
	says(p, map[string]string{`app.part("bell").ariaLabel + app.part("heading").textContent`: "1 newInbox"})
	for i := range 100 {
		a.put(t, fmt.Sprint("more-", i), `{}`)
	}
	until(p, `app.part("badge").textContent === "99+" && app.box.unread === 101 && app.all("item").length === 2`)
}

// disconnects is the number of times that a page loses its connection.
const disconnects = 100

// cutter cuts off the first streams of an inbox after some bytes: before, within and after events.
type cutter struct {
	http.Handler

	streams atomic.Int64
}

func (c *cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/inbox/events") {
		if n := c.streams.Add(1); n <= disconnects {
			w = &short{w, int(n * 137 % 900)}
		}
	}
	c.Handler.ServeHTTP(w, r)
}

// short is an answer that ends after some bytes.
type short struct {
	http.ResponseWriter

	left int
}

func (s *short) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *short) Write(data []byte) (int, error) {
	if s.left > len(data) {
		s.left -= len(data)
		return s.ResponseWriter.Write(data)
	}
	_, err := s.ResponseWriter.Write(data[:s.left])
	return s.left, errors.Join(io.ErrShortWrite, err, http.NewResponseController(s.ResponseWriter).Flush())
}

// A page gets each item once through a hundred disconnects.
func TestElementLosesNothingWhenDisconnected(t *testing.T) {
	t.Parallel()
	b := consoletest.Browse(t)
	var cut cutter
	a := startApp(t, "", func(h http.Handler) http.Handler { cut.Handler = h; return &cut })
	p := b.Open(t, a.at, consoletest.View{Width: 1440})
	until(p, `!!window.app`)
	var want []string
	for cut.streams.Load() <= disconnects {
		id := fmt.Sprint("item-", len(want))
		a.put(t, id, `{}`)
		want = append(want, id)
		until(p, fmt.Sprintf(`app.items.length >= %d`, len(want)))
	}
	a.put(t, "last", `{}`)
	until(p, `app.items.at(-1) === "last"`)
	until(p, fmt.Sprintf(`app.box.unread === %d && app.all("item").length === %[1]d && !app.part("note").textContent`, len(want)+1))
	check.Equal(t, consoletest.Get(p, chromedp.Evaluate[[]string](`app.items`)), append(want, "last"))
	t.Logf("%d disconnects, %d items", disconnects, len(want)+1)
}

// expire ends the time of a key.
func expire(t *testing.T, path, name string) {
	t.Helper()
	file := check.Must(access.ReadFile(path))(t)
	for i := range file.Keys {
		if file.Keys[i].Name == name {
			file.Keys[i].Expires = time.Now()
		}
	}
	check.OK(t, os.WriteFile(path, check.Must(json.Marshal(file))(t), 0o600))
}

// A page sets a token at any time, and renews one that expires while it is open, without losing or repeating an item.
func TestElementTokens(t *testing.T) {
	t.Parallel()
	b := consoletest.Browse(t)
	path := filepath.Join(t.TempDir(), "keys.json")
	key := func(name string) string {
		return check.Must(access.Add(path, access.Key{Name: name, Scopes: []access.Scope{access.Mark, access.Read}, User: "ada"}))(t)
	}
	first, second, third := key("first"), key("second"), key("third")
	a := startApp(t, path, nil)
	a.put(t, "1", `{}`)
	p := b.Open(t, a.at, consoletest.View{Width: 1440})
	failed := func(n int) {
		until(p, fmt.Sprintf(`!!window.app && app.events.filter((e) => e === "failed").length === %d`, n))
	}
	do := func(script string) { p.Do(chromedp.Evaluate[chromedp.Void](`void (` + script + `)`)) }
	failed(1)
	says(p, map[string]string{
		`app.root.host.innerText + app.all("note").map((e) => e.textContent)`:                            "The inbox cannot be shown.",
		`app.all("empty").concat(app.all("list"), app.all("mark-all")).some((e) => e.checkVisibility())`: "false",
		`app.part("count").textContent`: "",
		`app.box.offsetHeight - app.part("header").offsetHeight - app.part("note").offsetHeight`: "0",
	})
	p.Excuse("401")
	p.Looks("inbox-refused")
	do(`app.box.setAttribute("token", "wrong")`)
	failed(2)
	do(`app.box.setAttribute("token", "` + first + `")`)
	until(p, `app.items.join() === "1" && app.part("note").textContent === ""`)
	do(`app.now = "` + first + `", app.denied = 0`)
	do(`(app.box.token = async (old) => {
		if (old) {
			app.refused.push(old);
			while (app.denied < 2) await new Promise((r) => setTimeout(r, 10)); // another request has to wait for the same renewal
			app.now = "` + second + `";
		}
		return app.now;
	})`)
	a.expired(t, path, "first", first)
	a.put(t, "2", `{}`)
	until(p, `app.refused.length === 1`)
	do(`app.part("toggle").click()`)
	until(p, `app.items.toSorted().join() === "1,1,2" && app.box.unread === 1`)
	says(p, map[string]string{`app.refused`: first})
	do(`app.box.token = "` + second + `"`)
	a.expired(t, path, "second", second)
	a.put(t, "3", `{}`)
	failed(3) // nothing renews a text
	do(`app.box.token = "` + third + `"`)
	until(p, `app.items.toSorted().join() === "1,1,2,3" && app.part("note").textContent === "" && app.box.unread === 2`)
	do(`app.events.length = 0, app.box.setAttribute("labels", "no JSON")`)
	failed(1)
}

// expired ends the time of a key, and waits until the notifier refuses its secret.
func (a app) expired(t *testing.T, path, name, secret string) {
	t.Helper()
	expire(t, path, name)
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	check.Until(t, time.Minute, "the notifier refuses the key", func() bool {
		r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, a.URL()+"/v1/users/ada/inbox", http.NoBody))(t)
		r.Header.Set("Authorization", "Bearer "+secret)
		answer := check.Must(client.Do(r))(t)
		check.OK(t, answer.Body.Close())
		return answer.StatusCode == http.StatusUnauthorized
	})
}
