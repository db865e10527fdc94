// Package restart_test kills consoles while they replay dead letters.
package restart_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/provision"
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

// serve is a console over the server at a URL. It prints its own.
func serve(ctx context.Context, server string) error {
	nc, err := nats.Connect(server)
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
	total, kills, rate := 1500, 2, 300
	if crash.Long() {
		total, rate = 1_000_000, 5000
	}
	random := crash.Random(t)(0)
	srv := crash.StartServer(t)
	_, js := natstest.ConnectURL(t, srv.URL)
	check.OK(t,
		check.Err(provision.Apply(t.Context(), js, contracts.Streams(contracts.AssetOptions{Services: []string{contracts.ServiceLock}}),
			provision.Options{}))) // for the audit
	for _, cfg := range []jetstream.StreamConfig{
		{Name: contracts.StreamDead, Subjects: []string{contracts.DeadSubjects}, AllowDirect: true, Duplicates: time.Hour, MaxAge: 24 * time.Hour},
		{Name: contracts.StreamImportJobs, Subjects: []string{contracts.ImportJobsSubjects}, Retention: jetstream.WorkQueuePolicy},
	} {
		check.OK(t, check.Err(js.CreateStream(t.Context(), cfg)))
	}
	began := time.Now()
	putDeadLetters(t, js, total)
	t.Logf("%d dead letters stored in %s", total, time.Since(began))
	form := url.Values{"rate": {strconv.Itoa(rate)}}
	for life, done := 0, false; !done; life++ {
		p := role.Start(t, srv.URL)
		s := &site{T: t, url: p.Line()}
		if life > 0 {
			check.Contains(t, s.get("/dead"), "A replay of", "for what is left")
		}
		began = time.Now()
		s.begin(form)
		until := 1 << 62
		if life < kills {
			until = 1 + random.IntN(total/4) // progress is reported each second
		}
		over, failed := s.follow(until) // failed if the server was silent for too long: the next console resumes it
		done = life >= kills && failed == ""
		t.Logf("console %d: %d dead letters in %s, peak memory %s. %s", life+1, over, time.Since(began), peak(t, p.PID()), failed)
		check.Require(t, life < 10*kills, "it does not end")
		p.Kill()
	}
	dead := check.Must(js.Stream(t.Context(), contracts.StreamDead))(t)
	left := dead.CachedInfo().State.Msgs // a killed console may leave the records of up to 16 that it had just removed
	check.That(t, left <= uint64(16*kills), "%d messages are left in DEAD", left)
	times := map[string]int{}
	jobs, err := js.CreateConsumer(t.Context(), contracts.StreamImportJobs, jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Hour, MaxAckPending: -1,
	})
	check.OK(t, err)
	for pending := jobs.CachedInfo().NumPending; pending > 0; {
		batch := check.Must(jobs.Fetch(int(min(pending, 5000)), jetstream.FetchMaxWait(crash.Patience)))(t)
		for msg := range batch.Messages() {
			times[msg.Headers().Get(worker.HeaderID)]++
			meta := check.Must(msg.Metadata())(t)
			pending = meta.NumPending
		}
		check.OK(t, batch.Error())
	}
	double := 0
	for _, n := range times {
		double += n - 1
	}
	t.Logf("%d jobs, %d lost, %d double, %d records left", len(times), total-len(times), double, left)
	check.That(t, len(times) == total && double == 0, "%d dead letters became %d jobs, %d of them double", total, len(times), double)
}

// putDeadLetters stores dead letters.
func putDeadLetters(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	var all sync.WaitGroup
	for first := range 16 {
		all.Go(func() {
			for i := first; i < n; i += 16 {
				if _, err := worker.PublishDeadLetter(t.Context(), js, "dead", consoletest.DeadLetter(i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// site is a console in another process.
type site struct {
	*testing.T

	url string
}

// get reads a page, and reads it again when it says that NATS did not answer in time.
func (s *site) get(path string) string {
	s.Helper()
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(s.request(http.MethodGet, path, nil))
	check.OK(s.T, err)
	defer answer.Body.Close()
	body := check.Must(io.ReadAll(answer.Body))(s.T)
	if answer.StatusCode == http.StatusServiceUnavailable && s.Context().Err() == nil {
		s.Logf("%s is read again", path)
		return s.get(path)
	}
	check.Require(s.T, answer.StatusCode == http.StatusOK, "%s answers %d: %s", path, answer.StatusCode, body)
	return string(body)
}

func (s *site) request(method, path string, form url.Values) *http.Request {
	s.Helper()
	r := check.Must(http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(form.Encode())))(s.T)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r
}

func (s *site) begin(form url.Values) {
	s.Helper()
	form.Del("typed")
	post := func() (*http.Response, []byte) {
		answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(s.request(http.MethodPost, "/dead/replay", form))
		check.OK(s.T, err)
		defer answer.Body.Close()
		return answer, check.Must(io.ReadAll(answer.Body))(s.T)
	}
	_, question := post()
	form.Set("typed", strings.TrimPrefix(string(regexp.MustCompile(`Type \d+`).Find(question)), "Type "))
	answer, _ := post()
	check.Require(s.T, answer.StatusCode == http.StatusSeeOther, "the replay is answered with %d", answer.StatusCode)
}

var (
	failure  = regexp.MustCompile(`Failed</strong>(?s:.{0,300})`)
	progress = regexp.MustCompile(`([\d,]+)(?: of [\d,]+)? dead letters`)
)

// follow follows a replay as a page does, until it has ended or processed so many dead letters, and returns how many it has, and
// why it failed.
func (s *site) follow(until int) (over int, failed string) {
	s.Helper()
	stream, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(s.request(http.MethodGet, "/live?topic=replays", nil))
	check.OK(s.T, err)
	defer stream.Body.Close()
	for lines := bufio.NewScanner(stream.Body); ; {
		page := s.get("/dead/replays")
		if found := progress.FindStringSubmatch(page); found != nil {
			over, err = strconv.Atoi(strings.ReplaceAll(found[1], ",", ""))
			check.OK(s.T, err)
		}
		if over >= until || !strings.Contains(page, "Stop</button>") {
			return over, failure.FindString(page)
		}
		for more := true; more && lines.Scan(); { // to the next piece of news
			more = !strings.HasPrefix(lines.Text(), "data:") && !strings.HasPrefix(lines.Text(), "event:")
		}
		check.Require(s.T, lines.Err() == nil, "the stream of events has ended: %v", lines.Err())
	}
}

// peak is the most memory that a process has held.
func peak(t *testing.T, pid int) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "unknown"
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	line, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(line)
}
