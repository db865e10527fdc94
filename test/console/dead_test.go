package console_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/operate"
	"github.com/expediter-io/expediter/internal/retry"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// waitForPage waits until a page says the words, and returns it. Each look is a request.
func waitForPage(t *testing.T, s *consoletest.Site, path string, words ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		page := s.Get(path, http.StatusOK)
		missing := ""
		for _, w := range words {
			if !strings.Contains(page, w) {
				missing = w
			}
		}
		if missing == "" {
			return page
		}
		check.Require(t, ctx.Err() == nil, "%s does not say %q: %s", path, missing, page)
		retry.Sleep(ctx, 20*time.Millisecond)
	}
}

// records are the latest records of the audit, the latest first.
func records(t *testing.T, s *consoletest.Site) []audit.Record {
	t.Helper()
	return check.Must(audit.List(t.Context(), s.JetStream, 100))(t)
}

func putSixDeadLetters(s *consoletest.Site) {
	for n := range 5 {
		s.PutDeadLetters(consoletest.DeadLetter(n))
	}
	s.PutDeadLetters(consoletest.DeadLetter(5, func(l *worker.DeadLetter) {
		l.Signature, l.Subject, l.Error = "no 'such' <user>", "jobs.import.low.j5", "no 'such' <user>"
	}))
}

func TestDeadLettersAreShownByGroups(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	check.Contains(t, s.Get("/dead", http.StatusOK), "No dead letters.")
	putSixDeadLetters(s)
	page := s.Get("/dead", http.StatusOK)
	check.Contains(t, page, "6 dead letters in 2 groups", "extract: status #", "jobs.import.web.&gt;", "no &#39;such&#39; &lt;user&gt;",
		"exhausted",
		"all that can match were searched", "expediter dead groups", "signature=extract%3A&#43;status&#43;%23")
	check.Contains(t, s.Get("/dead?by=subject", http.StatusOK), "6 dead letters in 1 group", "jobs.import.&gt;")
	check.Contains(t, s.Get("/dead?by=stream", http.StatusOK), "6 dead letters in 1 group", "IMPORT_JOBS")
	s.PutDeadLetters(consoletest.DeadLetter(7, func(l *worker.DeadLetter) { l.Worker = "vm-4" }))
	check.Contains(t, s.Get("/dead?by=worker", http.StatusOK), "7 dead letters in 2 groups",
		`href="/dead?job-stream=IMPORT_JOBS&amp;kind=failed&amp;worker=vm-4"`)
	alone := s.Get("/dead?by=worker&worker=vm-4", http.StatusOK)
	check.Contains(t, alone, "1 dead letter", "Replay it", "expediter dead groups --worker vm-4 --by worker", `name="worker" value="vm-4"`)
	s.Post("/dead/one/discard", url.Values{"seq": {"7"}, "typed": {"1"}}, http.StatusSeeOther)
	check.Contains(t, s.Get("/dead?signature=x", http.StatusOK), "No dead letter matches")
	check.Contains(t, s.Get("/dead?until=7d", http.StatusOK), "No dead letter matches")
	group := s.Get("/dead?signature=extract:+status+%23&since=24h", http.StatusOK)
	check.Contains(t, group, "5 dead letters in 1 group", "The newest of them: ", "dead letter 5", "import-4", "vm-3, version v0.3.1",
		"5 of 5 attempts",
		"Replay 5", "Discard 5", "--signature &#39;extract: status #&#39; --since 20", "traceparent: 00-1", "https://host/p4")
	check.That(t, !strings.Contains(strings.Split(group, "<textarea")[0], "hunter2"), "a secret is shown: %s", group)
	for path, want := range map[string]string{
		"/dead?since=yesterday": "want how long ago", "/dead?subject=a..b": "a token between dots is empty", "/dead/one?seq=x": "is not the number of a dead letter",
	} {
		check.Contains(t, s.Get(path, http.StatusBadRequest), want)
	}
	s.Get("/dead/one?seq=77", http.StatusNotFound)
	s.Get("/dead?account=NONE", http.StatusNotFound)
	check.OK(t, s.JetStream.DeleteStream(t.Context(), contracts.StreamDead))
	check.Contains(t, s.Get("/dead", http.StatusOK), "There is no stream DEAD")
}

func TestAGroupIsReplayed(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	putSixDeadLetters(s)
	// Of a stream that is no work queue, and of none.
	s.PutDeadLetters(consoletest.DeadLetter(6, func(l *worker.DeadLetter) { l.Stream = "NONE" }))
	const group = "/dead?signature=extract:+status+%23"
	page := s.Get(group, http.StatusOK)
	link := html.UnescapeString(regexp.MustCompile(`hx-get="([^"]*)"`).FindStringSubmatch(page)[1])
	check.Contains(t, s.Get(link, http.StatusOK), "5 of 6", "1 refused", "dead letter 7: ", "Nothing was changed", "expediter dead replay")
	check.Equal(t, s.Messages(contracts.StreamDead), 7, "dead letters")

	s.PutDeadLetters(consoletest.DeadLetter(9)) // after the page was made, so the form does not select it
	values := s.Form(page, "/dead/replay", "rate", "1000")
	_, question := s.Post("/dead/replay", values, http.StatusOK)
	check.Contains(t, question, "Replay 6 dead letters?", "Type 6 to replay", "expediter dead replay", "--until", "--rate 1000 --yes")
	check.Equal(t, s.Messages(contracts.StreamDead), 8, "dead letters")
	to, _ := s.Post("/dead/replay", s.Form(question, "/dead/replay", "typed", "6"), http.StatusSeeOther)
	check.Equal(t, to, "/dead/replays", "location")
	waitForPage(t, s, to, "6 of 6 dead letters, 1 refused", "Done", "dead letter 7:")
	check.Equal(t, s.Messages(contracts.StreamDead), 3, "dead letters")
	check.Equal(t, s.Messages(contracts.StreamImportJobs), 5, "jobs")
	r := records(t, s)[0]
	check.That(t, r.Action == "replay" && r.Count == 5 && r.Outcome == audit.Done && strings.Contains(r.Target, "sha256") &&
		!strings.Contains(r.Target, "status"), "%+v", r)
	for _, bad := range []string{"", "0", "-1", "x", "1e9"} {
		_, page := s.Post("/dead/replay", url.Values{"rate": {bad}}, http.StatusBadRequest)
		check.Contains(t, page, "The rate is", "Nothing was done")
	}
	s.Post("/dead/replay", url.Values{"rate": {"1"}, "signature": {"none"}}, http.StatusConflict)

	s.PutDeadLetters(consoletest.DeadLetter(10), consoletest.DeadLetter(11, func(l *worker.DeadLetter) { l.Stream, l.Subject = contracts.StreamEvents, "events.USER.HELLO" }))
	_, question = s.Post("/dead/replay", url.Values{"rate": {"1"}}, http.StatusOK)
	for _, page := range []string{question, s.Get("/dead/rehearsal", http.StatusOK)} {
		check.Contains(t, page, "EVENTS is not a work queue: every consumer of it gets the jobs.")
		check.That(t, !strings.Contains(page, "IMPORT_JOBS is not"), "%s", page)
	}
}

// A replay that is stopped, or whose console ends, is shown until its dead letters are gone, and can be resumed.
func TestAReplayIsStoppedAndGoesOn(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	putSixDeadLetters(s)
	values := s.Form(s.Get("/dead?signature=extract:+status+%23", http.StatusOK), "/dead/replay", "rate", "0.001", "typed", "5")
	s.Post("/dead/replay", values, http.StatusSeeOther)
	page := waitForPage(t, s, "/dead/replays", "1 of 5 dead letters", "Running, at 0.001 a second")
	check.Contains(t, s.Get("/dead", http.StatusOK), "A replay is running")
	values.Set("typed", "4")
	_, refused := s.Post("/dead/replay", values, http.StatusConflict)
	check.Contains(t, refused, "is running already")
	s.Post("/dead/stop", s.Form(page, "/dead/stop"), http.StatusSeeOther)
	waitForPage(t, s, "/dead/replays", "Stopped")
	s.Post("/dead/stop", s.Form(page, "/dead/stop"), http.StatusConflict)

	again := consoletest.Serve(t, s.Server, s.Conn, s.JetStream) // which knows nothing but the streams
	page = again.Get("/dead", http.StatusOK)
	check.Contains(t, page, "A replay of anyone began", "did not finish: 1 done", "5 dead letters in 2 groups")
	page = again.Get("/dead?signature=extract:+status+%23", http.StatusOK)
	again.Post("/dead/replay", s.Form(page, "/dead/replay", "rate", "1000", "typed", "4"), http.StatusSeeOther)
	waitForPage(t, again, "/dead/replays", "4 of 4 dead letters", "Done")
	page = again.Get("/dead", http.StatusOK)
	check.That(t, !strings.Contains(page, "did not finish"), "it is still shown: %s", page)
	check.Equal(t, s.Messages(contracts.StreamImportJobs), 5, "jobs")
	check.Equal(t, s.Messages(contracts.StreamDead), 1, "dead letters")
}

// A command's replay is not called interrupted while it runs. When it ends, it replaces a page's failed one of the same filter.
func TestReplaysWithoutAnEnd(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	log := audit.New(audit.Config{JetStream: s.JetStream, Logger: slog.New(slog.DiscardHandler), Source: "cli"})
	replay := func(of operate.DeadLetters, act func() error) {
		_ = log.Do(t.Context(), operate.Replay, of.Target(nil), func(context.Context) (int, error) { return 0, act() })
	}
	const unknown, interrupted = "has no recorded end", "did not finish"
	fail := func() error { return errors.New("away") }
	replay(operate.DeadLetters{}, fail)
	check.Contains(t, s.Get("/dead", http.StatusOK), interrupted)
	replay(operate.DeadLetters{Stream: contracts.StreamDead}, func() error {
		page := s.Get("/dead", http.StatusOK)
		check.That(t, strings.Contains(page, unknown) && !strings.Contains(page, interrupted), "of one that goes on: %s", page)
		return nil
	})
	page := s.Get("/dead", http.StatusOK)
	check.That(t, !strings.Contains(page, unknown) && !strings.Contains(page, interrupted), "of one that is done: %s", page)
	for n := range 7 {
		replay(operate.DeadLetters{Worker: fmt.Sprint("w", n)}, fail)
	}
	check.Equal(t, strings.Count(s.Get("/dead", http.StatusOK), interrupted), 4, "replays that are shown")
}

// A mistyped filter selects nothing, in an address or in a form: it does not select everything.
func TestMistypedFiltersAreRefused(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	putSixDeadLetters(s)
	for path, name := range map[string]string{
		"/?x=1": "x", "/dead?seq=1": "seq", "/dead/rehearsal?sbject=a": "sbject", "/dead/list?by=worker": "by", "/jobs/IMPORT_JOBS?stream=EVENTS": "stream",
		"/jobs/IMPORT_JOBS?subject=a&subject=b": "subject", "/jobs?note=&state=dead": "state", "/audit?user=1": "user", "/notifications?x": "x",
	} {
		check.Contains(t, s.Get(path, http.StatusBadRequest), "&#34;"+name+"&#34;")
	}
	for path, form := range map[string]url.Values{
		"/dead/replay":             {"rate": {"1000"}, "signatur": {"x"}},
		"/dead/discard":            {"snce": {"1h"}, "typed": {"6"}},
		"/jobs/IMPORT_JOBS/cancel": {"last": {"9"}, "sbject": {"x"}, "typed": {"0"}},
	} {
		_, body := s.Post(path, form, http.StatusBadRequest)
		check.Contains(t, body, "Unknown parameter")
	}
	check.Contains(t, s.Get("/dead?", http.StatusOK), "Replay these 6")
}

// With several accounts a page that names none is about the first, an action has to name its own, and a replay that was broken off goes on
// though the audit is of another account.
func TestSeveralAccounts(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	several := func(c *console.Config) {
		c.Accounts = []console.Account{{JetStream: s.JetStream, Name: "FIRST"}, {JetStream: s.JetStream, Name: "SECOND"}}
	}
	s = consoletest.Serve(t, s.Server, s.Conn, s.JetStream, several)
	putSixDeadLetters(s)
	for _, path := range []string{"/", "/jobs", "/jobs/IMPORT_JOBS", "/keys", "/keys/limits", "/schedules", "/workers", "/dead"} {
		s.Get(path, http.StatusOK)
	}
	values := s.Form(s.Get("/dead?signature=extract:+status+%23", http.StatusOK), "/dead/replay", "rate", "0.001", "typed", "5")
	check.That(t, values.Get("account") == "FIRST", "the form is of account %q", values.Get("account"))
	nameless := maps.Clone(values)
	nameless.Del("account")
	_, refused := s.Post("/dead/replay", nameless, http.StatusNotFound)
	check.Contains(t, refused, "There is no account")

	s.Post("/dead/replay", values, http.StatusSeeOther)
	page := waitForPage(t, s, "/dead/replays", "1 of 5 dead letters")
	s.Post("/dead/stop", s.Form(page, "/dead/stop"), http.StatusSeeOther)
	waitForPage(t, s, "/dead/replays", "Stopped")
	again := consoletest.Serve(t, s.Server, s.Conn, s.JetStream, several)
	check.Contains(t, again.Get("/dead", http.StatusOK), "did not finish: 1 done", "5 dead letters in 2 groups")
}

func TestReplaysAreBounded(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	for n := range 5 {
		s.PutDeadLetters(consoletest.DeadLetter(n, func(l *worker.DeadLetter) { l.Signature = fmt.Sprint("kind ", n) }),
			consoletest.DeadLetter(n+10, func(l *worker.DeadLetter) { l.Signature = fmt.Sprint("kind ", n) }))
	}
	for n := range 4 {
		s.Post("/dead/replay", url.Values{"signature": {fmt.Sprint("kind ", n)}, "rate": {"0.001"}, "typed": {"2"}}, http.StatusSeeOther)
	}
	_, page := s.Post("/dead/replay", url.Values{"signature": {"kind 4"}, "rate": {"0.001"}, "typed": {"2"}}, http.StatusConflict)
	check.Contains(t, page, "4 replays are running, which is the limit")
}

func TestDiscardByTheNumber(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	putSixDeadLetters(s)
	page := s.Get("/dead?signature=extract:+status+%23", http.StatusOK)
	for typed, status := range map[string]int{"": http.StatusOK, "6": http.StatusConflict, "all": http.StatusConflict} {
		_, page = s.Post("/dead/discard", s.Form(page, "/dead/discard", "typed", typed), status)
		check.Contains(t, page, "Discard 5 dead letters?", "Type 5 to discard")
		check.That(t, strings.Contains(page, "it is 5 now. Nothing was done.") == (typed != ""), "typed %q: %s", typed, page)
	}
	s.Post("/dead/discard", url.Values{"typed": {"0"}, "signature": {"none"}}, http.StatusConflict)
	check.Equal(t, s.Messages(contracts.StreamDead), 6, "dead letters")
	to, _ := s.Post("/dead/discard", s.Form(page, "/dead/discard", "typed", "5"), http.StatusSeeOther)
	waitForPage(t, s, to, "Discard of", "5 of 5 dead letters", "Done")
	check.Equal(t, s.Messages(contracts.StreamDead), 1, "dead letters")
	check.Equal(t, s.Messages(contracts.StreamImportJobs), 0, "jobs")
	r := records(t, s)[0]
	check.That(t, r.Action == "discard" && r.Count == 5 && r.Outcome == audit.Done, "%+v", r)
}

func TestOneDeadLetter(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	putSixDeadLetters(s)
	lines := s.PutDeadLetters(consoletest.DeadLetter(7, func(l *worker.DeadLetter) { l.Payload = []byte("a\nb <c>") }))
	binary := s.PutDeadLetters(consoletest.DeadLetter(8, func(l *worker.DeadLetter) { l.Payload = []byte{0, 1, 2, 255} }))
	stream := check.Must(s.JetStream.Stream(t.Context(), contracts.StreamImportJobs))(t)
	replay := func(seq uint64, payload, want string) {
		t.Helper()
		page := s.Get(fmt.Sprintf("/dead/one?seq=%d", seq), http.StatusOK)
		values := s.Form(page, "/dead/one/replay")
		if payload != "" {
			values.Set("payload", payload)
		}
		to, _ := s.Post("/dead/one/replay", values, http.StatusSeeOther)
		check.Contains(t, s.Get(to, http.StatusOK), fmt.Sprintf("Dead letter %d was replayed", seq))
		msg := check.Must(stream.GetMsg(t.Context(), uint64(s.Messages(contracts.StreamImportJobs))))(t)
		check.Equal(t, string(msg.Data), want, "payload")
	}
	replay(1, "", `{"url":"https://svc:hunter2@host/p0"}`)
	replay(2, `{"url":"x"}`, `{"url":"x"}`)
	check.Contains(t, s.Get(fmt.Sprintf("/dead/one?seq=%d", lines), http.StatusOK), "b &lt;c&gt;")
	replay(lines, "a\r\nb", "a\nb")
	page := s.Get(fmt.Sprintf("/dead/one?seq=%d", binary), http.StatusOK)
	check.That(t, strings.Contains(page, "00 01 02 ff") && !strings.Contains(page, "<textarea"), "%s", page)

	three := s.Form(s.Get("/dead/one?seq=3", http.StatusOK), "/dead/one/replay", "payload", "{")
	_, body := s.Post("/dead/one/replay", three, http.StatusBadRequest)
	check.Contains(t, body, "is not JSON")
	three.Set("typed", "3")
	s.Post("/dead/one/discard", three, http.StatusConflict)
	three.Set("typed", "1")
	to, _ := s.Post("/dead/one/discard", three, http.StatusSeeOther)
	check.Contains(t, s.Get(to, http.StatusOK), "Dead letter 3 was discarded")
	s.Post("/dead/one/replay", three, http.StatusNotFound)
	nowhere := s.PutDeadLetters(consoletest.DeadLetter(9, func(l *worker.DeadLetter) { l.Stream = "NONE" }))
	_, body = s.Post("/dead/one/replay", url.Values{"seq": {fmt.Sprint(nowhere)}}, http.StatusConflict)
	check.Contains(t, body, "stays")
	all := records(t, s)
	check.That(t, all[0].Outcome == audit.Failed && all[1].Action == "discard" && all[1].Target == `dead letters sequences="3"`, "%+v", all)
}

// Dead letters are listed, 50 on a page, and the selected ones replayed or discarded. Several at once need their number typed.
func TestSelectedDeadLetters(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	for n := range 52 {
		s.PutDeadLetters(consoletest.DeadLetter(n))
	}
	s.PutDeadLetters(consoletest.DeadLetter(60, func(l *worker.DeadLetter) { l.Signature = "other" }))
	group := s.Get("/dead?signature=extract:+status+%23", http.StatusOK)
	link := html.UnescapeString(regexp.MustCompile(`href="(/dead/list[^"]*)">One by one`).FindStringSubmatch(group)[1])
	box := regexp.MustCompile(`name="seq" value="(\d+)"`)
	page := s.Get(link, http.StatusOK)
	boxes := box.FindAllStringSubmatch(page, -1)
	check.That(t, len(boxes) == 50 && boxes[0][1] == "52" && boxes[49][1] == "3", "dead letters: %v", boxes)
	check.Contains(t, page, "extract: status #", "https://host/p51", "expediter dead list", "--limit 50")
	next := html.UnescapeString(regexp.MustCompile(`href="([^"]*)">Next page`).FindStringSubmatch(page)[1])
	last := s.Get(next, http.StatusOK)
	check.That(t, fmt.Sprint(box.FindAllStringSubmatch(last, -1)) == fmt.Sprint(box.FindAllStringSubmatch(`name="seq" value="2" name="seq" value="1"`, -1)) &&
		!strings.Contains(last, "Next page"), "the last page: %s", last)
	check.Contains(t, last, "--before 3", "First page")

	s.Post("/dead/selected/replay", url.Values{}, http.StatusBadRequest)
	s.Post("/dead/selected/replay", url.Values{"seq": {"1"}, "signature": {"x"}}, http.StatusBadRequest)
	s.Post("/dead/selected/replay", url.Values{"seq": {"99"}}, http.StatusConflict)
	act := func(action string, sequences ...string) {
		t.Helper()
		values := url.Values{"seq": sequences}
		if operate.Asks(action, len(sequences)) {
			_, question := s.Post("/dead/selected/"+action, values, http.StatusOK)
			check.Contains(t, question, "expediter dead "+action+" "+strings.Join(sequences, " "), "--yes")
			values = s.Form(question, "/dead/selected/"+action, "typed", fmt.Sprint(len(sequences)))
		}
		to, _ := s.Post("/dead/selected/"+action, values, http.StatusSeeOther)
		waitForPage(t, s, to, fmt.Sprintf("%d of %[1]d dead letters", len(sequences)), "Done")
		check.Equal(t, records(t, s)[0].Target, fmt.Sprintf("dead letters sequences=%q", strings.Join(sequences, " ")), "target")
	}
	act(operate.Replay, "1")
	act(operate.Replay, "2", "52")
	act(operate.Discard, "3", "4", "53") // each time another number, so that the page of replays shows which one has ended
	check.Equal(t, s.Messages(contracts.StreamDead), 47, "dead letters")
	check.Equal(t, s.Messages(contracts.StreamImportJobs), 3, "jobs")
}

// Viewers, keys that are bound to a user, callers without a key, pages of other sites and everybody in a read-only console do nothing.
func TestActionsAreForOperators(t *testing.T) {
	t.Parallel()
	guard, secrets := consoletest.Keys(t)
	s := consoletest.Start(t, func(c *console.Config) { c.Access = guard })
	locked := consoletest.Serve(t, s.Server, s.Conn, s.JetStream, func(c *console.Config) { c.ReadOnly = true })
	check.OK(t, check.Err(s.JetStream.Publish(t.Context(), "jobs.import.high.a", []byte(`{}`))))
	putSixDeadLetters(s)
	key := func(name string) []string { return []string{"Authorization", "Bearer " + secrets[name]} }
	for _, action := range []string{
		"/dead/replay", "/dead/discard", "/dead/stop", "/dead/one/replay", "/dead/one/discard", "/dead/selected/replay", "/dead/selected/discard",
		"/imports/cancel", "/imports/retry", "/jobs/IMPORT_JOBS/cancel", "/jobs/IMPORT_JOBS/run", "/keys/steal",
		"/notifications/cancel", "/notifications/replay", "/schedules/remove",
		"/workers/pause", "/workers/resume", "/workers/one/drain", "/workers/one/resume",
	} {
		form := url.Values{"job": {"1"}, "name": {"a"}, "typed": {"a"}}
		for _, name := range []string{"viewer", "bound"} {
			s.Post(action, form, http.StatusForbidden, key(name)...)
		}
		s.Post(action, form, http.StatusUnauthorized)
		_, body := s.Post(action, form, http.StatusForbidden, append(key("operator"), "Sec-Fetch-Site", "cross-site")...)
		check.Contains(t, body, "another site")
		_, body = locked.Post(action, form, http.StatusForbidden)
		check.Contains(t, body, "read-only")
	}
	check.Equal(t, len(records(t, s)), 0, "records")
	check.Equal(t, s.Messages(contracts.StreamImportJobs), 1, "jobs")
	for name, danger := range map[string]bool{"viewer": false, "operator": true} {
		page := s.Get("/jobs/IMPORT_JOBS", http.StatusOK, key(name)...)
		check.That(t, strings.Contains(page, `<button class="danger"`) == danger, "what %s sees: %s", name, page)
		page = s.Get("/dead?signature=extract:+status+%23", http.StatusOK, key(name)...)
		check.That(t, strings.Contains(page, "needs a key with the scope operate") != danger && strings.Contains(page, `method="post" action="/dead`) == danger &&
			strings.Contains(page, "hunter2") == danger, "what %s sees: %s", name, page)
	}
	for _, path := range []string{"/", "/dead", "/jobs/IMPORT_JOBS"} {
		s.Get(path, http.StatusForbidden, key("bound")...)
	}
}
