package tour

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/cmd/expediter/internal/pipeline"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// client is that of all tests.
var client = &http.Client{}

func TestMain(m *testing.M) { natstest.Main(m, 4) }

// gated is a provider that answers as the test lets it.
type gated chan struct{}

func (g gated) Name() string { return contracts.ProviderWolt }

func (g gated) Search(ctx context.Context, p match.Place) ([]provider.Venue, error) {
	select {
	case <-g:
	case <-ctx.Done():
		return nil, &provider.Error{Cause: ctx.Err(), Provider: g.Name()}
	}
	return []provider.Venue{{ID: p.Name, Place: p, URL: "https://wolt.example/" + url.PathEscape(p.Name)}}, nil
}

// site serves the page.
type site struct {
	*httptest.Server

	pipeline *pipeline.Pipeline
}

// start runs the services and serves the page.
func start(t *testing.T) (s site, g gated) {
	t.Helper()
	g = make(gated)
	log := slog.New(slog.DiscardHandler)
	const free = "127.0.0.1:0"
	p, err := pipeline.Start(t.Context(), pipeline.Config{
		Enrichers: []string{free}, Importers: []string{free}, Notifiers: []string{free}, Logger: log, NATSPort: -1, Provider: g,
	})
	check.OK(t, err)
	t.Cleanup(func() { check.OK(t, p.Stop()) })
	router := service.NewRouter(service.RouterConfig{Logger: log, Name: "tour", Ready: func() map[string]error { return nil }, Version: "test"})
	check.OK(t, Add(router, Config{
		Console: "/console", Enricher: p.Enrichers[0].URL(), Importer: p.Importers[0].URL(), Notifier: p.Notifiers[0].URL(),
	}))
	s = site{httptest.NewServer(router), p}
	t.Cleanup(func() { s.CloseClientConnections(); s.Close(); client.CloseIdleConnections() })
	return s, g
}

// post sends a form and returns the page that it leads to, and its address.
func post(t *testing.T, at string, form url.Values) (page, where string) {
	t.Helper()
	resp := check.Must(client.PostForm(at, form))(t)
	defer resp.Body.Close()
	body := check.Must(io.ReadAll(resp.Body))(t)
	return string(body), resp.Request.URL.RequestURI()
}

func get(t *testing.T, at string) string {
	t.Helper()
	resp := check.Must(client.Get(at))(t)
	defer resp.Body.Close()
	body := check.Must(io.ReadAll(resp.Body))(t)
	return string(body)
}

// event is one of a stream.
type event struct{ id, kind, data string }

// read reads events of a stream until one is the last that is wanted, and returns them.
func read(t *testing.T, at, lastID string, last func(event) bool) (events []event) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req := check.Must(http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody))(t)
	req.Header.Set("Last-Event-ID", lastID)
	resp := check.Must(client.Do(req))(t)
	defer resp.Body.Close()
	check.Require(t, resp.StatusCode == http.StatusOK, "%s: %s", at, resp.Status)
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	var e event
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.kind = value
		case "data":
			e.data += value + "\n"
		case "":
			if e.data == "" {
				continue
			}
			events = append(events, e)
			if last(e) {
				return events
			}
			e = event{}
		}
	}
	t.Fatalf("the stream ended: %v, after %v", lines.Err(), events)
	return nil
}

var stream = regexp.MustCompile(`sse-connect="([^"]+)"`)

// streams returns the addresses of the streams of a page.
func streams(page string) (list []string) {
	for _, found := range stream.FindAllStringSubmatch(page, -1) {
		list = append(list, strings.ReplaceAll(found[1], "&amp;", "&"))
	}
	return list
}

// A search shows its places at once, each with the link as soon as it is known.
func TestSearchTurnsIntoLinks(t *testing.T) {
	t.Parallel()
	site, g := start(t)
	page, where := post(t, site.URL+"/search", url.Values{"q": {"Pizza"}})
	n := strings.Count(page, `PENDING</span>`)
	check.That(t, n > 3, "%d places are pending in\n%s", n, page)
	close(g)
	read(t, site.URL+streams(page)[0], "", func(e event) bool { return e.kind == over })
	body := get(t, site.URL+where)
	check.That(t, strings.Count(body, `href="https://wolt.example/`) == n, "the page says\n%s", body)
	again, where := post(t, site.URL+"/search", url.Values{"q": {"Pizza"}}) // is answered in full at once
	for _, body := range []string{again, get(t, site.URL+where)} {
		check.Contains(t, body, `role="alert"></p>`)
		check.That(t, strings.Count(body, `href="https://wolt.example/`) == n && len(streams(body)) == 1, "the page says\n%s", body)
	}
	page, _ = post(t, site.URL+"/search", url.Values{"q": {"<b>Nowhere</b>"}})
	check.Contains(t, page, "&lt;b&gt;nowhere&lt;/b&gt;")
}

// A browser that is cut off after each event gets each patch, and each once.
func TestPatchesComeOnceThroughDisconnects(t *testing.T) {
	t.Parallel()
	site, g := start(t)
	const n = 100
	req := contracts.EnrichRequest{RequestID: "r"}
	for i := range n {
		req.Results = append(req.Results, contracts.Restaurant{PlaceID: fmt.Sprint("p", i), Name: fmt.Sprint("Place ", i)})
	}
	check.OK(t, check.Err(site.pipeline.Enrichers[0].Enrich(t.Context(), req)))
	at := site.URL + streams(get(t, site.URL+"/?request=r"))[0]
	every := func(event) bool { return true }
	last, seen := read(t, at, "", every)[0].id, map[string]int{}
	for range n {
		g <- struct{}{}
		e := read(t, at, last, every)[0]
		last = e.id
		seen[regexp.MustCompile(`id="(place-[^"]+)"`).FindStringSubmatch(e.data)[1]]++
	}
	check.That(t, len(seen) == n, "%d of %d places came through %d disconnects: %v", len(seen), n, n, seen)
	check.Equal(t, read(t, at, last, every)[0].kind, over, "the event behind the last patch")
}

// A text turns into a recipe, and its stream ends with it.
func TestTextTurnsIntoRecipe(t *testing.T) {
	t.Parallel()
	site, _ := start(t)
	page, _ := post(t, site.URL+"/import", url.Values{"source": {"Omelette\nWhisk 3 eggs with a pinch of salt. Melt 1 tablespoon of butter in a pan. " +
		"Pour in the eggs and stir for 2 minutes."}})
	events := read(t, site.URL+streams(page)[0], "", func(e event) bool { return e.kind == over })
	check.Contains(t, events[len(events)-2].data, "Omelette", "<b>3 </b> eggs", `make the recipe <span class="badge good">done</span>`)
	again := read(t, site.URL+streams(page)[0], events[len(events)-1].id, func(event) bool { return true })
	check.Equal(t, again[0].kind, over, "the event for a browser that has the end")
}

// A question of a guest arrives in the inbox of the staff, once, and as text.
func TestQuestionArrives(t *testing.T) {
	t.Parallel()
	site, _ := start(t)
	page, _ := post(t, site.URL+"/ask", url.Values{"name": {"<i>דנה</i>"}, "guests": {"4"}})
	at := streams(page)[0]
	events := read(t, site.URL+strings.Split(at, "?")[0], "", func(event) bool { return true })
	check.Contains(t, events[0].data, "Reservation requested", "&lt;i&gt;דנה&lt;/i&gt;", "<bdi>4</bdi>")
	post(t, site.URL+"/ask", url.Values{"name": {"Ben"}, "guests": {"2"}})
	next := read(t, site.URL+at, events[0].id, func(event) bool { return true })
	check.That(t, strings.Count(next[0].data, "<li>") == 2 && strings.Contains(next[0].data, "Ben"), "the inbox is\n%s", next[0].data)
}

// A mistake is said on the page, and nothing runs that came from elsewhere.
func TestPageRefuses(t *testing.T) {
	t.Parallel()
	site, _ := start(t)
	page, _ := post(t, site.URL+"/ask", url.Values{"guests": {"many"}})
	check.Contains(t, page, "must be 1 or more")
	page, _ = post(t, site.URL+"/import", url.Values{"source": {" "}})
	check.That(t, !strings.Contains(page, `role="alert"></p>`), "nothing is said of an empty source in\n%s", page)
	req := check.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, site.URL+"/search", strings.NewReader("q=x")))(t)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	resp := check.Must(client.Do(req))(t)
	check.OK(t, resp.Body.Close())
	check.Equal(t, resp.StatusCode, http.StatusForbidden, "the answer to a form of another site")
}
