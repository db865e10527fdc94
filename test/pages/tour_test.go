package pages_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// plain is the view of a reader without scripts, and scripted that of one with them.
var plain, scripted = consoletest.View{NoScript: true, Width: 1440}, consoletest.View{Width: 1440}

var (
	digits = regexp.MustCompile(`[0-9]+`)
	values = regexp.MustCompile(`=[^&]*`)
	words  = regexp.MustCompile(`[\pL\d_#]+`)
	ids    = regexp.MustCompile(`[A-Za-z0-9]{20,}`) // of workers and jobs
	routes = regexp.MustCompile(`c\.page(?:Within)?\("GET ([^"]+)"`)
)

// kindOf returns an address without its site and with # for numbers and ids, so that the pages of similar things are of one kind.
func kindOf(to string) string {
	u, err := url.Parse(to)
	if err != nil {
		return to
	}
	q := u.Query()
	for name := range q {
		if name == "until" || name == "note" || name == "cursor" || q.Get(name) == "" || strings.Contains(u.Path, "/jobs/") && (name == "id" || name == "to") {
			q.Del(name)
		}
	}
	if len(q) > 0 {
		u.Path += "?" + q.Encode()
	}
	return digits.ReplaceAllString(ids.ReplaceAllString(u.Path, "#"), "#")
}

// control is a link, a filter with a choice of its form, or a button, which has no address.
type control struct {
	Label, To string
	Choice    string // the form's path and the choice, "" for a link
}

// tour is a person who follows every link and filter of a site, as pages show them: no address is written here.
type tour struct {
	*testing.T

	site  string // its name
	page  *consoletest.Page
	fills []map[string]string // texts for the filters, by the names of their fields; none for one who uses no filter
	pages map[string]string   // an address of each kind that was reached
	looks map[string]bool     // names of pages that were looked at
}

// fetchPage reads a page, as a browser without scripts would, and lists its controls. A filter comes once for each of its choices, and once
// for each of the texts. Unshown are the filters that are neither in a field nor in the text of the page.
const fetchPage = `(async (at, fills) => {
	const answer = await fetch(at, {headers: {Accept: "text/html"}}), page = new DOMParser().parseFromString(await answer.text(), "text/html");
	const main = page.querySelector("main"), text = main ? main.textContent : page.documentElement.textContent;
	const to = path => new URL(path, answer.url), controls = [];
	const control = (e, to, choice) => controls.push({Label: e.textContent.trim().replace(/\s+/g, " "), To: to, Choice: choice});
	for (const e of page.querySelectorAll("a[href], button")) {
		const href = e.getAttribute("href");
		if (!e.closest("dialog") && !(href || "").startsWith("#")) control(e, href === null ? "" : to(href).href, "");
	}
	for (const form of page.querySelectorAll("form[method=get]")) {
		const path = to(form.getAttribute("action") || ""), choices = form.querySelectorAll("select option");
		path.search = "";
		const send = (choice, fill) => {
			const filled = form.cloneNode(true); // outside a window, reset does nothing
			fill([...filled.elements], filled.querySelectorAll("select option"));
			control(form.querySelector("button"), path + "?" + new URLSearchParams(new FormData(filled)), path + " " + choice);
		};
		fills.forEach((fill, i) => send(i, fields => fields.forEach(e => {
			e.value = fill[path.pathname + "?" + e.name] || fill[e.name] || e.value;
		})));
		choices.forEach((o, i) => fills.length && send(o.parentElement.name + "=" + o.value, (_, options) => { options[i].selected = true; }));
	}
	const unshown = [...to("").searchParams].filter(([name, value]) => value && !["cursor", "from", "id", "note", "run", "seq", "to", "until", "users"]
		.includes(name) && ![...page.getElementsByName(name)].some(f => f.value === value) && ![...page.querySelectorAll("[title]")]
		.some(e => e.title === value) && ![value, value.replaceAll("'", "'\\''")].some(shown => text.includes(shown))).map(String).join(" ");
	return {
		Status: answer.status, Text: text, Controls: controls, Unshown: unshown, None: page.querySelector("tbody tr, main dl, main li") === null,
	};
})(%q, %s)`

const (
	// hiddenControls are the texts of links and buttons that cannot be seen, wherever somebody scrolls to.
	hiddenControls = `document.querySelectorAll("details").forEach(d => { d.open = true; });
		[...document.querySelectorAll("a[href], button")].filter(e => !e.closest("dialog") && !(e.getAttribute("href") || "").startsWith("#"))
			.filter(e => { const r = e.getBoundingClientRect(); return !e.checkVisibility({opacityProperty: true, visibilityProperty: true}) ||
				!(r.width > 0 && r.height > 0 && r.right + scrollX > 0 && r.bottom + scrollY > 0); }).map(e => e.innerText)`

	// alignedToNames: also a text from right to left is aligned to its name.
	alignedToNames = `[...document.querySelectorAll("dd[dir=auto]")].every(d => getComputedStyle(d).textAlign === "left")`
)

// fetched is a page that was read.
type fetched struct {
	Status        int
	Text, Unshown string
	Controls      []control
	None          bool // nothing is listed
}

// visit reads an address, notes the page unless its kind was reached before, and returns its controls.
func (v *tour) visit(at string) []control {
	v.Helper()
	got := consoletest.Get(v.page, chromedp.Evaluate[fetched](fmt.Sprintf(fetchPage, at, check.Must(json.Marshal(v.fills))(v.T)),
		chromedp.EvalAwaitPromise))
	if got.Status != http.StatusOK {
		v.Errorf("%s has the status %d: %.600s", at, got.Status, got.Text)
		return nil
	}
	check.Equal(v.T, got.Unshown, "", "filter that "+at+" does not show")
	if v.pages[kindOf(at)] != "" {
		return nil
	}
	v.pages[kindOf(at)] = at
	look := regexp.MustCompile(`\?.*|/jobs/(ENRICH_JOBS|EVENTS|IMPORT_JOBS|NOTIFICATIONS)`).ReplaceAllString(kindOf(at), "")
	name := strings.Join(append([]string{v.site}, words.FindAllString(look, -1)...), "-")
	if got.None {
		name += "-none"
	}
	if !v.looks[name] {
		v.looks[name] = true
		v.look(at, name)
	}
	return got.Controls
}

// look looks at a page: without scripts, and as everybody.
func (v *tour) look(at, name string) {
	v.Helper()
	v.page.Visit(at, plain)
	check.Equal(v.T, consoletest.Get(v.page, chromedp.Evaluate[[]string](hiddenControls)), []string{}, at+": what cannot be seen")
	v.page.Visit(at, scripted)
	v.page.Everybody(name)
	check.Equal(v.T, consoletest.Get(v.page, chromedp.Evaluate[bool](alignedToNames)), true, at+": texts are aligned to their names")
}

// walk follows links and filters from an address on until there are no more, and returns the labels of all buttons. A person with a key
// signs in first.
func walk(t *testing.T, b *consoletest.Browser, name, at, key string, fills ...map[string]string) (v *tour, buttons map[string]bool) {
	t.Helper()
	v = &tour{
		T: t, site: name, fills: append([]map[string]string{}, fills...), pages: map[string]string{}, looks: map[string]bool{},
		page: b.Open(t, at, plain),
	}
	if key != "" {
		tabTo(v.page, "input[type=password]")
		v.page.Press(strings.Split(key, "")...)
		v.page.Submit(kb.Enter)
	}
	v.page.Visit(at, scripted)
	buttons = map[string]bool{}
	known, visits := map[string]bool{}, 0
	for todo := []string{at}; len(todo) > 0; visits++ {
		from := todo[0]
		todo = todo[1:]
		for _, c := range v.visit(from) {
			if c.To == "" {
				buttons[c.Label] = true
				continue
			}
			sign := cmp.Or(c.Choice, values.ReplaceAllString(kindOf(c.To), "")+" "+digits.ReplaceAllString(c.Label, "#")) // of other things, too
			if strings.HasPrefix(c.To, at) && !known[sign] {
				known[sign] = true
				todo = append(todo, c.To)
			}
		}
	}
	t.Logf("%d visits of %d pages, %d looks: %q", visits, len(v.pages), len(v.looks), slices.Sorted(maps.Keys(v.looks)))
	return v, buttons
}

// finds are what a doctor finds.
func finds(context.Context) ([]console.Finding, error) {
	return []console.Finding{
		{Severity: console.Error, Of: "stream EVENTS", ID: "stream.max_age", Problem: "max_age is 1h", Cure: strings.Repeat("x", 80)},
		{Severity: console.Warning, Of: "server n1", ID: "server.rtt", Problem: "a round trip takes 300ms", Cure: "# move closer"},
		{Severity: console.Skipped, Problem: "servers: the user may not ask them"},
	}, nil
}

// counted waits until the overview has counted the dead letters, and has a text.
func counted(s *consoletest.Site, text string, header ...string) {
	s.Helper()
	check.Until(s.T, time.Minute, "the overview shows problems and dead letters", func() bool {
		page := s.Get("/", http.StatusOK, header...)
		return strings.Contains(page, "since=1h") && strings.Contains(page, text)
	})
}

// Every page opens, and every link and filter of it leads where it shows, without a script: where there is everything, where there are
// several accounts, and where there is nothing. With scripts, each page is for everybody.
func TestEveryLinkAndFilter(t *testing.T) {
	t.Parallel()
	b := consoletest.Browse(t)
	t.Run("everything", func(t *testing.T) {
		t.Parallel()
		s := startJobs(t, func(c *console.Config) { c.Doctor = finds })
		s.trouble(t)
		counted(s.Site, `aria-label="Problems"`)
		v, _ := walk(t, b, "console", s.URL, "",
			map[string]string{"/dead?subject": "jobs.import.>", "/imports?id": "job-1", "/places?id": consoletest.PlaceID, "event": "evt 1", "subject": ">"},
			map[string]string{"/dead?signature": "none", "/imports?id": "job-2", "/places?id": "none", "event": "evt-2", "subject": oddTask})
		const folder = "../../internal/console/"
		for _, file := range check.Must(os.ReadDir(folder))(t) {
			text, _ := os.ReadFile(folder + file.Name()) // a folder has none
			for _, m := range routes.FindAllStringSubmatch(string(text), -1) {
				pattern := regexp.MustCompile("^" + regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(m[1], "[^/]+") + "$")
				found := slices.ContainsFunc(slices.Collect(maps.Values(v.pages)), func(at string) bool {
					return pattern.MatchString(check.Must(url.Parse(at))(t).EscapedPath())
				})
				check.That(t, found, "no link leads to %s", m[1])
			}
		}
	})
	t.Run("accounts", func(t *testing.T) {
		t.Parallel()
		guard, secrets := consoletest.Keys(t)
		log := &bytes.Buffer{}
		s, _ := consoletest.Deployed(t, "console", func(c *console.Config) {
			c.Access, c.Doctor, c.Logger = guard, finds, slog.New(slog.NewTextHandler(log, nil))
		})
		s.Fill()
		counted(s, "", "Authorization", "Bearer "+secrets["viewer"])
		_, buttons := walk(t, b, "accounts", s.URL, secrets["viewer"])
		check.Equal(t, buttons["Sign out"], true, "a viewer may sign out")
		for label := range buttons {
			check.That(t, !regexp.MustCompile("Cancel|Discard|Drain|Pause|Remove|Replay|Run|Take").MatchString(label), "a viewer is offered %q", label)
		}
		check.That(t, !strings.Contains(log.String(), "denies"), "NATS denies the console something: %s", log)
	})
	t.Run("empty", func(t *testing.T) {
		t.Parallel()
		walk(t, b, "empty", consoletest.Start(t).URL, "") // no service answers its filters
	})
}

// oddTask is a subject with what addresses escape.
const oddTask = `tasks.odd.a&b?c#d%3E+"q"'s'/e=f;g.חדשות`

// trouble adds what people look for at night.
func (s *jobs) trouble(t *testing.T) {
	t.Helper()
	s.Business()
	s.hold(t)
	for n := range 12 {
		s.PutDeadLetters(consoletest.DeadLetter(n, func(l *worker.DeadLetter) {
			l.Sequence += 1000 // of no other job
			switch n % 4 {
			case 1:
				l.Signature, l.Payload, l.Stack = "משתמש # לא נמצא", []byte(`{"name":"דנה"}`), "goroutine 1 [running]:\n\tmain.go:1"
			case 2:
				l.Signature, l.Error = oddTask, strings.Repeat(oddTask+" ", 8)
			}
		}))
	}
	s.Post("/dead/replay", url.Values{"signature": {"extract: status #"}, "rate": {"0.001"}, "typed": {"6"}}, http.StatusSeeOther)
	for range 3 {
		check.OK(t, check.Err(s.Insert(t.Context(), worker.NewJob{ID: oddTask, Subject: oddTask, Args: oddTask})))
	}
	check.OK(t, check.Err(s.JetStream.CreateStream(t.Context(), worker.StreamConfig("PAY", "pay.>"))))
	settled := make(chan bool, 10)
	w := check.Must(worker.New(s.JetStream, worker.Config{
		AutoCreate: true, Consumer: "bank", ID: "vm-7", Logger: slog.New(slog.DiscardHandler), Stream: "PAY", Version: "v2",
		Hooks: worker.Hooks{Settled: func(worker.Settlement) { settled <- true }},
	}))(t)
	fails := func(context.Context, *worker.Job[string]) error {
		return errors.New("charge card: POST https://bank.example/v1/charges?key=secret: 503 Service Unavailable: " + strings.Repeat("try again later ", 12))
	}
	for _, pattern := range []string{"pay.card.>", "pay.refund.>"} {
		check.OK(t, worker.Handle(w, pattern, worker.Policy{Backoff: func(int) time.Duration { return time.Hour }, MaxAttempts: 5}, fails))
	}
	t.Cleanup(natstest.Background(t, w.Run))
	client := check.Must(worker.NewClient(s.JetStream, worker.ClientConfig{Stream: "PAY"}))(t)
	for _, subject := range []string{"pay.card.1", "pay.card.2", "pay.card.3", "pay.card.4"} { // enough for each kind of cancellation
		check.OK(t, check.Err(client.Insert(t.Context(), worker.NewJob{Args: "x", Subject: subject})))
		<-settled
	}
	check.OK(t, client.Pause(t.Context(), worker.Pause{By: "ada", Pattern: "pay.refund.>"}))
	check.OK(t, check.Err(client.Insert(t.Context(), worker.NewJob{Args: "x", Subject: "pay.refund.1"})))
}
