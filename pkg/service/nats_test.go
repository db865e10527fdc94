package service

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/access"
)

// silent is a way to servers of which each greets, and says nothing more.
type silent struct{ dialled chan time.Time }

func (s *silent) Dial(string, string) (net.Conn, error) {
	near, far := net.Pipe()
	s.dialled <- time.Now()
	go func() {
		defer far.Close()
		lines := bufio.NewReader(far)
		_, err := io.WriteString(far, `INFO {"server_id":"s","version":"2.15.2","max_payload":1048576}`+"\r\n")
		for greeted := false; err == nil; {
			var line string
			line, err = lines.ReadString('\n')
			if err == nil && !greeted && strings.HasPrefix(line, "PING") {
				greeted = true
				_, err = io.WriteString(far, "PONG\r\n")
			}
		}
	}()
	return near, nil
}

// A connection on which nothing arrives any more, as when the server's machine is gone, is given up within seconds, and the service
// connects anew.
func TestASilentConnectionIsGivenUp(t *testing.T) {
	// nats.go keeps timers in a pool of the process, and those of a bubble are of no use elsewhere. A pool is empty after two
	// collections.
	runtime.GC()
	runtime.GC()
	defer runtime.GC()
	defer runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		options := check.Must(BaseConfig{Logger: slog.New(slog.DiscardHandler)}.natsOptions("test"))(t)
		server := &silent{dialled: make(chan time.Time, 1)}
		nc := check.Must(nats.Connect(nats.DefaultURL, append(options, nats.SetCustomDialer(server))...))(t)
		defer nc.Close()
		first := <-server.dialled
		took := (<-server.dialled).Sub(first)
		check.That(t, took <= 12*time.Second, "it took %s", took)
	})
}

func TestHealthCheckAsksOverTLSAndSaysWhatIsNotReady(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		w.Write([]byte("store: no leader"))
	}))
	check.Is(t, AskReady(t.Context(), server.URL+"/readyz"), nil)
	status = http.StatusServiceUnavailable
	check.Contains(t, AskReady(t.Context(), server.URL+"/readyz"), "/readyz: 503 Service Unavailable: store")
	server.Close()
	check.Failsf(t, AskReady(t.Context(), server.URL), "a service that is not there is ready")
}

// queue is a stream whose worker has been given the jobs up to a sequence.
type queue struct {
	*Backlog
	*testing.T

	asked       int
	err         error
	given, last uint64
}

func newQueue(t *testing.T, most int) *queue {
	t.Helper()
	q := &queue{T: t}
	q.Backlog = newBacklog("shop", most, func(context.Context, string) (uint64, uint64, error) {
		q.asked++
		return q.given, q.last - q.given, q.err
	})
	return q
}

// submit stores n jobs of a request, and reports whether that was admitted.
func (q *queue) submit(ctx context.Context, n int) bool {
	release, err := q.Admit(ctx, n)
	if err != nil {
		if want := "too many waiting jobs: a caller may have 3 (SHOP_WAITING)"; err.Error() != want || common(err).Code != "QUOTA_WAITING" {
			q.Errorf("%v, want %s", err, want)
		}
		return false
	}
	defer release()
	for range n {
		q.last++
		q.Add(ctx, "SHOP", q.last)
	}
	return true
}

// callersOf returns the contexts of requests with keys of those names.
func callersOf(t *testing.T, names ...string) (all []context.Context) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys.json")
	secrets := make([]string, len(names))
	for i, name := range names {
		secrets[i] = check.Must(access.Add(file, access.Key{Name: name, Scopes: []access.Scope{access.Publish}}))(t)
	}
	keys := check.Must(access.Open("shop", file, slog.New(slog.DiscardHandler)))(t)
	for _, secret := range secrets {
		r := httptest.NewRequest(http.MethodPost, "/v1/items", http.NoBody)
		r.Header.Set("Authorization", "Bearer "+secret)
		admitted := check.Must(access.NewGuard(keys, nil).Admit(r, access.All(access.Publish)))(t)
		all = append(all, admitted.Context())
	}
	return all
}

func elapse(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // inside a bubble only

func TestABacklogIsOfOneCaller(t *testing.T) {
	t.Parallel()
	both := callersOf(t, "ada", "bob")
	synctest.Test(t, func(t *testing.T) {
		q, ada, bob := newQueue(t, 3), both[0], both[1]
		steps := []struct {
			name   string
			before func()
			by     context.Context //nolint:containedctx // of a request
			jobs   int
			want   bool
		}{
			{"below the bound", func() {}, ada, 2, true},
			{"over it by one request", func() {}, ada, 4, true},
			{"at the bound", func() {}, ada, 1, false},
			{"another caller", func() {}, bob, 1, true},
			{"a caller without a name", func() {}, t.Context(), 9, true},
			{"a worker was given some, a moment after the question", func() { q.given = 4 }, ada, 1, false},
			{"a second later", func() { elapse(backlogEvery) }, ada, 1, true},
			{"again at the bound", func() {}, ada, 1, false},
			{"no answer", func() { elapse(backlogEvery); q.given, q.err = q.last, errors.New("timeout") }, ada, 1, false},
			{"an answer", func() { elapse(backlogEvery); q.err = nil }, ada, 3, true},
			{"a stream made anew", func() { elapse(backlogEvery); q.given, q.last = 0, 1 }, ada, 1, false},
			{"which it was a second ago", func() { elapse(backlogEvery) }, ada, 2, true},
		}
		for _, s := range steps {
			s.before()
			check.Same(t, s.name, q.submit(s.by, s.jobs), s.want)
		}
	})
}

// Room that is reserved counts until it is released, and the consumer is asked once a second at most.
func TestABacklogCountsTheJobsUnderWay(t *testing.T) {
	t.Parallel()
	ada := callersOf(t, "ada")[0]
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 3)
		q.submit(ada, 1)
		release := check.Must(q.Admit(ada, 2))(t)
		for range 100 {
			check.Require(t, !q.submit(ada, 1), "admitted beside the requests under way")
		}
		release()
		check.That(t, q.submit(ada, 1) && q.asked == 1 && len(q.admitted) == 0,
			"not admitted, or asked %d times, or %v stay reserved", q.asked, q.admitted)
	})
}

// A job that was stored a moment ago waits, though the consumer does not count it yet.
func TestABacklogCountsBeforeTheConsumer(t *testing.T) {
	t.Parallel()
	b := newBacklog("shop", 2, func(context.Context, string) (uint64, uint64, error) { return 0, 1, nil })
	ada := callersOf(t, "ada")[0]
	b.Add(ada, "SHOP", 1)
	b.Add(ada, "SHOP", 2)
	check.Failsf(t, check.Err(b.Admit(ada, 1)), "two jobs wait, and another is admitted")
}

// Each partition of a stream has sequences of its own, and a consumer that is asked.
func TestABacklogCountsAllPartitions(t *testing.T) {
	t.Parallel()
	given := map[string]uint64{"SHOP": 100, "SHOP-1": 7}
	b := newBacklog("shop", 3, func(_ context.Context, stream string) (uint64, uint64, error) { return given[stream], 10, nil })
	ada := callersOf(t, "ada")[0]
	for stream, sequences := range map[string][]uint64{"SHOP": {99, 101}, "SHOP-1": {6, 8}} {
		for _, sequence := range sequences {
			b.Add(ada, stream, sequence)
		}
	}
	release, err := b.Admit(ada, 1) // of four two wait
	check.OK(t, err)
	b.Add(ada, "SHOP-2", 1)
	release()
	check.Failsf(t, check.Err(b.Admit(ada, 1)), "a job in each of three partitions waits, and another is admitted")
}

// A process does not remember the jobs of callers that never reach their bounds for longer than these wait.
func TestABacklogForgetsWhatIsDone(t *testing.T) {
	t.Parallel()
	ada := callersOf(t, "ada")[0]
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 1<<30)
		for range 10 * maxBacklog {
			q.submit(ada, 1)
			q.given = q.last
			if q.last%maxBacklog == 0 {
				elapse(backlogEvery)
			}
		}
		check.That(t, len(q.stored["ada"]) <= maxBacklog, "%d are remembered", len(q.stored["ada"]))
	})
}
