package pages_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
	"github.com/expediter-io/expediter/services/notifier"
	"github.com/expediter-io/expediter/services/notifier/channel"
	"github.com/expediter-io/expediter/services/notifier/channel/inapp"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// front is an application: its page, and the services behind it. It cuts streams of events in the middle of events and between them.
type front struct {
	*httptest.Server

	cuts    atomic.Int64
	cutting bool
	let     chan struct{} // one place more is found
	random  *rand.Rand
	mu      sync.Mutex // guards random
}

// Name implements [provider.Provider].
func (*front) Name() string { return contracts.ProviderWolt }

// Search implements [provider.Provider].
func (f *front) Search(ctx context.Context, place match.Place) ([]provider.Venue, error) {
	select {
	case <-f.let:
		return []provider.Venue{{Place: place, ID: "v", URL: "https://wolt.test/v"}}, nil
	case <-ctx.Done():
		return nil, &provider.Error{Provider: f.Name(), Kind: provider.KindUnavailable, Cause: ctx.Err()}
	}
}

// to returns the way to a service, which cuts its streams. find is called when one begins, and after each event that it goes on after.
func (f *front) to(t *testing.T, address string, find func()) http.Handler {
	t.Helper()
	target := check.Must(url.Parse(address))(t)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval, proxy.ErrorLog = -1, slog.NewLogLogger(slog.DiscardHandler, 0)
	proxy.ModifyResponse = func(answer *http.Response) error {
		if f.cutting && answer.Header.Get("Content-Type") == "text/event-stream" {
			find()
			answer.Body = &stream{Closer: answer.Body, front: f, find: find, lines: bufio.NewReader(answer.Body)}
		}
		return nil
	}
	return proxy
}

// stream is a stream of events that ends before its time, in an event or between two.
type stream struct {
	io.Closer

	end   error // nil while it goes on
	find  func()
	front *front
	lines *bufio.Reader
	rest  []byte // of an event
}

func (s *stream) Read(p []byte) (int, error) {
	if len(s.rest) == 0 {
		if s.end != nil {
			return 0, s.end
		}
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// next reads an event, and decides its fate.
func (s *stream) next() error {
	for len(s.rest) < 2 || !bytes.HasSuffix(s.rest, []byte("\n\n")) {
		line, err := s.lines.ReadBytes('\n')
		if s.rest = append(s.rest, line...); err != nil {
			return err
		}
	}
	s.front.mu.Lock()
	half, end := s.front.random.IntN(4) == 0, s.front.random.IntN(4)
	s.front.mu.Unlock()
	switch {
	case bytes.HasPrefix(s.rest, []byte("retry")): // without an event the client would come back slower and slower
		return nil
	case half:
		s.rest = s.rest[:len(s.rest)/2]
	case end > 1:
		s.find()
		return nil
	}
	s.end = []error{io.EOF, io.ErrUnexpectedEOF}[end%2] // a browser drops bytes that it has not read before an error
	s.front.cuts.Add(1)
	return nil
}

// startFront starts an application, a notifier and an enricher.
func startFront(t *testing.T, cutting bool) (*front, *notifier.Notifier) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	f := &front{cutting: cutting, let: make(chan struct{}, 1<<20), random: rand.New(rand.NewPCG(seed, 0))}
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	check.OK(t, os.WriteFile(rules, []byte("version: 1\nevents: {}\n"), 0o600))
	nc, js := natstest.Connect(t, natstest.Server(t))
	check.OK(t, check.Err(provision.Apply(t.Context(), js, contracts.Assets(contracts.AssetOptions{MaxBytes: 1 << 30}), provision.Options{})))
	base := service.BaseConfig{CreateAssets: true, Listen: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)}
	n := check.Must(notifier.Start(t.Context(), nc, notifier.Config{BaseConfig: base, Rules: rules}))(t)
	e := check.Must(enricher.Start(t.Context(), nc, enricher.Config{BaseConfig: base, Enabled: true, Providers: []provider.Provider{f}}))(t)
	enrich := f.to(t, e.URL(), func() { f.let <- struct{}{} })
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir("testdata/app")))
	mux.Handle("/v1/", f.to(t, n.URL(), func() {}))
	mux.Handle("/v1/requests/", enrich)
	mux.HandleFunc("/v1/enrich", func(w http.ResponseWriter, r *http.Request) {
		for len(f.let) > 0 { // nothing is found before the page listens
			<-f.let
		}
		enrich.ServeHTTP(w, r)
	})
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'")
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
		check.OK(t, n.Stop())
		check.OK(t, e.Stop())
	})
	return f, n
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

// Streams of events go on after any number of cuts: nothing is lost, nothing comes twice.
func TestClientThroughAHundredDisconnects(t *testing.T) {
	b := consoletest.Browse(t)
	f, n := startFront(t, true)
	p := b.Open(t, f.URL, consoletest.View{Width: 800})
	until(p, `!!window.app`)
	var want []string
	for batch := 0; f.cuts.Load() < 100; batch++ {
		for i := range 20 {
			want = append(want, fmt.Sprintf("item-%d-%d", batch, i))
			put(t, n, want[len(want)-1], `{}`)
		}
		until(p, fmt.Sprintf(`app.items.length >= %d`, len(want)))
	}
	got := consoletest.Get(p, chromedp.Evaluate[[]string](`app.items`))
	slices.Sort(got)
	slices.Sort(want)
	check.That(t, slices.Equal(got, want), "items: want %v, got %v", want, got)
	check.That(t, consoletest.Get(p, chromedp.Evaluate[int](`app.root.querySelectorAll("li").length`)) == len(want), "the element shows others")

	requests, before := 0, f.cuts.Load()
	for ; f.cuts.Load() < before+100; requests++ {
		names := make([]string, 20)
		for i := range names {
			names[i] = fmt.Sprintf("place-%d-%d", requests, i)
		}
		call := fmt.Sprintf(`app.patches("r%d", %q.split(" "))`, requests, strings.Join(names, " "))
		said := consoletest.Get(p, chromedp.Evaluate[string](call, chromedp.EvalAwaitPromise))
		check.Require(t, said == "once", "request %d: %s", requests, said)
	}
	t.Logf("%d items through %d cuts, %d patches through %d", len(want), before, 20*requests, f.cuts.Load()-before)
}

// Everybody can use the element: on a telephone and a large screen, by day and by night, with the keyboard alone.
func TestInboxElementForEverybody(t *testing.T) {
	b := consoletest.Browse(t)
	f, n := startFront(t, false)
	p := b.Open(t, f.URL, consoletest.View{Width: 360})
	until(p, `!!window.app && app.root.querySelector("[part=empty]").checkVisibility()`)
	p.Looks("inbox-empty")
	put(t, n, "1", `{"title":"שולם","text":"ההזמנה שלך (Pizza & Co.) מוכנה","url":"/orders/1"}`)
	put(t, n, "2", `{"title":"<b>Paid</b>","url":"javascript:alert(1)"}`)
	put(t, n, "3", `{}`)
	for _, width := range []int64{360, 1440} {
		for _, dark := range []bool{false, true} {
			p = b.Open(t, f.URL, consoletest.View{Dark: dark, Width: width})
			until(p, `!!window.app && app.items.length === 3`)
			p.Looks(fmt.Sprintf("inbox-%d-%t", width, dark))
		}
	}
	for script, want := range map[string]string{
		`[...app.root.querySelectorAll("[part=title]")].map(e => e.textContent + getComputedStyle(e).direction).join()`: "Order paidltr,<b>Paid</b>ltr,שולםrtl",
		`[...app.root.querySelectorAll("a")].map(e => e.getAttribute("href")).join()`:                                   f.URL + "/orders/1",
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
