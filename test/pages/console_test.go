package pages_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/console"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/test/internal/browser"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// looks looks at a page of a console as everybody does: on a telephone and a large screen, by day and by night. It is closed before the
// next: a browser has six connections to a host over HTTP/1.1, and a page that follows holds one.
func looks(t *testing.T, b *browser.Browser, s *consoletest.Site, name, path string) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		var p *browser.Page
		for _, view := range []browser.View{{Width: 360}, {Dark: true, Width: 360}, {Width: 1440}, {Dark: true, Width: 1440}} {
			if p == nil {
				p = b.Open(t, s.URL+path, view)
			} else {
				p.Visit(s.URL+path, view)
			}
			p.Looks(fmt.Sprintf("console-%s-%d-%t", name, view.Width, view.Dark))
		}
	})
}

func TestConsoleForEverybody(t *testing.T) {
	b := browser.Start(t)
	looks(t, b, consoletest.Start(t), "overview", "/")
	guard, _ := consoletest.Keys(t)
	looks(t, b, consoletest.Start(t, func(c *console.Config) { c.Access, c.Prefix = guard, "/console" }), "signin", "/")
}

func TestBusinessForEverybody(t *testing.T) {
	b := browser.Start(t)
	s := consoletest.Start(t)
	s.Business()
	for name, path := range map[string]string{
		"event": "/notifications?event=evt+1", "event-open": "/notifications?event=evt-2", "events": "/notifications",
		"user": "/notifications?user=" + url.QueryEscape(consoletest.Hebrew), "person": "/people/" + url.PathEscape(consoletest.Hebrew), "import": "/imports?id=job-1", "import-failed": "/imports?id=job-2",
		"imports": "/imports", "place": "/places?id=" + url.QueryEscape(consoletest.PlaceID), "places": "/places",
	} {
		looks(t, b, s, name, path)
	}
}

// An event is found and cancelled with a keyboard, with a script and without.
func TestEventIsCancelledByKeyboard(t *testing.T) {
	b := browser.Start(t)
	for _, view := range []browser.View{{Width: 1440}, {Width: 360, NoScript: true}} {
		s := consoletest.Start(t)
		s.Business()
		p := b.Open(t, s.URL+"/notifications", view)
		p.Do(chromedp.Focus(chromedp.CSS("input[name=event]")))
		p.Press("e", "v", "t", "-", "2")
		p.Submit(kb.Enter)
		for !browser.Get(p, chromedp.Evaluate[bool](`document.activeElement.className === "danger"`)) {
			p.Press(kb.Tab)
		}
		p.Submit(kb.Enter)
		check.Says(t, browser.Get(p, chromedp.Text(chromedp.CSS("main"))), "Cancelled: 3 suppressed", "it was cancelled")
	}
}

func TestDoctorForEverybody(t *testing.T) {
	b := browser.Start(t)
	s := consoletest.Start(t, func(c *console.Config) {
		c.Doctor = func(context.Context) ([]console.Finding, error) {
			return []console.Finding{
				{Severity: console.Error, Of: "stream EVENTS", ID: "stream.max_age", Problem: "max_age is 1h, want 720h", Cure: "expediter apply " + strings.Repeat("x", 80)},
				{Severity: console.Warning, Of: "server n1", ID: "server.rtt", Problem: "a round trip takes 300ms", Cure: "# move closer"},
				{Severity: console.Skipped, Problem: "servers: the user may not ask them"},
			}, nil
		}
	})
	looks(t, b, s, "doctor", "/doctor")
	looks(t, b, s, "doctor-findings", "/doctor?run=1")
}

// click clicks, as a person does, and waits for the page that follows.
func click(p *browser.Page, selector string) {
	p.Helper()
	p.Do(chromedp.Focus(chromedp.CSS(selector)))
	p.Submit(kb.Enter)
}

// A group of 1,811 letters is found, understood and replayed by three clicks from the overview, without a script, too.
func TestAGroupIsReplayedByThreeClicks(t *testing.T) {
	b := browser.Start(t)
	for _, view := range []browser.View{{Width: 1440}, {Width: 360, NoScript: true}} {
		s := consoletest.Start(t)
		for n := range 1811 {
			s.PutLetters(consoletest.Letter(n))
		}
		s.PutLetters(consoletest.Letter(2000, func(l *worker.DeadLetter) { l.Signature = "no such user" }))
		p := b.Open(t, s.URL+"/", view)
		click(p, `nav a[href="/dead"]`)
		click(p, `tbody a[href*="extract"]`)
		if !view.NoScript {
			p.Do(chromedp.WaitVisible(chromedp.CSS("#rehearsal strong")))
			said := browser.Get(p, chromedp.Text(chromedp.CSS("#rehearsal")))
			counts := regexp.MustCompile(`Dry run: ([\d,]+) → ([\d,]+)`).FindStringSubmatch(said)
			check.Require(t, len(counts) == 3 && counts[1] == counts[2], "the dry run says %q", said)
			if !strings.Contains(said, "Only the first "+counts[1]) { // it takes three seconds at most, whatever machine that is
				check.Same(t, "letters of the dry run", counts[1], "1,811")
			}
		}
		check.Says(t, browser.Get(p, chromedp.Text(chromedp.CSS("main"))), "status 503", "1,811 letters", "vm-3")
		click(p, `form[action="/dead/replay"] button`)
		check.Says(t, browser.Get(p, chromedp.Text(chromedp.CSS("main"))), "of 1,811 letters")
		click(p, `form[action="/dead/stop"] button`)
	}
}

func TestDeadLettersForEverybody(t *testing.T) {
	b := browser.Start(t)
	s := consoletest.Start(t)
	looks(t, b, s, "dead-none", "/dead")
	for n := range 40 {
		s.PutLetters(consoletest.Letter(n))
	}
	s.PutLetters(consoletest.Letter(50, func(l *worker.DeadLetter) {
		l.Signature, l.Payload, l.Stack = "משתמש # לא נמצא", []byte(`{"name":"דנה"}`), "goroutine 1 [running]:\n\tmain.go:1"
	}))
	looks(t, b, s, "dead", "/dead")
	looks(t, b, s, "dead-group", "/dead?signature=extract:+status+%23")
	looks(t, b, s, "dead-letter", "/dead/letter?seq=41")
	looks(t, b, s, "dead-rehearsal", "/dead/rehearsal")
	s.Post("/dead/replay", url.Values{"rate": {"0.001"}, "signature": {"extract: status #"}}, http.StatusSeeOther)
	looks(t, b, s, "dead-replays", "/dead/replays")
	click(b.Open(t, s.URL+"/dead/replays", browser.View{Width: 1440}), `form[action="/dead/stop"] button`)
	looks(t, b, s, "dead-broken", "/dead")
}

func TestWorkersForEverybody(t *testing.T) {
	b := browser.Start(t)
	s := consoletest.Start(t)
	looks(t, b, s, "workers-none", "/workers")
	began, free := make(chan string), make(chan struct{})
	w, err := worker.New(s.JetStream, worker.Config{
		AutoCreate: true, Consumer: "importer", ID: "vm-3", Logger: slog.New(slog.DiscardHandler), Stream: contracts.StreamImportJobs,
	})
	check.OK(t, err)
	check.OK(t, worker.Handle(w, "jobs.import.high.>", worker.Policy{MaxAttempts: 1}, func(_ context.Context, job *worker.Job[string]) error {
		began <- job.Args
		if job.Args == "bad" {
			return fmt.Errorf("extract: status %d", 503)
		}
		<-free
		return nil
	}))
	t.Cleanup(natstest.Background(t, w.Run))
	t.Cleanup(func() { close(free) })
	for _, kind := range []string{"bad", "slow"} {
		check.OK(t, check.Err(s.JetStream.Publish(t.Context(), "jobs.import.high."+kind, fmt.Appendf(nil, "%q", kind))))
		check.Same(t, "the job that runs", <-began, kind)
	}
	looks(t, b, s, "workers", "/workers")
	looks(t, b, s, "overview-waited", "/")
	p := b.Open(t, s.URL+"/workers", browser.View{Width: 1440})
	click(p, `tbody a[href*="/workers/"]`)
	at := browser.Get(p, chromedp.Location())
	looks(t, b, s, "worker", at[len(s.URL):])
	p = b.Open(t, at, browser.View{Width: 1440})
	click(p, `form[action="/workers/pause"] button`)
	check.Says(t, browser.Get(p, chromedp.Text(chromedp.CSS(".note"))), "is paused until", "expediter jobs pause")
	looks(t, b, s, "worker-paused", at[len(s.URL):])
	p = b.Open(t, at, browser.View{Width: 1440})
	click(p, `form[action="/workers/resume"] button`)
	check.Says(t, browser.Get(p, chromedp.Text(chromedp.CSS(".note"))), "goes on", "expediter jobs resume")
	click(p, `form[action$="/drain"] button`)
	check.Says(t, browser.Get(p, chromedp.Text(chromedp.CSS(".note"))), "takes no more jobs", "expediter jobs drain")
	looks(t, b, s, "worker-drained", at[len(s.URL):])
	click(p, `form[action$="/resume"]:not([action="/workers/resume"]) button`)
	check.Says(t, browser.Get(p, chromedp.Text(chromedp.CSS(".note"))), "takes jobs again", "--resume")
}

const (
	linkSays   = `document.getElementById("link").textContent`
	streamsOf  = `document.querySelector("#live").textContent`
	setVisible = `Object.defineProperty(document, "hidden", {value: HIDDEN, configurable: true});
		document.dispatchEvent(new Event("visibilitychange")); true`
)

// A page that is open follows; it pauses while it is hidden, says when its connection is lost, and shows the missed changes afterwards.
func TestConsoleIsLive(t *testing.T) {
	b := browser.Start(t)
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
	p := b.Open(t, wire.URL+"/dead/replays", browser.View{Width: 1440})
	until(p, linkSays+`.startsWith("live")`)

	show := func(hidden string) {
		browser.Get(p, chromedp.Evaluate[bool](strings.Replace(setVisible, "HIDDEN", hidden, 1)))
	}
	show("true")
	until(p, linkSays+` === "paused"`)
	<-ended
	letters := 0
	replay := func(signature string) {
		letters++
		s.PutLetters(consoletest.Letter(letters, func(l *worker.DeadLetter) { l.Signature = signature }))
		s.Post("/dead/replay", url.Values{"rate": {"10"}, "signature": {signature}}, http.StatusSeeOther)
	}
	replay("first")
	check.That(t, browser.Get(p, chromedp.Evaluate[bool](`!`+streamsOf+`.includes("first")`)), "a hidden page is read anew")
	show("false")
	until(p, streamsOf+`.includes("first") && `+linkSays+`.startsWith("live")`)

	browser.Get(p, chromedp.Evaluate[bool](`window.said = []; new MutationObserver(() => window.said.push(`+linkSays+`)).observe(
		document.getElementById("link"), {childList: true}); true`))
	for _, name := range []string{"second", "third", "fourth"} {
		wire.CloseClientConnections()
		replay(name)
		until(p, streamsOf+`.includes("`+name+`") && `+linkSays+`.startsWith("live")`)
	}
	check.That(t, browser.Get(p, chromedp.Evaluate[bool](`window.said.some((s) => s.startsWith("connection lost"))`)), "it never says that it was cut off")

	focus := func(do string) {
		browser.Get(p, chromedp.Evaluate[bool](`document.querySelector("#live a, #live button").`+do+`(); true`))
	}
	focus("focus")
	replay("fifth")
	until(p, linkSays+`.startsWith("paused")`)
	check.That(t, browser.Get(p, chromedp.Evaluate[bool](`!`+streamsOf+`.includes("fifth")`)), "a page that is used is read anew")
	focus("blur")
	until(p, streamsOf+`.includes("fifth") && `+linkSays+`.startsWith("live")`)
}

// A keyboard is enough to sign in, to see the keys, and to replay dead letters.
func TestConsoleByKeyboard(t *testing.T) {
	b := browser.Start(t)
	guard, secrets := consoletest.Keys(t)
	s := consoletest.Start(t, func(c *console.Config) { c.Access = guard })
	s.PutLetters(consoletest.Letter(1), consoletest.Letter(2))
	for _, view := range []browser.View{{Width: 360, NoScript: true}, {Width: 1440}} {
		p := b.Open(t, s.URL+"/dead", view)
		tabTo(p, "input[type=password]")
		p.Press(strings.Split(secrets["operator"], "")...)
		p.Submit(kb.Enter)
		check.Same(t, "the page behind the form", browser.Get(p, chromedp.Location()), s.URL+"/dead")
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
		until(p, streamsOf+`.includes("2 of 2 letters")`)
	}
}

// A text from right to left stands beside its name all the same.
func TestConsoleAlignsHebrew(t *testing.T) {
	b := browser.Start(t)
	s := consoletest.Start(t)
	s.PutLetters(consoletest.Letter(1, func(l *worker.DeadLetter) { l.Signature = "משתמש # לא נמצא" }))
	p := b.Open(t, s.URL+"/dead/letter?seq=1", browser.View{Width: 1440})
	until(p, `[...document.querySelectorAll("dd[dir=auto]")].every((d) => getComputedStyle(d).textAlign === "left")`)
	p.Looks("console-hebrew")
}

// Everybody can use the page of the audit.
func TestAuditForEverybody(t *testing.T) {
	b := browser.Start(t)
	s := consoletest.Start(t)
	looks(t, b, s, "audit-none", "/audit")
	s.PutLetters(consoletest.Letter(1))
	s.Post("/dead/letter/replay", url.Values{"seq": {"1"}}, http.StatusSeeOther)
	check.Says(t, s.Get("/audit", http.StatusOK), "replay", "dead letters letters=")
	looks(t, b, s, "audit", "/audit")
}
