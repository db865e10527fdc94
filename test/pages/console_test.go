package pages_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

const (
	linkSays   = `document.getElementById("link").textContent`
	streamsOf  = `document.querySelector("#live").textContent`
	setVisible = `Object.defineProperty(document, "hidden", {value: HIDDEN, configurable: true});
		document.dispatchEvent(new Event("visibilitychange")); true`
)

// A page that is open follows; it pauses while it is hidden, says when its connection is lost, and shows the missed changes afterwards.
func TestConsoleIsLive(t *testing.T) {
	t.Parallel()
	b := consoletest.Browse(t)
	s := consoletest.Start(t)
	to := check.Must(url.Parse(s.URL))(t)
	forward := httputil.NewSingleHostReverseProxy(to)
	forward.FlushInterval = -1
	forward.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {} // those that are cut off
	ended := make(chan bool, 10)                                              // streams of events
	wire := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/live" {
			defer func() { ended <- true }()
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(wire.Close)
	p := b.Open(t, wire.URL+"/dead/replays", consoletest.View{Width: 1440})
	until(p, linkSays+`.startsWith("live")`)

	show := func(hidden string) {
		consoletest.Get(p, chromedp.Evaluate[bool](strings.Replace(setVisible, "HIDDEN", hidden, 1)))
	}
	show("true")
	until(p, linkSays+` === "paused"`)
	<-ended
	replays := 0
	replay := func(signature string) {
		replays++
		s.PutDeadLetters(consoletest.DeadLetter(replays, func(l *worker.DeadLetter) { l.Signature = signature }))
		s.Post("/dead/replay", url.Values{"rate": {"10"}, "signature": {signature}}, http.StatusSeeOther)
	}
	replay("first")
	check.That(t, consoletest.Get(p, chromedp.Evaluate[bool](`!`+streamsOf+`.includes("first")`)), "a hidden page is reloaded")
	show("false")
	until(p, streamsOf+`.includes("first") && `+linkSays+`.startsWith("live")`)

	consoletest.Get(p, chromedp.Evaluate[bool](`window.said = []; new MutationObserver(() => window.said.push(`+linkSays+`)).observe(
		document.getElementById("link"), {childList: true}); true`))
	for _, name := range []string{"second", "third", "fourth"} {
		wire.CloseClientConnections()
		replay(name)
		until(p, streamsOf+`.includes("`+name+`") && `+linkSays+`.startsWith("live")`)
	}
	check.That(t, consoletest.Get(p, chromedp.Evaluate[bool](`window.said.some((s) => s.startsWith("connection lost"))`)),
		"it never says that it was cut off")

	focus := func(do string) {
		consoletest.Get(p, chromedp.Evaluate[bool](`document.querySelector("#live a, #live button").`+do+`(); true`))
	}
	focus("focus")
	replay("fifth")
	until(p, linkSays+`.startsWith("paused")`)
	check.That(t, consoletest.Get(p, chromedp.Evaluate[bool](`!`+streamsOf+`.includes("fifth")`)), "a page that is used is reloaded")
	focus("blur")
	until(p, streamsOf+`.includes("fifth") && `+linkSays+`.startsWith("live")`)
}

// A keyboard is enough to sign in, to see the keys, and to replay dead letters.
func TestConsoleByKeyboard(t *testing.T) {
	t.Parallel()
	b := consoletest.Browse(t)
	guard, secrets := consoletest.Keys(t)
	s := consoletest.Start(t, func(c *console.Config) { c.Access = guard })
	s.PutDeadLetters(consoletest.DeadLetter(1), consoletest.DeadLetter(2))
	for _, view := range []consoletest.View{{Width: 360, NoScript: true}, {Width: 1440}} {
		p := b.Open(t, s.URL+"/dead", view)
		tabTo(p, "input[type=password]")
		p.Press(strings.Split(secrets["operator"], "")...)
		p.Submit(kb.Enter)
		check.Equal(t, consoletest.Get(p, chromedp.Location()), s.URL+"/dead", "the page behind the form")
		if view.NoScript {
			tabTo(p, "form[action$='/sign-out'] button")
			p.Submit(kb.Enter)
			continue
		}
		p.Press("?")
		until(p, `document.getElementById("keys").open`)
		p.Press(kb.Escape, "j")
		until(p, `!document.getElementById("keys").open && document.activeElement.matches("tbody a")`)
		tabTo(p, "form[action$='/dead/replay'] button")
		p.Submit(kb.Enter)
		until(p, `document.activeElement.name === "typed"`)
		p.Everybody("console-ask")
		p.Press("2")
		p.Submit(kb.Enter)
		until(p, streamsOf+`.includes("2 of 2 dead letters")`)
	}
}
