package imports

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/expediter-io/expediter/internal/remote"
	"github.com/expediter-io/expediter/internal/service"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/services/importer/extract/openai"
	"github.com/expediter-io/expediter/services/importer/failure"
	"github.com/expediter-io/expediter/services/importer/source"
	"github.com/expediter-io/expediter/services/importer/store"
)

const soupAnswer = `{"choices":[{"finish_reason":"stop","message":{"content":"{\"title\":\"Soup\",\"ingredients\":[{\"qty\":\"2\",` +
	`\"item\":\"onions\"}],\"steps\":[{\"text\":\"Cut 2 onions\"}]}"}}]}`

// outage is a remote service that does not work, and how.
type outage struct {
	side    string
	header  http.Header
	status  int    // 0 for an answer that is lost
	path    string // of the calls that fail
	code    contracts.ImportCode
	refused bool
	most    int64 // calls within the outage
}

func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

var outages = map[string]outage{
	"the model is out of order":    {side: sideExtractor, status: 500, path: "/chat/completions", most: 90},
	"the model wants a pause":      {side: sideExtractor, status: 429, header: http.Header{"Retry-After": {"300"}}, path: "/chat/completions", most: 40},
	"the model cannot be reached":  {side: sideExtractor, path: "/chat/completions", most: 90},
	"our key is refused":           {side: sideExtractor, status: 401, path: "/chat/completions", refused: true, most: 40},
	"the quota is used up":         {side: sideExtractor, status: 429, path: "/chat/completions?quota", refused: true, most: 40},
	"our token is refused":         {side: sideStatus, status: 403, path: "/status", refused: true, most: 40},
	"the store is out of order":    {side: sideRecipes, status: 503, path: "/internal/recipes/from-import-job", most: 120},
	"the store's answers are lost": {side: sideRecipes, path: "/internal/recipes/from-import-job", most: 120},
	"the store takes no states":    {side: sideStatus, status: 502, path: "/status", most: 120},
	"the site limits us":           {side: sideYouTube, path: "source", code: failure.RateLimited, most: 40},
}

// fakeServices is a model and a Recipe Service, one of which does not work for a while.
type fakeServices struct {
	outage

	down  atomic.Bool
	calls atomic.Int64 // that failed
	made  atomic.Int64
}

func (w *fakeServices) RoundTrip(r *http.Request) (*http.Response, error) {
	path, quota, _ := strings.Cut(w.path, "?")
	if w.down.Load() && strings.HasSuffix(r.URL.Path, path) {
		w.calls.Add(1)
		if w.status == 0 {
			return nil, errors.New("connection reset")
		}
		body := "{}"
		if quota != "" {
			body = `{"error":{"code":"insufficient_quota"}}`
		}
		out := answer(w.status, body)
		if w.header != nil {
			out.Header = w.header
		}
		return out, nil
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		return answer(http.StatusOK, soupAnswer), nil
	case strings.HasSuffix(r.URL.Path, "/from-import-job"):
		return answer(http.StatusOK, fmt.Sprintf(`{"recipe_id":"r%d"}`, w.made.Add(1))), nil
	case r.Method == http.MethodGet:
		return answer(http.StatusNotFound, "{}"), nil
	}
	return answer(http.StatusNoContent, ""), nil
}

func (w *fakeServices) instance(t *testing.T, srv *natsrun.Server) *instance {
	t.Helper()
	i := newInstance(t, srv, func(_ *instance, c *Config) {
		c.Store = check.Must(store.NewRecipeService(remote.Config{BaseURL: "https://recipes.test", Token: "t", Transport: w}))(t)
	})
	model := check.Must(openai.New(openai.Config{Config: remote.Config{BaseURL: "https://model.test", Transport: w}, Model: "cook-1"}))(t)
	i.cfg.Extractor = Extractor{Extractor: model, Name: "openai", Version: "1"}
	i.source.fetch = func(_ context.Context, req source.Request, _ func(float64)) (*source.Material, error) {
		if w.path == "source" && w.down.Load() {
			w.calls.Add(1)
			return nil, &source.Error{Code: w.code, Outage: true, Retryable: true, Message: "The site limits us"}
		}
		return video(req.URL), nil
	}
	return i
}

// rarely makes heartbeats rare: those of a day of fake time take long.
func rarely(c *worker.Config) { c.AckWait = 10 * time.Minute }

// While a remote service does not work, the jobs wait, name it, use no attempts, and call it now and then, all together. When it works
// again they end well. Time is fake.
func TestAnOutageFailsNoJob(t *testing.T) {
	const jobs, lasts = 10, time.Hour
	for name, c := range outages {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			w := &fakeServices{outage: c}
			w.down.Store(true)
			i := w.instance(t, srv)
			i.work(t, rarely)
			for n := range jobs {
				i.submit(t, job(fmt.Sprintf("j%d", n), fmt.Sprintf("v%d", n)))
			}
			for n := range jobs {
				j := i.until(t, fmt.Sprintf("j%d", n), func(j Job) bool { return j.WaitingFor != "" || j.Status.Final() })
				check.That(t, j.Status == contracts.ImportRunning && j.WaitingFor == c.side && j.Error != "" && !j.WaitingSince.IsZero(),
					"it waits as %+v", j)
			}
			pauseFor(t.Context(), lasts)
			var note service.Note
			err := i.Check()
			check.That(t, err != nil && errors.As(err, &note) != c.refused && strings.Contains(err.Error(), c.side+" since "), "readiness: %v", err)
			n := w.calls.Load()
			check.That(t, n <= c.most && n >= jobs, "%d calls of %d jobs within %s: want %d to %d", n, jobs, lasts, jobs, c.most)
			held := func() (n int) {
				i.Held(func(side string, times int) {
					if side == labelOf(c.side) {
						n = times
					}
				})
				return n
			}
			check.Equal(t, held(), 1, "sides that are held")
			w.down.Store(false)
			for n := range jobs {
				j := i.until(t, fmt.Sprintf("j%d", n))
				check.That(t, j.Status == contracts.ImportReady && j.Attempt == 1 && j.WaitingFor == "", "it ended as %+v", j)
			}
			check.Equal(t, i.deadLettersWhenIdle(t), 0, "dead letters")
			check.That(t, w.made.Load() == jobs && i.Check() == nil && held() == 0, "%d recipes, readiness: %v", w.made.Load(), i.Check())
		})
	}
}

// A job waits for as long as is configured, and then fails; one that our key fails waits on.
func TestPatienceEnds(t *testing.T) {
	for name, want := range map[string]contracts.ImportState{
		"the model is out of order": contracts.ImportFailed, "our key is refused": contracts.ImportRunning,
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			w := &fakeServices{outage: outages[name]}
			w.down.Store(true)
			i := w.instance(t, srv)
			check.Equal(t, i.cfg.OutagePatience, 24*time.Hour, "the default")
			i.cfg.OutagePatience = 2 * time.Hour
			i.work(t, rarely)
			i.submit(t, job("j1", "v1"))
			pauseFor(t.Context(), 110*time.Minute)
			check.Equal(t, check.Must(i.Get(t.Context(), "j1"))(t).Status, contracts.ImportRunning, "status")
			pauseFor(t.Context(), 20*time.Minute)
			j, err := i.Get(t.Context(), "j1")
			check.That(t, err == nil && j.Status == want && (want == contracts.ImportFailed) == (j.Retryable && j.Code == failure.ExtractionFailed),
				"it is %+v, %v", j, err)
		})
	}
}

// However many jobs wait, of which one at a time makes a call, each fails when it has waited for so long.
func TestThePatienceOfManyEnds(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		const jobs, patience = 30, 10 * time.Minute
		w := &fakeServices{outage: outages["the site limits us"]}
		w.down.Store(true)
		i := w.instance(t, srv)
		i.cfg.OutagePatience = patience
		i.work(t, rarely)
		for n := range jobs {
			i.submit(t, job(fmt.Sprintf("j%d", n), fmt.Sprintf("v%d", n)))
		}
		pauseFor(t.Context(), patience+2*lastPause)
		for n := range jobs {
			j, err := i.Get(t.Context(), fmt.Sprintf("j%d", n))
			check.That(t, err == nil && j.Status == contracts.ImportFailed && j.Code == failure.RateLimited, "%+v, %v", j, err)
		}
		check.Equal(t, i.deadLettersWhenIdle(t), jobs, "dead letters")
	})
}

// A remote service is left alone for an hour at most, whatever it asks for.
func TestARemoteServiceCanAskForAnHour(t *testing.T) {
	t.Parallel()
	var b remotes
	f := &FailedError{Outage: sideYouTube, RetryAfter: 24 * time.Hour}
	b.called(sideYouTube, caller{"ada", "j1"}, f)
	held := b.enter(sideYouTube, caller{"ada", "j2"})
	check.Require(t, held != nil && held.RetryAfter > 59*time.Minute && held.RetryAfter <= time.Hour, "held: %+v", held)
	pause := f.snooze(0)
	check.That(t, pause >= time.Hour && pause <= 75*time.Minute, "a job is put off for %s", pause)
}

// An outage is in the log, as an error when it is ours.
func TestAnOutageOfOursIsAnError(t *testing.T) {
	t.Parallel()
	for _, refused := range []bool{false, true} {
		var log bytes.Buffer
		a := &attempt{Service: &Service{logger: slog.New(slog.NewTextHandler(&log, nil))}, id: "j1"}
		a.reached(t.Context(), sideExtractor, &FailedError{Outage: sideExtractor, Refused: refused, RetryAfter: time.Minute})
		level := map[bool]string{false: "WARN", true: "ERROR"}[refused]
		check.Contains(t, log.String(), "level="+level, "event=outage_began", "side=extractor")
	}
}

// One source that fails where others do not makes the others wait for moments only.
func TestOneBadSourceHoldsUpNoOther(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv)
		fails := &source.Error{Code: failure.Timeout, Outage: true, Retryable: true, Message: "no answer"}
		i.source.fetch = fetchFailsFor(fails, func(url string) bool { return strings.HasSuffix(url, "bad") })
		i.work(t)
		i.submit(t, job("bad", "bad"))
		for n := range 50 {
			began := time.Now()
			id := fmt.Sprintf("j%d", n)
			i.submit(t, job(id, id))
			i.until(t, id)
			took := time.Since(began)
			check.That(t, took <= probeTime, "job %d took %s", n, took)
			pauseFor(t.Context(), time.Minute)
		}
	})
}

// Sources that lead to a site that does not work, as short addresses do, wait for that one, and no others of their own site do.
func TestASiteBehindAnotherHoldsUpNoOther(t *testing.T) {
	natstest.Bubble(t, func(t *testing.T, srv *natsrun.Server) {
		i := newInstance(t, srv)
		var down atomic.Bool
		down.Store(true)
		fails := &source.Error{Code: failure.Timeout, Outage: true, Retryable: true, Message: "no answer", Site: "dead.test"}
		i.source.fetch = fetchFailsFor(fails, func(url string) bool { return strings.HasSuffix(url, "bad") && down.Load() })
		i.work(t)
		short := func(id string) {
			i.submit(t, contracts.ImportJob{JobID: id, OwnerID: "ada", SourceType: source.TypeWeb, URL: "https://short.test/" + id})
		}
		for _, id := range []string{"1bad", "2bad", "3bad"} {
			short(id)
			j := i.until(t, id, func(j Job) bool { return j.WaitingFor != "" })
			check.Equal(t, j.WaitingFor, sidePrefix+"dead.test", "it waits for")
		}
		began := time.Now()
		short("good")
		i.ready(t, "good")
		took := time.Since(began)
		check.That(t, took < firstPause, "it took %s", took)
		down.Store(false)
		for _, id := range []string{"1bad", "2bad", "3bad"} {
			i.ready(t, id)
		}
		check.Equal(t, len(i.remotes.held()), 0, "sites in trouble")
	})
}

// Owners whose sources fail hold up no other owner of the site that works: however their sources fail, however long the site asks them to
// wait, and however many jobs they have. A second such owner makes the others wait only when the site has not worked for them lately, and
// for one pause. When it works for nobody, all wait.
func TestAnOwnerHoldsUpNoOther(t *testing.T) {
	for name, fails := range map[string]source.Error{
		"no answer":            {Code: failure.Timeout, Outage: true, Retryable: true},
		"Retry-After of a day": {Code: failure.RateLimited, Outage: true, Retryable: true, RetryAfter: 24 * time.Hour},
		"HTTP 503":             {Code: failure.Network, Outage: true, Retryable: true},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			i := newInstance(t, srv)
			var down atomic.Bool
			i.source.fetch = fetchFailsFor(&fails, func(url string) bool { return strings.Contains(url, "bad") || down.Load() })
			i.work(t, rarely)
			hostile := func(owner string) {
				for n := range 20 {
					i.submit(t, contracts.ImportJob{JobID: fmt.Sprint(owner, n), OwnerID: owner, URL: fmt.Sprintf("https://short.test/bad-%s-%d", owner, n)})
				}
			}
			good, began := 0, time.Now()
			visit := func() time.Duration {
				good++
				id, began := fmt.Sprint("good-", good), time.Now()
				i.submit(t, contracts.ImportJob{JobID: id, OwnerID: fmt.Sprint("ada", good%3), URL: "https://short.test/" + id})
				i.ready(t, id)
				return time.Since(began)
			}
			hostile("mallory")
			for time.Since(began) < 30*time.Minute {
				if time.Since(began) > 10*time.Minute && good < 200 {
					good = 200
					hostile("eve")
				}
				took := visit()
				check.That(t, took < firstPause, "job %d took %s", good, took)
				pauseFor(t.Context(), 20*time.Second)
			}
			down.Store(true)
			pauseFor(t.Context(), probeTime)
			before := i.source.total()
			for n := range 20 {
				owner := fmt.Sprint("ida", n)
				i.submit(t, contracts.ImportJob{JobID: owner, OwnerID: owner, URL: "https://short.test/" + owner})
			}
			pauseFor(t.Context(), 30*time.Minute)
			calls := i.source.total() - before
			check.That(t, calls >= 2 && calls <= 60, "%d calls of 60 jobs while the site works for nobody", calls)
			down.Store(false)
			for n := range 20 {
				i.ready(t, fmt.Sprint("ida", n))
			}
		})
	}
}

// A job whose page alone fails, with HTTP 500 or while the site works for others, fails after minutes, however many such jobs there are.
func TestAPageThatAlwaysFailsFailsSoon(t *testing.T) {
	for name, c := range map[string]struct {
		fails  source.Error
		owners []string // of jobs that fail
		good   bool     // the site works for another owner
	}{
		"HTTP 500":                {source.Error{Page: true}, []string{"ada"}, false},
		"HTTP 500, beside others": {source.Error{Page: true}, []string{"ada", "bob"}, true},
		"HTTP 500, of one owner":  {source.Error{Page: true}, []string{"ada", "ada", "ada"}, false},
		"HTTP 500, of two owners": {source.Error{Page: true}, []string{"ada", "eve"}, false},
		"HTTP 503":                {source.Error{Outage: true}, []string{"ada"}, true},
		"Retry-After":             {source.Error{Outage: true, RetryAfter: time.Minute}, []string{"ada"}, true},
	} {
		natstest.RunBubble(t, name, func(t *testing.T, srv *natsrun.Server) {
			i := newInstance(t, srv)
			c.fails.Code, c.fails.Retryable = failure.Network, true
			i.source.fetch = fetchFailsFor(&c.fails, func(url string) bool { return strings.Contains(url, "bad") })
			i.work(t, rarely)
			submit := func(id, owner string) {
				i.submit(t, contracts.ImportJob{JobID: id, OwnerID: owner, URL: "https://short.test/" + id})
			}
			for n, owner := range c.owners {
				submit(fmt.Sprint("bad", n), owner)
			}
			for n := range 8 {
				pauseFor(t.Context(), 2*time.Minute)
				if c.good {
					submit(fmt.Sprint("good", n), "bob")
				}
				if n > 0 && c.good { // the one before has had two minutes
					i.ready(t, fmt.Sprint("good", n-1))
				}
			}
			for n := range c.owners {
				j := check.Must(i.Get(t.Context(), fmt.Sprint("bad", n)))(t)
				check.That(t, j.Status == contracts.ImportFailed && j.Retryable && j.Code == failure.Network, "after 16 minutes it is %+v", j)
			}
		})
	}
}

// soon is how long after a crash, when everything is up again, a job is READY that nothing far away puts off, with default settings.
const soon = 30 * time.Second

// Each message that an importer sends in the life of a job meets with each mishap, one message of each job. As soon as that is
// promised the job is READY. Settings are the defaults.
func TestAJobIsReadySoonAfterAnyMessageIsLost(t *testing.T) {
	for _, mishap := range natstest.Mishaps() {
		natstest.RunBubble(t, mishap.String(), func(t *testing.T, srv *natsrun.Server) {
			client := newInstance(t, srv) // has a separate connection, and works nothing
			wire := natstest.NewWire(t, srv, mishap)
			start := func() {
				i := newInstanceOn(t, srv, wire.Connect())
				i.cutOff = mishap.Dies
				stop, nc := i.work(t), i.js.Conn()
				wire.Stops(func() {
					nc.Close()
					stop()
				})
			}
			start()
			longest, jobs := time.Duration(0), 0
			for struck := true; struck; jobs++ {
				id := fmt.Sprint("job-", jobs)
				wire.Aim(jobs + 1)
				client.submit(t, job(id, fmt.Sprint("v", jobs)))
				var took time.Duration
				took, struck = wire.Until(soon, func() string { return client.unfinished(t, id) }, start)
				longest = max(longest, took)
			}
			t.Logf("%d messages; READY after %s at most", jobs-1, longest)
			check.That(t, jobs >= 20, "%d messages are too few to be all", jobs-1)
		})
	}
}

// unfinished describes the state of a job that is not done, "" for one that is. For a server that is away it
// returns its error.
func (i *instance) unfinished(t *testing.T, id string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	j, err := i.Get(ctx, id)
	if err != nil {
		return err.Error()
	}
	stream, err := i.js.Stream(ctx, contracts.StreamImportJobs)
	if err != nil {
		return err.Error()
	}
	if left := stream.CachedInfo().State.Msgs; left > 0 || j.Status != contracts.ImportReady {
		return fmt.Sprintf("%d messages are in the stream, %+v", left, j)
	}
	return ""
}
