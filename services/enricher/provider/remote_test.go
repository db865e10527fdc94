package provider_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/expediter-io/expediter/internal/service/servicetest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/enricher/match"
	"github.com/expediter-io/expediter/services/enricher/provider"
)

// pizzaHouse is the place that the tests search for.
var pizzaHouse = match.Place{
	Name: "Pizza House", Address: "Dizengoff 50", City: "Tel Aviv", Phone: "+972 3 123 4567", Location: &match.Point{Lat: 32.08, Lng: 34.78},
}

// good is the answer of a good day.
const good = `{"venues":[{"id":"1","name":"Pizza House","address":"Dizengoff St 50","city":"Tel Aviv","phone":"03-1234567",
	"location":{"lat":32.0801,"lng":34.7801},"url":"https://example.com/pizza-house","rating":9.1},
	{"name":"Pizza Prego","aliases":["פיצה פרגו"],"location":{"lat":0,"lng":0},"url":"http://example.com/prego"}],"took":3}`

// answer answers a call.
type answer func(w http.ResponseWriter, r *http.Request)

// server is a provider whose answers a test sets.
type server struct {
	*testing.T
	*provider.Client

	mu     sync.Mutex
	always answer
	calls  int

	places atomic.Int64
}

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return // the client has gone
	}
	s.mu.Lock()
	s.calls++
	answer := s.always
	s.mu.Unlock()
	answer(w, r)
}

// answers sets the answer to every call from now on.
func (s *server) answers(a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.always = a
}

// called returns the number of calls so far.
func (s *server) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// search searches for a place that nobody has searched for.
func (s *server) search() error { return s.searchFor(fmt.Sprint(s.places.Add(1))) }

func (s *server) searchFor(phone string) error {
	place := pizzaHouse
	place.Phone = phone
	return check.Err(s.Search(s.Context(), place))
}

// wants searches, and fails the test unless the error has the kind. It returns the error.
func (s *server) wants(kind provider.Kind) *provider.Error {
	s.Helper()
	return failure(s.T, s.search(), kind)
}

// failure fails the test unless an error is a provider.Error of the kind, with all that a caller relies on.
func failure(t *testing.T, err error, kind provider.Kind) *provider.Error {
	t.Helper()
	failed, ok := errors.AsType[*provider.Error](err)
	check.Require(t, ok && failed.Kind == kind && failed.Provider == "wolt" && failed.Detail != "", "error = %v, want %s with a detail",
		err, kind)
	return failed
}

// bubble runs a test in fake time, with a server off the network that answers as on a good day.
func bubble(t *testing.T, name string, test func(s *server), mutate ...func(*provider.Config)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s, pipes := &server{T: t, always: text(200, good)}, servicetest.NewPipes()
			remote := &httptest.Server{
				Config:   &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: time.Minute},
				Listener: pipes,
			}
			remote.Start()
			cfg := provider.Config{Transport: &http.Transport{DialContext: pipes.DialContext, DisableKeepAlives: true}, URL: remote.URL}
			for _, m := range mutate {
				m(&cfg)
			}
			s.Client = check.Must(provider.New(cfg))(t)
			defer remote.Close()
			test(s)
		})
	})
}

// text answers with a status, a JSON body and headers.
func text(status int, body string, header ...string) answer {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// venues answers with venues that all have a name and a URL beside the member.
func venues(n int, member string) answer {
	return text(200, `{"venues":[`+strings.Repeat(`{"name":"A","url":"https://a.example",`+member+`},`, n-1)+`{"name":"A","url":"https://a.example",`+member+`}]}`)
}

func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func disconnect(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// drip sends a byte a second, for ever.
func drip(w http.ResponseWriter, r *http.Request) {
	text(200, "{")(w, r)
	for http.NewResponseController(w).Flush() == nil && r.Context().Err() == nil {
		natstest.Pass(time.Second)
		_, _ = io.WriteString(w, " ")
	}
}

// brokenOff ends before its Content-Length.
func brokenOff(w http.ResponseWriter, r *http.Request) {
	text(200, good[:10], "Content-Length", strconv.Itoa(len(good)))(w, r)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

func TestAPlaceIsPosted(t *testing.T) {
	t.Parallel()
	var posted match.Place
	keep := func(w http.ResponseWriter, r *http.Request) {
		check.OK(t, json.NewDecoder(r.Body).Decode(&posted))
		check.Equal(t, r.Header.Get("Authorization"), "Bearer s3cr3t", "the key")
		check.Equal(t, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type"), "POST /venues application/json", "type")
		text(200, good)(w, r)
	}
	remote := httptest.NewServer(http.HandlerFunc(keep))
	defer remote.Close()
	client := check.Must(provider.New(provider.Config{Key: "s3cr3t", Name: "other", URL: remote.URL + "/venues"}))(t)
	got := check.Must(client.Search(t.Context(), pizzaHouse))(t)
	check.Equal(t, posted, pizzaHouse)
	want := []provider.Venue{
		{ID: "1", URL: "https://example.com/pizza-house", Place: match.Place{
			Name: "Pizza House", Address: "Dizengoff St 50", City: "Tel Aviv", Phone: "03-1234567", Location: &match.Point{Lat: 32.0801, Lng: 34.7801},
		}},
		{URL: "http://example.com/prego", Place: match.Place{Name: "Pizza Prego", Aliases: []string{"פיצה פרגו"}}},
	}
	check.Equal(t, got, want)
	check.Equal(t, client.Name(), "other", "name")
}

// TestOnlyAnEmptyListIsNone: no fault becomes an empty list, each is the error that it is, and is over when the fault is.
func TestOnlyAnEmptyListIsNone(t *testing.T) {
	t.Parallel()
	bubble(t, "none", func(s *server) {
		s.answers(text(200, `{"venues":[]}`))
		got, err := s.Search(s.Context(), pizzaHouse)
		check.That(s.T, err == nil && len(got) == 0, "Search = %v, %v; want none", got, err)
	})
	long := strings.Repeat("x", 1100)
	for name, tt := range map[string]struct {
		answer answer
		kind   provider.Kind
		says   string
	}{
		"429":               {text(429, ""), provider.KindRateLimited, "(retry after 30s)"},
		"429 Retry-After":   {text(429, "", "Retry-After", "7"), provider.KindRateLimited, "(retry after 7s)"},
		"429 for a year":    {text(429, "", "Retry-After", "31536000"), provider.KindRateLimited, "(retry after 5m0s)"},
		"503 Retry-After":   {text(503, "", "Retry-After", "9"), provider.KindUnavailable, "(retry after 9s)"},
		"500":               {text(500, "no disk"), provider.KindUnavailable, `HTTP 500): the service is out of order: "no disk"`},
		"504":               {text(504, ""), provider.KindTimeout, "HTTP 504"},
		"400":               {text(400, long), provider.KindMisconfigured, strings.Repeat("x", 200) + `"`},
		"401":               {text(401, ""), provider.KindBlocked, "the key is refused"},
		"403":               {text(403, ""), provider.KindBlocked, "the key is refused"},
		"404":               {text(404, ""), provider.KindMisconfigured, "check the URL"},
		"204":               {text(204, ""), provider.KindMalformed, "only 200"},
		"hang":              {hang, provider.KindTimeout, "no answer within 8s"},
		"drip":              {drip, provider.KindTimeout, "no answer within 8s"},
		"disconnect":        {disconnect, provider.KindUnavailable, "did not get through"},
		"broken off":        {brokenOff, provider.KindMalformed, "broke off"},
		"another type":      {text(200, good, "Content-Type", "text/html"), provider.KindMalformed, `"text/html"`},
		"no type":           {text(200, good, "Content-Type", ""), provider.KindMalformed, "want application/json"},
		"10 MB":             {text(200, good+strings.Repeat(" ", 10<<20)), provider.KindMalformed, "larger than 1048576 bytes"},
		"empty":             {text(200, ""), provider.KindMalformed, "unexpected end"},
		"garbage":           {text(200, "\x00\xff<html>"), provider.KindMalformed, "decode 8 bytes"},
		"truncated":         {text(200, good[:100]), provider.KindMalformed, "decode 100 bytes"},
		"two values":        {text(200, good+good), provider.KindMalformed, "decode"},
		"null":              {text(200, "null"), provider.KindMalformed, "no list of venues"},
		"no venues":         {text(200, `{"results":[]}`), provider.KindMalformed, "no list of venues"},
		"venues null":       {text(200, `{"venues":null}`), provider.KindMalformed, "no list of venues"},
		"a list":            {text(200, `[]`), provider.KindMalformed, "cannot unmarshal array"},
		"101 venues":        {venues(101, `"id":"1"`), provider.KindMalformed, "101 venues, more than 100"},
		"no name":           {text(200, `{"venues":[{"name":" ","url":"https://a.example"}]}`), provider.KindMalformed, "venues/0: name is missing"},
		"long name":         {text(200, `{"venues":[{"name":"`+long+`"}]}`), provider.KindMalformed, "name has 1100 bytes, more than 1024"},
		"long aliases":      {venues(1, `"aliases":["`+long+`"]`), provider.KindMalformed, "aliases has 1100 bytes"},
		"21 aliases":        {venues(1, `"aliases":["`+strings.Repeat(`x","`, 20)+`"]`), provider.KindMalformed, "aliases are 21"},
		"number as address": {venues(2, `"address":5`), provider.KindMalformed, "cannot unmarshal number"},
		"no unicode":        {venues(2, "\"id\":\"\xff\""), provider.KindMalformed, "id"},
		"no URL":            {text(200, `{"venues":[{"name":"A"}]}`), provider.KindMalformed, "venues/0: url: it does not start with"},
		"a script":          {text(200, `{"venues":[{"name":"A","url":"javascript:alert(1)"}]}`), provider.KindMalformed, "url"},
		"URL with space":    {text(200, `{"venues":[{"name":"A","url":"https://a.example/a b"}]}`), provider.KindMalformed, "url: it has a space"},
		"a huge number":     {venues(2, `"location":{"lat":1e999999999,"lng":0}`), provider.KindMalformed, "cannot unmarshal number"},
		"off the earth":     {venues(2, `"location":{"lat":91,"lng":0}`), provider.KindMalformed, "latitude 91"},
	} {
		bubble(t, name, func(s *server) {
			s.answers(tt.answer)
			check.Contains(s.T, s.wants(tt.kind).Error(), tt.says)
			s.answers(text(200, good))
			natstest.Pass(5 * time.Minute)
			check.ErrorIs(s.T, s.search(), nil, "when the fault is over")
		})
	}
}

// TestRedirectsAreNotFollowed: a private address to which the provider redirects gets no call, and not the key.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	private := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the private address was called") }))
	defer private.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		remote := httptest.NewServer(http.RedirectHandler(private.URL, status))
		client := check.Must(provider.New(provider.Config{Key: "s3cr3t", URL: remote.URL + "/s3cr3t"}))(t)
		_, err := client.Search(t.Context(), pizzaHouse)
		check.Contains(t, failure(t, err, provider.KindMisconfigured).Error(), "redirects are not followed")
		remote.Close()
		_, err = client.Search(t.Context(), pizzaHouse) // now that nobody listens there
		failed := failure(t, err, provider.KindUnavailable)
		check.That(t, !strings.Contains(failed.Error(), "s3cr3t"), "the error has the path of the URL: %v", failed)
	}
}

// TestNoCallIsMadeInAPause: the pause that a 429 asks for is kept to the nanosecond.
func TestNoCallIsMadeInAPause(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(s *server) {
		s.answers(text(429, "", "Retry-After", "12"))
		_ = s.wants(provider.KindRateLimited)
		s.answers(text(200, good))
		natstest.Pass(12*time.Second - time.Nanosecond)
		failed := s.wants(provider.KindRateLimited)
		check.That(s.T, s.called() == 1 && failed.RetryAfter == time.Second && s.Held(), "%d calls, %v; want none in the pause", s.called(),
			failed)
		natstest.Pass(time.Nanosecond)
		check.ErrorIs(s.T, s.search(), nil)
		// Pauses are kept, and the breaker stays closed, however many there are.
		s.answers(text(429, "", "Retry-After", "1"))
		for range 8 {
			_ = s.wants(provider.KindRateLimited)
			natstest.Pass(time.Second)
		}
		check.Equal(s.T, s.called(), 2+8, "calls")
	})
	bubble(t, "a shorter one comes late", func(s *server) {
		s.answers(func(w http.ResponseWriter, r *http.Request) {
			natstest.Pass(time.Second)
			text(429, "", "Retry-After", "5")(w, r)
		})
		var late sync.WaitGroup
		late.Go(func() { _ = s.search() })
		synctest.Wait()
		s.answers(text(429, "", "Retry-After", "60"))
		_ = s.wants(provider.KindRateLimited)
		late.Wait()
		natstest.Pass(10 * time.Second)
		_ = s.wants(provider.KindRateLimited)
		check.Equal(s.T, s.called(), 2, "calls")
	})
}

func TestBreakerOpensTriesAndCloses(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]answer{"500": text(500, ""), "401": text(401, ""), "garbage": text(200, "{"), "hang": hang} {
		bubble(t, name, func(s *server) {
			s.answers(fault)
			closed := func(err error) {
				check.That(s.T, err != nil && !errors.Is(err, provider.ErrCircuitOpen), "error = %v, want a call that failed", err)
			}
			for range 5 {
				closed(s.search())
			}
			// Open: no call is made, and the error says for how long.
			natstest.Pass(4 * time.Second)
			failed := s.wants(provider.KindUnavailable)
			check.That(s.T, errors.Is(failed, provider.ErrCircuitOpen) && failed.RetryAfter == 26*time.Second && s.Held(),
				"error = %v, want 26s", failed)
			// Half open: one call, which fails, and it is open again.
			natstest.Pass(27 * time.Second)
			closed(s.search())
			check.ErrorIs(s.T, s.search(), provider.ErrCircuitOpen)
			// Half open: one call, which succeeds, and it is closed.
			s.answers(text(200, good))
			natstest.Pass(31 * time.Second)
			for range 3 {
				check.ErrorIs(s.T, s.search(), nil)
			}
			check.Equal(s.T, s.called(), 5+1+3, "calls")
		})
	}
}

// TestPlacesThatFailHoldUpNoOthers: four places at which the service fails keep nobody else's from it, however often they are looked
// up; and any number does not, within 30 seconds of a success. Otherwise a fifth does for one pause, and none of them is the trial.
func TestPlacesThatFailHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(s *server) {
		bad := func(calls, places int) {
			s.answers(text(500, ""))
			for i := range calls {
				check.Require(s.T, !errors.Is(s.searchFor(fmt.Sprint("bad-", i%places)), provider.ErrCircuitOpen), "call %d is held", i)
			}
			s.answers(text(200, good))
		}
		bad(12, 4)
		check.ErrorIs(s.T, s.search(), nil)
		bad(10, 10)
		check.ErrorIs(s.T, s.search(), nil)
		natstest.Pass(30 * time.Second)
		bad(5, 5)
		check.ErrorIs(s.T, s.search(), provider.ErrCircuitOpen)
		natstest.Pass(31 * time.Second)
		check.ErrorIs(s.T, s.searchFor("bad-0"), provider.ErrCircuitOpen)
		check.ErrorIs(s.T, s.search(), nil)
		check.ErrorIs(s.T, s.searchFor("bad-0"), nil)
	})
}

func TestATrialWhoseCallerGivesUpLeavesItToTheNext(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(s *server) {
		s.answers(text(500, ""))
		for range 5 {
			_ = s.wants(provider.KindUnavailable)
		}
		natstest.Pass(30 * time.Second)
		s.answers(hang)
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		_, err := s.Search(ctx, pizzaHouse)
		failure(s.T, err, provider.KindTimeout)
		s.answers(text(200, good))
		check.ErrorIs(s.T, s.search(), nil)
	})
}

func TestCallersWhoGiveUpAreNoFailures(t *testing.T) {
	t.Parallel()
	bubble(t, "", func(s *server) {
		s.answers(hang)
		for range 8 { // more than the breaker takes
			ctx, cancel := context.WithTimeout(s.Context(), time.Second)
			_, err := s.Search(ctx, pizzaHouse)
			cancel()
			check.Contains(s.T, failure(s.T, err, provider.KindTimeout).Error(), "the caller's deadline passed")
		}
		ctx, cancel := context.WithCancel(s.Context())
		time.AfterFunc(time.Second, cancel)
		_, err := s.Search(ctx, pizzaHouse)
		check.ErrorIs(s.T, failure(s.T, err, provider.KindCanceled), context.Canceled)
		_, err = s.Search(ctx, pizzaHouse)
		failure(s.T, err, provider.KindCanceled)
		check.Equal(s.T, s.called(), 9, "calls, and none of a caller that had given up")
	})
}

func TestEachCallTakesATurn(t *testing.T) {
	t.Parallel()
	paced := func(c *provider.Config) { c.Turn = rate.NewLimiter(1, 1).Wait }
	for name, tt := range map[string]struct {
		answer answer
		kind   provider.Kind
		calls  int
	}{
		"good":                       {text(200, good), "", 8},
		"the service asks for peace": {text(429, "", "Retry-After", "60"), provider.KindRateLimited, 1},
		"the breaker opens":          {text(500, ""), provider.KindUnavailable, 5},
	} {
		bubble(t, name, func(s *server) {
			s.answers(func(w http.ResponseWriter, r *http.Request) {
				natstest.Pass(time.Millisecond) // all wait for their turns by then
				tt.answer(w, r)
			})
			began, group := time.Now(), sync.WaitGroup{}
			for range 8 {
				group.Go(func() { check.Equal(s.T, provider.KindOf(s.search()), tt.kind, "kind") })
			}
			group.Wait()
			check.Equal(s.T, s.called(), tt.calls, "calls")
			check.Equal(s.T, time.Since(began).Truncate(time.Second), 7*time.Second, "took")
		}, paced)
	}
	bubble(t, "the caller ends", func(s *server) {
		ctx, cancel := context.WithTimeout(s.Context(), time.Second)
		defer cancel()
		_, err := s.Search(ctx, pizzaHouse)
		failure(s.T, err, provider.KindTimeout)
		check.Equal(s.T, s.called(), 0, "calls")
	}, func(c *provider.Config) { c.Turn = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() } })
	bubble(t, "no turn", func(s *server) {
		failed := s.wants(provider.KindRateLimited)
		check.That(s.T, errors.Is(failed, io.EOF) && failed.RetryAfter == 5*time.Second && s.called() == 0, "error = %v, want when to retry",
			failed)
	}, func(c *provider.Config) { c.Turn = func(context.Context) error { return io.EOF } })
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rate    float64
		timeout time.Duration
		want    provider.Limits
	}{
		{0, 0, provider.Limits{Burst: 2, Gap: time.Second / 10, Searches: 80}},
		{4, 5 * time.Second, provider.Limits{Burst: 2, Gap: time.Second / 4, Searches: 20}},
		{0.1, 0, provider.Limits{Burst: 2, Gap: 10 * time.Second, Searches: 1}},
		{10_000, 0, provider.Limits{Burst: 2, Gap: 100 * time.Microsecond, Searches: 80_000}},
	} {
		client := check.Must(provider.New(provider.Config{Rate: tt.rate, Timeout: tt.timeout, URL: "http://127.0.0.1"}))(t)
		check.Equal(t, client.Limits(), tt.want, fmt.Sprint(tt.rate))
	}
}

func TestNewReportsEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := provider.New(provider.Config{Key: "s3cr3t\n", Rate: math.NaN(), Timeout: time.Minute, URL: "ftp://x"})
	failed := failure(t, err, provider.KindMisconfigured)
	check.Contains(t, failed.Error(), "BaseURL is not an http", "Rate is NaN", "Timeout is 1m0s", "Token holds")
	check.That(t, !provider.Temporary(failed) && !strings.Contains(failed.Error(), "s3cr3t"), "%v is temporary, or has the key", failed)
	for url, ok := range map[string]bool{
		"": false, "https://venues.example.com/v1": true, "http://localhost:8081": true, "http://127.0.0.1:8081/": true, "http://[::1]:8081": true,
		"http://venues.example.com": false, "file:///etc/passwd": false, "venues.example.com": false, "https:///v1": false,
		"https://me:s3cr3t@venues.example.com": false, "https://venues.example.com/?key=s3cr3t": false, "https://venues example.com:s3cr3t/": false,
	} {
		_, err := provider.New(provider.Config{URL: url})
		check.That(t, (err == nil) == ok && (ok || !strings.Contains(err.Error(), "s3cr3t")), "%q: %v", url, err)
	}
	check.ErrorIs(t, check.Err(provider.New(provider.Config{AllowHTTP: true, URL: "http://venues"})), nil)
	for _, rate := range []float64{0.09, 10_001, -1, math.Inf(1)} {
		check.ErrorContains(t, check.Err(provider.New(provider.Config{Rate: rate, URL: "http://localhost"})), "Rate is")
	}
}
