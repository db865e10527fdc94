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
	Hidden    bool
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

const (
	// listControls lists the controls of a page. A filter comes once for each of its choices, and once for each of the texts.
	listControls = `(fills => {
		document.querySelectorAll("details").forEach(d => { d.open = true; });
		const control = (e, to, choice) => {
			const box = e.getBoundingClientRect();
			return {Label: e.innerText.trim(), To: to, Choice: choice, Hidden: !(box.width > 0 && box.height > 0)};
		};
		const all = [...document.querySelectorAll("a[href], button")].filter(e => !e.closest("dialog") && !(e.getAttribute("href") || "").startsWith("#"))
			.map(e => control(e, e.href || "", ""));
		for (const f of document.querySelectorAll("form[method=get]")) {
			const path = f.action.split("?")[0], submit = f.querySelector("button");
			const send = choice => {
				all.push(control(submit, path + "?" + new URLSearchParams(new FormData(f)), path + " " + choice));
				f.reset();
			};
			fills.forEach((fill, i) => {
				[...f.elements].forEach(e => { e.value = fill[new URL(path).pathname + "?" + e.name] || fill[e.name] || e.value; });
				send(i);
			});
			for (const o of fills.length ? f.querySelectorAll("select option") : []) {
				o.selected = true;
				send(o.parentElement.name + "=" + o.value);
			}
		}
		return all;
	})(%s)`
	// A page shows a filter in a field or in its text.
	unshownFilter = `[...new URLSearchParams(location.search)].filter(([name, value]) => value && !["cursor", "from", "id", "note", "run", "seq", "to", "until", "users"]
		.includes(name) && ![...document.getElementsByName(name)].some(f => f.value === value) && ![...document.querySelectorAll("[title]")].some(e => e.title === value) && ![value, value.replaceAll("'", "'\\''")]
		.some(text => document.querySelector("main").innerText.includes(text)))
		.map(String).join(" ")`
)

// alignedToNames: also a text from right to left is aligned to its name.
const alignedToNames = `[...document.querySelectorAll("dd[dir=auto]")].every(d => getComputedStyle(d).textAlign === "left")`

// visit opens an address, notes the page unless its kind was reached before, and returns its controls.
func (v *tour) visit(at string) []control {
	v.Helper()
	status := v.page.Follow(fmt.Sprintf(`location.href = %q; true`, at))
	said, text := v.page.Complaints(), consoletest.Get(v.page, chromedp.Text(chromedp.CSS("main")))
	if status != http.StatusOK || len(said) > 0 {
		v.Errorf("%s has the status %d, and the browser complains of %q: %.600s", at, status, said, text)
		return nil
	}
	check.Equal(v.T, consoletest.Get(v.page, chromedp.Evaluate[string](unshownFilter)), "", "filter that "+at+" does not show")
	if v.pages[kindOf(at)] != "" {
		return nil
	}
	v.pages[kindOf(at)] = at
	all := consoletest.Get(v.page, chromedp.Evaluate[[]control](fmt.Sprintf(listControls, check.Must(json.Marshal(v.fills))(v.T))))
	look := regexp.MustCompile(`\?.*|/jobs/(ENRICH_JOBS|EVENTS|IMPORT_JOBS|NOTIFICATIONS)`).ReplaceAllString(kindOf(at), "")
	name := strings.Join(append([]string{v.site}, words.FindAllString(look, -1)...), "-")
	if consoletest.Get(v.page, chromedp.Evaluate[bool](`document.querySelector("tbody tr, main dl, main li") === null`)) {
		name += "-none"
	}
	if !v.looks[name] {
		v.looks[name] = true
		v.page.Visit(at, scripted)
		v.page.Everybody(name)
		check.Equal(v.T, consoletest.Get(v.page, chromedp.Evaluate[bool](alignedToNames)), true, at+": texts are aligned to their names")
		v.page.Visit(at, plain)
	}
	return all
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
	buttons = map[string]bool{}
	known, visits := map[string]bool{}, 0
	for todo := []string{at}; len(todo) > 0; visits++ {
		from := todo[0]
		todo = todo[1:]
		for _, c := range v.visit(from) {
			check.That(t, !c.Hidden, "%s: %q cannot be seen", from, c.Label)
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
	t.Logf("%d visits of %d pages: %q", visits, len(v.pages), slices.Sorted(maps.Keys(v.pages)))
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

// Every page opens, and every link and filter of it leads where it shows, without a script: where there is everything, where there are
// several accounts, and where there is nothing. With scripts, each page is for everybody.
func TestEveryLinkAndFilter(t *testing.T) {
	b := consoletest.Browse(t)
	t.Run("everything", func(t *testing.T) {
		s := startJobs(t, func(c *console.Config) { c.Doctor = finds })
		s.trouble(t)
		check.Until(t, time.Minute, "the overview shows problems", func() bool {
			return strings.Contains(s.Get("/", http.StatusOK), `aria-label="Problems"`)
		})
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
		guard, secrets := consoletest.Keys(t)
		log := &bytes.Buffer{}
		s, _ := consoletest.Deployed(t, "console", func(c *console.Config) {
			c.Access, c.Doctor, c.Logger = guard, finds, slog.New(slog.NewTextHandler(log, nil))
		})
		s.Fill()
		_, buttons := walk(t, b, "accounts", s.URL, secrets["viewer"])
		check.Equal(t, buttons["Sign out"], true, "a viewer may sign out")
		for label := range buttons {
			check.That(t, !regexp.MustCompile("Cancel|Discard|Drain|Pause|Remove|Replay|Run|Take").MatchString(label), "a viewer is offered %q", label)
		}
		check.That(t, !strings.Contains(log.String(), "denies"), "NATS denies the console something: %s", log)
	})
	t.Run("empty", func(t *testing.T) {
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
