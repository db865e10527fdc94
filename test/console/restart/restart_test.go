// Package restart_test kills consoles, and in the proof servers, while dead letters are replayed.
package restart_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/jsapi"
	"github.com/expediter-io/expediter/internal/provision"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

var role = crash.Role[string]{Name: "console", Run: serve}

func TestMain(m *testing.M) { crash.Main(m, 2, role) }

// patient are the options of connections that outlast faults of servers.
var patient = []nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond), nats.RetryOnFailedConnect(true)}

// serve is a console over the servers at these URLs. It prints its own.
func serve(ctx context.Context, servers string) error {
	nc, err := nats.Connect(servers, patient...)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	c, err := console.New(console.Config{
		Accounts: []console.Account{{JetStream: js}}, Audit: audit.New(audit.Config{JetStream: js, Logger: logger, Source: "console"}), Conn: nc,
		Logger: logger,
	})
	if err != nil {
		return err
	}
	web := httptest.NewServer(c)
	defer web.Close()
	fmt.Println(web.URL) //nolint:forbidigo // its parent reads it
	return c.Run(ctx)
}

// Although consoles are killed while they replay, every dead letter is replayed once. With -long there are a million.
func TestReplaySurvivesTheConsole(t *testing.T) {
	t.Parallel()
	deadLetters, rate := 500, "300"
	if crash.Long() {
		deadLetters, rate = 1_000_000, "5000"
	}
	s := newSite(t, crash.OneServer(t))
	more := func() bool { return s.resumed < 2 }
	result := s.prove(crash.Random(t)(0), deadLetters, rate, time.Now().Add(crash.Patience), more, s.group.Faults(time.Second)[0])
	t.Logf("%d effects, faults %v, take-overs %v, resumed %d times", result.Wanted, result.Faults, result.TakeOvers, s.resumed)
	check.ErrorIs(t, result.Err(), nil)
	check.That(t, s.resumed >= 2, "%d replays were resumed after %v", s.resumed, result.Faults)
}

func TestProof(t *testing.T) {
	crash.Proof(t, "replays", func(t *testing.T, on *crash.Servers, r *rand.Rand, until time.Time) crash.Result {
		t.Helper()
		s := newSite(t, on)
		faults := on.Faults(s.log, 2*time.Second, contracts.StreamDead, contracts.StreamImportJobs)
		more := func() bool { return time.Now().Before(until) }
		return s.prove(r, 500, "300", until, more, slices.Concat(faults, s.group.Faults(2 * time.Second)[:2])...)
	})
}

// site has dead letters, and a console that is replaced when it is killed.
type site struct {
	*testing.T

	js      jetstream.JetStream
	log     *crash.Log
	group   *crash.Group
	replays string // the console that began the last replay, "" before the first one of a batch
	resumed int    // replays of which another console said how far they had come

	mu        sync.Mutex
	name, url string // of the console that runs now
}

func newSite(t *testing.T, on *crash.Servers) *site {
	t.Helper()
	s := &site{T: t, log: crash.NewLog(t)}
	_, s.js = natstest.ConnectURL(t, on.URL, patient...)
	check.OK(t, natstest.UntilAnswered(t, func(ctx context.Context) error {
		lock := contracts.AssetOptions{Replicas: on.Replicas, Services: []string{contracts.ServiceLock}} // for the audit
		err := check.Err(provision.Apply(ctx, s.js, contracts.Streams(lock), provision.Options{}))
		for _, cfg := range []jetstream.StreamConfig{
			{Name: contracts.StreamDead, Subjects: []string{contracts.DeadSubjects}, AllowDirect: true, Duplicates: time.Hour, MaxAge: 24 * time.Hour},
			{Name: contracts.StreamImportJobs, Subjects: []string{contracts.ImportJobsSubjects}, Retention: jetstream.WorkQueuePolicy},
		} {
			cfg.Replicas = on.Replicas
			if err == nil {
				err = check.Err(s.js.CreateOrUpdateStream(ctx, cfg))
			}
		}
		return err
	}))
	s.group = crash.NewGroup(t, s.log, on.URL, 1, func(name, servers string) *crash.Process {
		p := role.Start(t, servers)
		at := p.Line()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.name, s.url = name, at
		return p
	})
	return s
}

// prove stores and replays dead letters, a number of them at a time, while there are to be more, and injects faults in the meantime, until
// a time at the longest. Then it judges the jobs that came of the dead letters.
func (s *site) prove(
	r *rand.Rand, deadLetters int, rate string, until time.Time, more func() bool, faults ...crash.Fault,
) crash.Result {
	s.Helper()
	ctx, cancel := context.WithDeadline(s.Context(), until)
	defer cancel()
	injected := make(chan error, 1)
	go func() { injected <- crash.Inject(ctx, r, time.Second, faults...) }()
	stored := 0
	for batch := 0; batch == 0 || more() && ctx.Err() == nil; batch++ {
		s.putDeadLetters(stored, deadLetters)
		stored += deadLetters
		s.replayAll(fmt.Sprint("replay-", batch), rate)
	}
	cancel()
	check.OK(s, <-injected)
	s.replayAll("last", rate) // there may be some that had no replay when the last fault of a server happened
	s.group.Stop()
	s.readJobs()
	result := check.Must(s.log.Judge(func(yield func(string) bool) {
		for n := range stored {
			if !yield(consoletest.DeadLetter(n).ID) {
				return
			}
		}
	}, nil))(s)
	n := 0
	for _, count := range result.Faults {
		n += count
	}
	var left uint64 // a console may leave the records of up to 16 that it had just removed
	check.OK(s, natstest.UntilAnswered(s, func(ctx context.Context) error {
		dead, err := s.js.Stream(ctx, contracts.StreamDead)
		if err == nil {
			left = dead.CachedInfo().State.Msgs
		}
		return err
	}))
	check.That(s, left <= uint64(16*n), "%d messages are left in DEAD after %d faults", left, n)
	return result
}

// putDeadLetters stores dead letters from a number on.
func (s *site) putDeadLetters(from, n int) {
	s.Helper()
	var all sync.WaitGroup
	for first := range 16 {
		all.Go(func() {
			for i := from + first; i < from+n; i += 16 {
				letter := consoletest.DeadLetter(i)
				check.ErrorIs(s, jsapi.Retry(s.Context(), crash.Patience, func(ctx context.Context) error {
					return check.Err(worker.PublishDeadLetter(ctx, s.js, "dead", letter))
				}), nil)
			}
		})
	}
	all.Wait()
}

// client follows no redirect, and gives up on a console that is frozen.
var client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, Timeout: 10 * time.Second,
	Transport: &http.Transport{DisableKeepAlives: true},
}

// do returns the answer of a console, 0 for none.
func (s *site) do(method, at string, form url.Values) (status int, page string) {
	s.Helper()
	r := check.Must(http.NewRequestWithContext(s.Context(), method, at, strings.NewReader(form.Encode())))(s)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := client.Do(r)
	if err != nil {
		return 0, ""
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, ""
	}
	return answer.StatusCode, string(body)
}

// replayAll replays until nothing is left, on the console of the moment.
func (s *site) replayAll(id, rate string) {
	s.Helper()
	s.replays = ""
	for end := time.Now().Add(10 * time.Minute); !s.beginReplay(id, rate); retry.Sleep(s.Context(), 50*time.Millisecond) {
		check.Require(s, time.Now().Before(end), "a replay does not end")
	}
}

var question = regexp.MustCompile(`Type ([\d,]+) to replay`)

// beginReplay begins a replay of what is left, unless one is under way, and reports whether nothing is left.
func (s *site) beginReplay(id, rate string) bool {
	s.Helper()
	s.mu.Lock()
	name, at := s.name, s.url
	s.mu.Unlock()
	status, page := s.do(http.MethodGet, at+"/dead/replays", nil)
	if status != http.StatusOK || strings.Contains(page, "Stop</button>") {
		return false
	}
	if s.replays != "" && s.replays != name {
		_, page := s.do(http.MethodGet, at+"/dead", nil)
		if strings.Contains(page, "A replay of") && strings.Contains(page, "for what is left") {
			s.resumed++
		}
	}
	form := url.Values{"rate": {rate}}
	status, page = s.do(http.MethodPost, at+"/dead/replay", form)
	if asked := question.FindStringSubmatch(page); asked != nil {
		form.Set("typed", asked[1])
		status, page = s.do(http.MethodPost, at+"/dead/replay", form)
	}
	over := status == http.StatusConflict && strings.Contains(page, "No dead letter matches")
	if over || status == http.StatusSeeOther {
		s.replays = name
		log := check.Must(crash.OpenLog(s.log.Path(), name))(s)
		defer log.Close()
		check.OK(s, log.Write(map[bool]crash.Kind{false: crash.Started, true: crash.Recorded}[over], id))
	}
	return over
}

// readJobs writes the jobs that came of dead letters into the log: whatever comes of the same letter later is a repetition.
func (s *site) readJobs() {
	s.Helper()
	for next := uint64(1); ; {
		var job *jetstream.RawStreamMsg
		err := natstest.UntilAnswered(s, func(ctx context.Context) error {
			stream, err := s.js.Stream(ctx, contracts.StreamImportJobs)
			if err == nil {
				job, err = stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(contracts.ImportJobsSubjects))
			}
			return err
		})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return
		}
		check.OK(s, err)
		id := job.Header.Get(worker.HeaderID)
		check.OK(s, errors.Join(s.log.Write(crash.Effect, id), s.log.Write(crash.Recorded, id)))
		next = job.Sequence + 1
	}
}
