package pages_test

import (
	"bytes"
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
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// mostClicks bounds a tour.
const mostClicks = 700

// plain is the view of a reader without scripts, and scripted that of one with them.
var plain, scripted = consoletest.View{NoScript: true, Width: 1440}, consoletest.View{Width: 1440}

// control is a link or a button, or a button with a choice of its form.
type control struct {
	Field, Value     string // of the choice
	Label, Method    string
	To               string // the address of a link or a form
	Hidden, External bool
}

// sign is the same for links and buttons with the same effect on other things.
func (c control) sign() string {
	return kindOf(c.To) + " " + digits.ReplaceAllString(c.Label, "#") + " " + c.Field + c.Value
}

var (
	digits = regexp.MustCompile(`[0-9]+`)
	words  = regexp.MustCompile(`[\pL\d_#]+`)
	ids    = regexp.MustCompile(`[A-Za-z0-9]{20,}`) // of workers and jobs
	// refused are the refusals that are meant: an event that others read stays, nobody answers where nothing runs, and a job may
	// have left its stream, or its state.
	refused = regexp.MustCompile("is not a work queue|No notifier answers|It has ended already|There is no such job|Nothing was done: look again")
	routes  = regexp.MustCompile(`c\.page(?:Within)?\("GET ([^"]+)"`)
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

// tour is a person who clicks on every link and presses every button of a site, as pages show them: no address is written here.
type tour struct {
	*testing.T

	site    string // its name
	page    *consoletest.Page
	fill    map[string]string // by the name of a field
	clicks  []string          // as they came
	pages   map[string]string // an address of each kind that was reached
	todo    []visit
	deeds   map[string][]visit // buttons that change something, by their signs
	known   map[string]bool    // signs of links and buttons
	forms   []visit            // filters
	pressed map[string]bool
}

// visit is a control of a page.
type visit struct {
	control

	from string
}

// Scripts of the tour. The first lists the controls of a page, and the second uses one of them.
const (
	listControls = `(() => {
		document.querySelectorAll("details").forEach(d => { d.open = true; });
		return [...document.querySelectorAll("a[href], button")].filter(e => !e.closest("dialog") && !(window.htmx && e.closest("[hx-trigger=load]")) && !(e.getAttribute("href") || "").startsWith("#")).flatMap(e => {
			const box = e.getBoundingClientRect(), form = e.form;
			const to = e.href || new URL(e.getAttribute("formaction") || form.getAttribute("action") || "", location).href;
			const c = {Label: e.innerText.trim(), Method: form ? form.method.toUpperCase() : "link", To: to, Field: "", Value: "",
				External: new URL(to).host !== location.host, Hidden: !(box.width > 0 && box.height > 0)};
			const choices = form && form.method === "get" ? [...form.querySelectorAll("select option")] : [];
			return [c, ...choices.map(o => ({...c, Field: o.parentElement.name, Value: o.value}))];
		});
	})()`
	useControl = `((want, fill) => {
		document.querySelectorAll("details").forEach(d => { d.open = true; });
		const e = [...document.querySelectorAll("a[href], button")].find(e => e.innerText.trim() === want.Label && !e.closest("dialog") && want.To ===
			(e.href || new URL(e.getAttribute("formaction") || e.form.getAttribute("action") || "", location).href));
		let boxes = 2;
		for (const f of e.form ? e.form.elements : []) {
			if (f.type === "checkbox" && boxes-- > 0) { f.checked = true; }
			else if (f.name === "typed") { f.value = f.closest("label").innerText.match(/Type (.+?)( to .*)?$/m)[1]; }
			else if (f.name === want.Field) { f.value = want.Value; }
			else if (!["hidden", "checkbox"].includes(f.type) && (!f.value || f.name === "rate")) {
				f.value = fill[new URL(want.To).pathname + "?" + f.name] || fill[f.type === "password" ? f.type : f.name] || f.value;
			}
		}
		e.click();
		return true;
	})(%s, %s)`
	answerQuestion = `(() => {
		const f = document.querySelector("input[name=typed][autofocus]");
		f.value = f.closest("label").innerText.match(/Type (\S+)/)[1];
		f.form.querySelector("button").click();
		return true;
	})()`
	// A page shows a filter in a field or in its text.
	unshownFilter = `[...new URLSearchParams(location.search)].filter(([name, value]) => value && !["cursor", "from", "id", "note", "run", "seq", "to", "until", "users"]
		.includes(name) && ![...document.getElementsByName(name)].some(f => f.value === value) && ![...document.querySelectorAll("[title]")].some(e => e.title === value) && ![value, value.replaceAll("'", "'\\''")]
		.some(text => document.querySelector("main").innerText.includes(text)))
		.map(String).join(" ")`
)

// escapedTwice reports whether a link has a filter of its page in another form, which selects something else.
func escapedTwice(page, link string) bool {
	from, err := url.Parse(page)
	to, invalid := url.Parse(link)
	if err != nil || invalid != nil {
		return false
	}
	for name, values := range to.Query() {
		if again, err := url.QueryUnescape(values[0]); err == nil && again != values[0] && again == from.Query().Get(name) {
			return true
		}
	}
	return false
}

// arrive notes the page that is shown, and its controls, unless its kind was reached before.
func (v *tour) arrive(how string, status int64) {
	v.Helper()
	at := consoletest.Get(v.page, chromedp.Location())
	said, text := v.page.Complaints(), consoletest.Get(v.page, chromedp.Text(chromedp.CSS("main")))
	if status >= http.StatusBadRequest && refused.MatchString(text) {
		return
	}
	if status != http.StatusOK || len(said) > 0 {
		v.Errorf("%s leads to %s with status %d, and the browser complains of %q: %.600s", how, at, status, said, text)
		return
	}
	check.Equal(v.T, consoletest.Get(v.page, chromedp.Evaluate[string](unshownFilter)), "", "filter that "+at+" does not show")
	if v.pages[kindOf(at)] != "" {
		return
	}
	v.pages[kindOf(at)] = at
	for _, c := range consoletest.Get(v.page, chromedp.Evaluate[[]control](listControls)) {
		check.That(v.T, !c.Hidden, "%s: %q cannot be seen", at, c.Label)
		check.That(v.T, !escapedTwice(at, c.To), "%s: %q has a part of the page's filter escaped twice: %s", at, c.Label, c.To)
		if v.known[c.sign()] && c.Method != http.MethodPost || c.External || c.Method == http.MethodGet && len(v.fill) < 2 {
			continue
		}
		v.known[c.sign()] = true
		if c.Method == http.MethodPost {
			v.deeds[c.sign()] = append(v.deeds[c.sign()], visit{c, at})
		} else {
			v.todo = append(v.todo, visit{c, at})
			if c.Method == http.MethodGet && c.Field == "" {
				v.forms = append(v.forms, visit{c, at})
			}
		}
	}
	look := regexp.MustCompile(`=[^&]*|/jobs/(ENRICH_JOBS|EVENTS|IMPORT_JOBS|NOTIFICATIONS)`).ReplaceAllString(kindOf(at), "")
	name := strings.Join(append([]string{v.site}, words.FindAllString(look, -1)...), "-")
	if consoletest.Get(v.page, chromedp.Evaluate[bool](`document.querySelector("tbody tr, main dl, main li") === null`)) {
		name += "-none"
	}
	if !v.known[name] {
		v.known[name] = true
		v.page.Visit(at, scripted)
		v.page.Everybody(name)
		v.page.Visit(at, plain)
	}
}

// use uses a control of a page. It reports false if the page does not have it any more.
func (v *tour) use(at visit) bool {
	v.Helper()
	check.Require(v.T, len(v.clicks) < mostClicks, "the tour has no end: %q", v.clicks)
	if consoletest.Get(v.page, chromedp.Location()) != at.from {
		v.page.Visit(at.from, plain)
	}
	now := consoletest.Get(v.page, chromedp.Evaluate[[]control](listControls))
	i := slices.IndexFunc(now, func(c control) bool { return c.sign() == at.sign() && c.Method == at.Method })
	if i < 0 {
		v.page.Complaints() // the thing is gone, and so may be its page
		return false
	}
	of := now[i]
	want := check.Must(json.Marshal(of))(v.T) //nolint:musttag // for the script
	began := time.Now()
	status := v.page.Follow(fmt.Sprintf(useControl, want, check.Must(json.Marshal(v.fill))(v.T)))
	if consoletest.Get(v.page, chromedp.Evaluate[bool](`document.querySelector("input[name=typed][autofocus]") !== null`)) {
		status = v.page.Follow(answerQuestion)
	}
	v.clicks = append(v.clicks, strings.TrimSpace(fmt.Sprintf("%s %s %s%s", at.Method, at.Label, at.Field, at.Value)))
	if took := time.Since(began); took > 5*time.Second {
		v.Logf("%s: %q takes %s", at.from, at.Label, took)
	}
	v.arrive(fmt.Sprintf("%s of %s", v.clicks[len(v.clicks)-1], at.from), status)
	return true
}

// follow clicks on links and filters until there are no more.
func (v *tour) follow() {
	v.Helper()
	for len(v.todo) > 0 {
		at := v.todo[0]
		v.todo = v.todo[1:]
		check.That(v.T, v.use(at), "%s does not have %q any more", at.from, at.Label)
	}
}

// search fills the filters with other texts.
func (v *tour) search(fill map[string]string) {
	v.Helper()
	before := v.fill
	v.fill, v.todo = fill, slices.Clone(v.forms)
	v.follow()
	v.fill = before
}

// act presses each button that changes something, or only those whose sign has a text, and first what can be undone.
func (v *tour) act(only string) {
	v.Helper()
	for {
		order := slices.SortedFunc(maps.Keys(v.deeds), func(a, b string) int { return strings.Compare(rank(a), rank(b)) })
		i := slices.IndexFunc(order, func(sign string) bool { return !v.pressed[sign] && strings.Contains(sign, only) })
		if i < 0 {
			return
		}
		v.pressed[order[i]] = true
		check.That(v.T, slices.ContainsFunc(v.deeds[order[i]], v.use), "no page has %s any more", order[i])
		v.follow()
	}
}

// rank sorts the signs of buttons.
func rank(sign string) string {
	for i, word := range []string{
		"pause", "drain", "run", "retry", "resume", "one/replay", "dead/replay", "stop", "selected/", "cancel", "remove", "steal", "dead/one/",
		"discard", "sign-out",
	} {
		if strings.Contains(sign, word) {
			if i = 100 + 2*i; strings.Contains(sign, "all that match") { // some are left for the others
				i++
			}
			return strconv.Itoa(i) + sign
		}
	}
	return sign
}

// report prints the tour, and fails if it did not come to a page of the console.
func (v *tour) report() {
	v.Helper()
	count := map[string]int{}
	for _, click := range v.clicks {
		method, _, _ := strings.Cut(click, " ")
		count[method]++
	}
	v.Logf("%d pages; %d links, %d filters and %d buttons: %q", len(v.pages), count["link"], count[http.MethodGet], count[http.MethodPost], v.clicks)
	const folder = "../../internal/console/"
	for _, file := range check.Must(os.ReadDir(folder))(v.T) {
		text, _ := os.ReadFile(folder + file.Name()) // a folder has none
		for _, m := range routes.FindAllStringSubmatch(string(text), -1) {
			pattern := regexp.MustCompile("^" + regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(m[1], "[^/]+") + "$")
			found := slices.ContainsFunc(slices.Collect(maps.Values(v.pages)), func(at string) bool {
				return pattern.MatchString(check.Must(url.Parse(at))(v.T).EscapedPath())
			})
			check.That(v.T, found || v.site != "console", "no link leads to %s", m[1])
		}
	}
}

// begin opens the first page of a site. A person with a key has to sign in.
func begin(t *testing.T, b *consoletest.Browser, name, at string, fill map[string]string) *tour {
	t.Helper()
	v := &tour{
		T: t, site: name, fill: fill, pages: map[string]string{}, deeds: map[string][]visit{},
		known: map[string]bool{}, pressed: map[string]bool{}, page: b.Open(t, at, plain),
	}
	v.arrive("the first page", http.StatusOK)
	v.follow()
	return v
}

// finds are what a doctor finds.
func finds(context.Context) ([]console.Finding, error) {
	return []console.Finding{
		{
			Severity: console.Error, Of: "stream EVENTS", ID: "stream.max_age", Problem: "max_age is 1h, want 720h",
			Cure: "expediter apply " + strings.Repeat("x", 80),
		},
		{Severity: console.Warning, Of: "server n1", ID: "server.rtt", Problem: "a round trip takes 300ms", Cure: "# move closer"},
		{Severity: console.Skipped, Problem: "servers: the user may not ask them"},
	}, nil
}

// Every page opens, and every link, filter and button of it does what it shows without a script: where there is everything, where there
// are several accounts, and where there is nothing. With scripts, each page is for everybody.
func TestEveryLinkAndButton(t *testing.T) {
	b := consoletest.Browse(t)
	guard, secrets := consoletest.Keys(t)
	t.Run("everything", func(t *testing.T) {
		s := startJobs(t, func(c *console.Config) { c.Access, c.Doctor = guard, finds })
		s.trouble(t)
		check.Until(t, time.Minute, "the overview shows problems", func() bool {
			return strings.Contains(s.Get("/", http.StatusOK, "Authorization", "Bearer "+secrets["viewer"]), `aria-label="Problems"`)
		})
		v := begin(t, b, "console", s.URL, map[string]string{
			"/dead?subject": "jobs.import.>", "/imports?id": "job-1", "/places?id": consoletest.PlaceID, "event": "evt 1",
			"password": secrets["operator"], "rate": "0.1", "subject": ">",
		})
		v.act("sign-in")
		v.search(map[string]string{
			"/dead?signature": "none", "/imports?id": "job-2", "/places?id": "none", "event": "evt-2", "subject": oddTask,
		})
		v.act("")
		v.report()
	})
	t.Run("accounts", func(t *testing.T) {
		log := &bytes.Buffer{}
		s, _ := consoletest.Deployed(t, "console", func(c *console.Config) {
			c.Access, c.Doctor, c.Logger = guard, finds, slog.New(slog.NewTextHandler(log, nil))
		})
		s.Fill()
		v := begin(t, b, "accounts", s.URL, map[string]string{"password": secrets["viewer"]})
		v.act("sign-in")
		check.Equal(t, len(v.deeds), 2, "buttons of a viewer: to sign in and out")
		v.act("")
		v.report()
		check.That(t, !strings.Contains(log.String(), "denies"), "NATS denies the console something: %s", log)
	})
	t.Run("empty", func(t *testing.T) {
		begin(t, b, "empty", consoletest.Start(t).URL, nil).report() // no service answers its filters
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
