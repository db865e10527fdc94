// Package pages_test looks at the pages of services as people do: in a browser.
package pages_test

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(consoletest.Tests{M: m}) }

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

// Everybody can use the pages: on a telephone and a large screen, by day and by night.
func TestPagesForEverybody(t *testing.T) {
	b := consoletest.Browse(t)
	s := start(t)
	for _, width := range []int64{360, 1440} {
		for _, dark := range []bool{false, true} {
			name := fmt.Sprintf("%d-%t", width, dark)
			t.Run(name, func(t *testing.T) {
				view := consoletest.View{Dark: dark, Width: width}
				p := b.Open(t, s.preferences, view)
				p.Looks("preferences-" + name)
				for what, url := range map[string]string{"saved": s.preferences + "&saved=1", "unsubscribe": s.unsubscribe} {
					p.Visit(url, view)
					p.Looks(what + "-" + name)
				}
				p.Visit(s.preferences, view)
				check.OK(t, s.Directory.OptOut(t.Context(), "CUSTOMER", "ada", name, "sms"))
				p.Do(chromedp.Focus(chromedp.CSS("button")))
				p.Submit(kb.Enter)
				check.Contains(t, consoletest.Get(p, chromedp.Text(chromedp.CSS(".note"))), "nothing was saved")
			})
		}
	}
}

// Nothing but a keyboard is needed, and no script.
func TestPreferencesByKeyboard(t *testing.T) {
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

// cutter writes an answer, and breaks off in the midst of its second piece of news.
type cutter struct {
	http.ResponseWriter

	left   *atomic.Int64 // how many answers still break off
	news   int
	random func(stream uint64) *rand.Rand
}

func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutter) Write(text []byte) (int, error) {
	if bytes.Contains(text, []byte("event: news")) {
		c.news++
	}
	if c.news < 2 || c.left.Load() <= 0 {
		return c.ResponseWriter.Write(text)
	}
	at := c.random(uint64(c.left.Add(-1))).IntN(len(text))
	_, _ = c.ResponseWriter.Write(text[:at])
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

// cut returns the URL of a page whose searches are followed through disconnects, until the test ends.
func cut(t *testing.T, page string, left *atomic.Int64, random func(uint64) *rand.Rand) string {
	t.Helper()
	to := check.Must(url.Parse(page))(t)
	forward := httputil.NewSingleHostReverseProxy(to)
	forward.FlushInterval = -1
	forward.ErrorHandler = func(http.ResponseWriter, *http.Request, error) {} // those that are cut off
	wire := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/live/request" {
			w = &cutter{ResponseWriter: w, left: left, random: random}
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(wire.Close)
	return wire.URL
}

// news is a piece of it as a page has shown it.
type news struct {
	At   int64  `json:"at"` // in milliseconds
	Data string `json:"data"`
}

// Scripts of a test: all news of a search are kept, and a promise has those of one search at its end.
const (
	keepNews = `window.got = []; document.addEventListener("htmx:sseMessage", e => {
		if (e.target.closest("#found")) got.push({at: Date.now(), data: e.detail.data});
	}); 0`
	followSearch = `window.seen = new Promise(done => {
		document.addEventListener("htmx:sseClose", function end(e) {
			if (e.detail.type !== "message") return;
			document.removeEventListener("htmx:sseClose", end);
			done(got.splice(0));
		});
		htmx.ajax("GET", "/?request=%s", {target: "#found", select: "#found", swap: "outerHTML"});
	}); 0`
)

// survive checks that each patch comes to the page of newcomers through disconnects, and none comes twice.
func survive(t *testing.T, b *consoletest.Browser, page, enricher, server string) {
	t.Helper()
	const tabs, disconnects = 6, 100
	random := crash.Random(t)
	_, js := natstest.ConnectURL(t, server)
	entries := check.Must(js.Stream(t.Context(), "KV_"+contracts.BucketEnrich))(t)
	var left atomic.Int64
	left.Store(disconnects)
	var pages []*consoletest.Page
	for i := range tabs {
		pages = append(pages, b.Open(t, cut(t, page, &left, random), consoletest.View{Width: 800}))
		consoletest.Get(pages[i], chromedp.Evaluate[int](keepNews))
	}
	var late []time.Duration
	for round := 0; left.Load() > 0; round++ {
		search := fmt.Sprintf("search-%d", round)
		places := ask(t, enricher, search)
		for _, p := range pages {
			consoletest.Get(p, chromedp.Evaluate[int](fmt.Sprintf(followSearch, search)))
		}
		stored := map[string]time.Time{}
		for i, p := range pages {
			seen := consoletest.Get(p, chromedp.Evaluate[[]news](`seen`, chromedp.EvalAwaitPromise))
			for row, at := range shown(t, fmt.Sprintf("%s, page %d", search, i), places, seen) {
				if _, ok := stored[row]; !ok {
					stored[row] = storedAt(t, entries, places[row])
				}
				if s := stored[row]; s.After(time.UnixMilli(seen[0].At)) { // while the page followed
					late = append(late, at.Sub(s))
				}
			}
		}
	}
	slices.Sort(late)
	check.Require(t, len(late) > 0, "no patch came while a page followed")
	t.Logf("%d disconnects, %d patches: p50 %s, p99 %s, slowest %s after they were stored", disconnects, len(late),
		late[len(late)/2], late[len(late)*99/100], late[len(late)-1])
}

// ask asks for places that nobody has asked for, and returns their ids by those of their rows.
func ask(t *testing.T, enricher, search string) (places map[string]string) {
	t.Helper()
	req, places := contracts.EnrichRequest{RequestID: search}, map[string]string{}
	for i := range 50 {
		id := fmt.Sprintf("%s-%d", search, i)
		req.Results = append(req.Results, contracts.Restaurant{Name: id, PlaceID: id})
		places["place-"+audit.User(id)] = id
	}
	body := check.Must(contracts.Encode(req))(t)
	r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, enricher+"/v1/enrich", bytes.NewReader(body)))(t)
	r.Header.Set("Content-Type", "application/json")
	answer := check.Must((&http.Transport{DisableKeepAlives: true}).RoundTrip(r))(t)
	check.OK(t, answer.Body.Close())
	check.Equal(t, answer.StatusCode, http.StatusOK, "status")
	return places
}

// storedAt returns when the result of a place was stored.
func storedAt(t *testing.T, entries jetstream.Stream, place string) time.Time {
	t.Helper()
	key := check.Must(contracts.EnrichEntryKey(contracts.ProviderWolt, place))(t)
	m := check.Must(entries.GetLastMsgForSubject(t.Context(), "$KV."+contracts.BucketEnrich+"."+key))(t)
	return m.Time
}

var shownRow = regexp.MustCompile(`(?s)<li id="([^"]+)"[^>]*>(.*?)</li>`)

// shown returns when a page has shown each place, which has to be once.
func shown(t *testing.T, what string, places map[string]string, seen []news) map[string]time.Time {
	t.Helper()
	at, times := map[string]time.Time{}, map[string]int{}
	for _, n := range seen {
		for _, row := range shownRow.FindAllStringSubmatch(n.Data, -1) {
			if !strings.Contains(row[2], "PENDING") {
				at[row[1]] = time.UnixMilli(n.At)
				times[row[1]]++
			}
		}
	}
	lost, repeated := 0, 0
	for row := range places {
		switch n := times[row]; {
		case n == 0:
			lost++
		case n > 1:
			repeated++
		}
	}
	check.That(t, lost == 0 && repeated == 0, "%s: %d of %d places are lost, %d repeated", what, lost, len(places), repeated)
	return at
}

// up builds the program, runs `expediter up`, and returns the address of its page.
func up(t *testing.T) (string, *crash.Process) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "expediter")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s", "-o", program, "../../cmd/expediter").CombinedOutput()
	check.Require(t, err == nil, "build: %v\n%s", err, out)
	p := crash.Start(t, exec.Command(program, "up", "--console-port", "0", "--http-port", "0", "--importer-port", "0", "--nats-port", "0",
		"--notifier-port", "0"))
	return p.Await(`Open (http://\S+) to try it`)[1], p
}

// pending reports whether a place of a page is.
const pending = `document.querySelector("#found .warn") !== null || document.querySelector("#found li") === null`

// A newcomer sees a recipe made, a notification arrive and links appear, with nothing but a keyboard.
func TestNewcomerSeesItHappen(t *testing.T) {
	b := consoletest.Browse(t)
	home, running := up(t)
	for _, view := range []consoletest.View{{Width: 360}, {Dark: true, Width: 1440}} {
		b.Open(t, home, view).Looks(fmt.Sprintf("newcomer-%d-%t", view.Width, view.Dark))
	}
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
	t.Run("through disconnects", func(t *testing.T) {
		survive(t, b, home, running.Await(`enrichers +(\S+)`)[1], running.Await(`NATS +(\S+)`)[1])
	})
}

// settle waits until nothing is under way on a page.
func settle(p *consoletest.Page) {
	p.Helper()
	for consoletest.Get(p, chromedp.Evaluate[bool](pending)) {
		retry.Sleep(p.Context(), 100*time.Millisecond)
	}
}
