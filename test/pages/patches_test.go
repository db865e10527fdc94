package pages_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/service/audit"
	"github.com/expediter-io/expediter/test/internal/browser"
)

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
func survive(t *testing.T, b *browser.Browser, page, enricher, server string) {
	t.Helper()
	const tabs, disconnects = 6, 100
	random := crash.Random(t)
	_, js := natstest.ConnectURL(t, server)
	slots := check.Must(js.Stream(t.Context(), "KV_"+contracts.BucketEnrich))(t)
	var left atomic.Int64
	left.Store(disconnects)
	var pages []*browser.Page
	for i := range tabs {
		pages = append(pages, b.Open(t, cut(t, page, &left, random), browser.View{Width: 800}))
		browser.Get(pages[i], chromedp.Evaluate[int](keepNews))
	}
	var late []time.Duration
	for round := 0; left.Load() > 0; round++ {
		search := fmt.Sprintf("search-%d", round)
		places := ask(t, enricher, search)
		for _, p := range pages {
			browser.Get(p, chromedp.Evaluate[int](fmt.Sprintf(followSearch, search)))
		}
		stored := map[string]time.Time{}
		for i, p := range pages {
			seen := browser.Get(p, chromedp.Evaluate[[]news](`seen`, chromedp.EvalAwaitPromise))
			for row, at := range shown(t, fmt.Sprintf("%s, page %d", search, i), places, seen) {
				if _, ok := stored[row]; !ok {
					stored[row] = storedAt(t, slots, places[row])
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
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	check.OK(t, err)
	check.OK(t, answer.Body.Close())
	check.Same(t, "status", answer.StatusCode, http.StatusOK)
	return places
}

// storedAt returns when the result of a place was stored.
func storedAt(t *testing.T, slots jetstream.Stream, place string) time.Time {
	t.Helper()
	key := check.Must(contracts.EnrichSlotKey(contracts.ProviderWolt, place))(t)
	m := check.Must(slots.GetLastMsgForSubject(t.Context(), "$KV."+contracts.BucketEnrich+"."+key))(t)
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
