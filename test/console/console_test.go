// Package console_test tries the console over a server.
package console_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/expediter-io/expediter/internal/console"
	"github.com/expediter-io/expediter/internal/service/audit"
	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

func TestMain(m *testing.M) { natstest.Main(m, 4) }

func TestEveryMistakeIsReportedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := console.New(console.Config{Prefix: "x/", Accounts: []console.Account{{}, {}}})
	check.ErrorContains(t, err, "Audit", "Conn", "Logger", "Prefix", "no JetStream", "twice")
	_, err = console.New(console.Config{Logger: slog.New(slog.DiscardHandler), ReadOnly: true})
	check.ErrorContains(t, err, "Accounts", "Conn")
	check.That(t, !strings.Contains(err.Error(), "Audit"), "%v", err)
}

func TestPagesUnderAPrefix(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t, func(c *console.Config) { c.Prefix = "/ops/console" })
	h, body := s.Do(http.MethodGet, "/", nil, http.StatusOK)
	check.Contains(t, body, `href="/ops/console/"`, `src="/ops/console/static/htmx.min.js?v=`, "ENRICH_JOBS", "<html")
	check.Contains(t, h.Get("Content-Security-Policy"), "default-src 'self'")
	fragment := s.Get("/", http.StatusOK, "Hx-Request", "true")
	check.That(t, !strings.Contains(fragment, "<html") && strings.Contains(fragment, "ENRICH_JOBS"), "not the main part: %s", fragment)
	h, _ = s.Do(http.MethodGet, "", nil, http.StatusMovedPermanently)
	check.Equal(t, h.Get("Location"), "/ops/console/", "location")
	check.Contains(t, s.Get("/none", http.StatusNotFound), "There is no page")
	h, _ = s.Do(http.MethodGet, "/static/style.css", nil, http.StatusOK)
	check.Contains(t, h.Get("Content-Type"), "text/css")
	check.That(t, !strings.Contains(body, "Doctor"), "without a doctor it is in the navigation")
	s.Get("/doctor", http.StatusNotFound)

	// A page of another host that leads to this machine reads nothing.
	r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/", http.NoBody))(t)
	r.Host = "evil.example"
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	check.OK(t, err)
	check.OK(t, answer.Body.Close())
	check.Equal(t, answer.StatusCode, http.StatusMisdirectedRequest, "status")
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	guard, secrets := consoletest.Keys(t)
	s := consoletest.Start(t, func(c *console.Config) { c.Access = guard })
	html := []string{"Accept", "text/html"}
	h, _ := s.Do(http.MethodGet, "/?a=b", nil, http.StatusSeeOther, html...)
	check.Equal(t, h.Get("Location"), "/sign-in?to="+url.QueryEscape("/?a=b"), "location")
	s.Get("/", http.StatusUnauthorized)
	s.Get("/live?topic=tick", http.StatusUnauthorized)

	_, body := s.Post("/sign-in", url.Values{"key": {"exp_wrong"}}, http.StatusUnauthorized)
	check.Contains(t, body, "not in force")
	s.Post("/sign-in", url.Values{"key": {secrets["bound"]}}, http.StatusForbidden)
	for to, want := range map[string]string{"/?a=b": "/?a=b", "//evil.example": "/", "https://evil.example/": "/", `/\evil.example`: "/"} {
		h, _ := s.Do(http.MethodPost, "/sign-in", url.Values{"key": {secrets["viewer"]}, "to": {to}}, http.StatusSeeOther)
		check.Equal(t, h.Get("Location"), want, "where "+to+" leads")
		check.Contains(t, h.Get("Set-Cookie"), "HttpOnly", "SameSite=Strict")
	}
	h, _ = s.Do(http.MethodPost, "/sign-in", url.Values{"key": {secrets["viewer"]}}, http.StatusSeeOther)
	cookie, _, _ := strings.Cut(h.Get("Set-Cookie"), ";")
	check.Contains(t, s.Get("/", http.StatusOK, "Cookie", cookie), "viewer", "Sign out")

	live := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/live?topic=tick", http.NoBody))(t)
	live.Header.Set("Cookie", cookie)
	stream, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(live)
	check.OK(t, err)
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	check.That(t, lines.Scan() && strings.HasPrefix(lines.Text(), "retry:"), "got %q", lines.Text())

	s.Post("/sign-out", url.Values{}, http.StatusSeeOther, "Cookie", cookie)
	s.Get("/", http.StatusUnauthorized, "Cookie", cookie)
	for lines.Scan() { // ends with the session
	}
	check.OK(t, lines.Err())
}

// A reader that follows with all the pages it can leaves room for others, and so do these.
func TestReadersLeaveRoomToFollow(t *testing.T) {
	t.Parallel()
	guard, secrets := consoletest.Keys(t)
	s := consoletest.Start(t, func(c *console.Config) { c.Access = guard })
	for _, name := range []string{"viewer", "operator", "other"} {
		for n := 0; ; n++ {
			r := check.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/live?topic=tick", http.NoBody))(t)
			r.Header.Set("Authorization", "Bearer "+secrets[name])
			answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
			check.OK(t, err)
			t.Cleanup(func() { answer.Body.Close() })
			if answer.StatusCode != http.StatusOK {
				check.That(t, n > 20 && answer.StatusCode == http.StatusTooManyRequests, "%s has %d pages, and then %s", name, n, answer.Status)
				break
			}
		}
	}
}

func TestEventWithItsNotifications(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	check.Contains(t, s.Get("/notifications", http.StatusOK), "No notifier answers")
	s.Get("/notifications?state=failed", http.StatusServiceUnavailable)
	s.Business()
	check.Contains(t, s.Get("/notifications", http.StatusOK), "There are no such notifications", "expediter notifications --state failed")
	body := s.Get("/notifications?event=evt+1", http.StatusOK)
	check.Contains(t, body, "planned 3 notifications for 3 recipients: delivered 2, suppressed 1 (opt_out)", "TABLE", consoletest.Hebrew,
		"1 attempt",
		"expediter notifications --event &#39;evt 1&#39;")
	check.That(t, !strings.Contains(body, "Cancel what is unsent"), "an event that was told can be cancelled: %s", body)
	body = s.Get("/notifications?user="+url.QueryEscape(consoletest.Hebrew), http.StatusOK)
	check.Contains(t, body, "evt 1", "evt-2", "deferred (not_before)", "delivered", "1 attempt", "expediter notifications --user")
	check.That(t, !strings.Contains(body, "ben"), "the notifications of a user: %s", body)
	check.Contains(t, s.Get("/notifications?user=nobody", http.StatusOK), "There are no such notifications")
	check.Contains(t, s.Get("/notifications?state=suppressed", http.StatusOK), "ben", "opt_out")
	check.Contains(t, s.Get("/notifications?event=none", http.StatusNotFound), "The notifier says")
	check.Contains(t, s.Get("/notifications?state=lost", http.StatusBadRequest), "state must be")
}

// An operator cancels the unsent notifications once, by a record that names the operator; a viewer is not offered to.
func TestEventIsCancelled(t *testing.T) {
	t.Parallel()
	guard, secrets := consoletest.Keys(t)
	s := consoletest.Start(t, func(c *console.Config) { c.Access = guard })
	s.Business()
	as := func(name string) []string { return []string{"Authorization", "Bearer " + secrets[name]} }
	body := s.Get("/notifications?event=evt-2", http.StatusOK, as("operator")...)
	form := s.Form(body, "/notifications/cancel")
	check.Contains(t, body, "Cancel what is unsent", "expediter notifications cancel evt-2")
	body = s.Get("/notifications?event=evt-2", http.StatusOK, as("viewer")...)
	check.That(t, !strings.Contains(body, "Cancel what is unsent"), "a viewer may cancel: %s", body)
	s.Post("/notifications/cancel", url.Values{}, http.StatusBadRequest, as("operator")...)
	to, _ := s.Post("/notifications/cancel", form, http.StatusSeeOther, as("operator")...)
	check.Contains(t, s.Get(to, http.StatusOK, as("operator")...), "Cancelled: 3 suppressed", "cancelled; planned 3 notifications")
	records := check.Must(audit.List(t.Context(), s.JetStream, 10))(t)
	check.That(t, len(records) == 1 && records[0].Actor == "nats/operator" && records[0].Source == "notifier" && records[0].Count == 3,
		"the records are %+v", records)
}

func TestImportAndPlaceWithTheirEvidence(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	check.Contains(t, s.Get("/places?id=x", http.StatusServiceUnavailable), "No enricher answers")
	s.Business()
	place := s.Get("/places?id="+url.QueryEscape(consoletest.PlaceID), http.StatusOK)
	check.Contains(t, place, "<b>FOUND</b>", "https://wolt.example/v1", "phone.same", "Confidence")
	check.Contains(t, s.Get("/places?id=x", http.StatusOK), "Nothing is known of this place")
	body := s.Get("/imports?id=job-1", http.StatusOK)
	check.Contains(t, body, "ready: there is a recipe", "Mix 2 cups of flour with 1 teaspoon of salt", "00:00:05", "flour",
		consoletest.Hebrew, "in the source",
		"expediter import status job-1")
	check.Contains(t, s.Get("/imports?id=job-2", http.StatusOK), "failed (")
	check.Contains(t, s.Get("/imports?id=none", http.StatusNotFound), "The importer says")
	s.Post("/imports/cancel", url.Values{"id": {"job-1"}}, http.StatusConflict)
	records := check.Must(audit.List(t.Context(), s.JetStream, 10))(t)
	check.That(t, len(records) == 1 && records[0].Action == "import-cancel" && records[0].Outcome == audit.Failed && records[0].Target == "import job-1",
		"the records are %+v", records)
}

// The buttons of an import and of an event ask the service about this one, and the page says what it answered.
func TestServicesDoWhatIsPressed(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	answers := map[string]string{
		`importer.v1.get{"job_id":"failed"}`:                      `{"job_id":"failed","retryable":true,"status":"FAILED"}`,
		`importer.v1.get{"job_id":"runs"}`:                        `{"job_id":"runs","status":"EXTRACTING"}`,
		`importer.v1.cancel{"job_id":"runs"}`:                     "{}",
		`importer.v1.retry{"job_id":"failed"}`:                    "{}",
		`notifier.v1.get{"event_id":"evt-1"}`:                     `{"event_id":"evt-1","state":"planned"}`,
		"notifier.v1.list":                                        `{"notifications":[{"event_id":"evt-1","state":"failed"}]}`,
		`notifier.v1.replay{"event_id":"evt-1","state":"failed"}`: `{"gone":1,"replayed":2}`,
	}
	var asked sync.Map // subjects
	for _, subjects := range []string{"importer.v1.*", "notifier.v1.*"} {
		check.OK(t, check.Err(s.Conn.Subscribe(subjects, func(m *nats.Msg) {
			asked.Store(m.Subject, true)
			check.OK(t, m.Respond([]byte(cmp.Or(answers[m.Subject+string(m.Data)], answers[m.Subject])))) // nothing is no answer
		})))
	}
	for path, want := range map[string][3]string{
		"/imports?id=runs":           {"/imports/cancel", "The import is cancelled.", "importer.v1.cancel"},
		"/imports?id=failed":         {"/imports/retry", "The import starts again.", "importer.v1.retry"},
		"/notifications?event=evt-1": {"/notifications/replay", "2 notifications resent, 1 gone", "notifier.v1.replay"},
	} {
		to, _ := s.Post(want[0], s.Form(s.Get(path, http.StatusOK), want[0]), http.StatusSeeOther)
		check.Contains(t, s.Get(to, http.StatusOK), want[1])
		_, ok := asked.Load(want[2])
		check.That(t, ok, "nothing asks %s", want[2])
	}
}

func TestDoctorPage(t *testing.T) {
	t.Parallel()
	type result struct {
		all []console.Finding
		err error
	}
	asked, answers := make(chan struct{}), make(chan result)
	s := consoletest.Start(t, func(c *console.Config) {
		c.Doctor = func(ctx context.Context) ([]console.Finding, error) {
			_, limited := ctx.Deadline()
			check.That(t, limited, "doctor has all the time in the world")
			asked <- struct{}{}
			r := <-answers
			return r.all, r.err
		}
	})
	check.Contains(t, s.Get("/doctor", http.StatusOK), `aria-current="page">Doctor`, "Look now", "expediter doctor --read-only")
	run := func(status int, r result) string {
		page := make(chan string)
		go func() { page <- s.Get("/doctor?run=1", status) }()
		<-asked
		check.Contains(t, s.Get("/doctor?run=1", http.StatusConflict), "looking for somebody else")
		answers <- r
		return <-page
	}
	page := run(http.StatusOK, result{all: []console.Finding{
		{Severity: console.Skipped, Problem: "remote services: no end"},
		{Severity: console.Warning, Of: "server n1", ID: "server.rtt", Problem: "it is slow", Cure: "true"},
		{Severity: console.Error, Of: "stream EVENTS", ID: "stream.max_age", Problem: "max_age is <b>", Cure: "expediter apply"},
	}})
	check.Contains(t, page, "Errors: 1", "<b>stream EVENTS</b>: max_age is &lt;b&gt;", "stream.max_age",
		"fix: <code dir=\"ltr\">expediter apply</code>",
		"Warnings: 1", "Not looked at: 1", "Look again")
	check.That(t, strings.Index(page, "Errors") < strings.Index(page, "Warnings") && !strings.Contains(page, "Healthy"), "in no order: %s",
		page)
	check.Contains(t, run(http.StatusOK, result{}), "Healthy.")
	check.Contains(t, run(http.StatusServiceUnavailable, result{err: errors.New("the dog ate it")}), "Doctor came to no end: the dog ate it.")
}

// Neither a job of a service nor its dead letter shows what is of a person, or secret, to those who may only read.
func TestPeopleAreNotShown(t *testing.T) {
	t.Parallel()
	guard, secrets := consoletest.Keys(t)
	s := consoletest.Start(t, func(c *console.Config) { c.Access = guard })
	viewer := []string{"Authorization", "Bearer " + secrets["viewer"]}
	const person = `{"user_id":"hunter2","recipient_type":"CUSTOMER","addresses":{"email":"hunter2@a.example"}}`
	for stream, m := range map[string]struct{ subject, payload, shown string }{
		contracts.StreamEnrichJobs: {"jobs.enrich.WOLT.p1", `{"provider":"WOLT","placeId":"p1","address":"Main St 1"}`, "Main St 1"},
		contracts.StreamImportJobs: {"jobs.import.high.j1", `{"job_id":"j1","owner_id":"hunter2","url":"https://x:hunter2@a.example/p"}`, "a.example/p"},
		contracts.StreamEvents: {
			"events.USER.HELLO", `{"event_id":"e1","user_id":"hunter2","recipients":[` + person + `],"payload":{"mail":"hunter2@a.example"}}`, "e1",
		},
		contracts.StreamNotifications: {
			"notify.send.email.CUSTOMER.u.e1", `{"event_id":"e1","user_id":"hunter2","recipient":` + person + `}`, "email",
		},
	} {
		ack, err := s.JetStream.PublishMsg(t.Context(), &nats.Msg{
			Data: []byte(m.payload), Header: nats.Header{"Job-Id": {"j"}, "Reply-To": {"hunter2@a.example"}}, Subject: m.subject,
		})
		check.OK(t, err)
		seq := s.PutDeadLetters(consoletest.DeadLetter(1, func(l *worker.DeadLetter) {
			l.Payload, l.Stream, l.Subject, l.Error = []byte(m.payload), stream, m.subject, "550 no such user <hunter2@a.example>"
		}))
		for _, path := range []string{
			fmt.Sprintf("/jobs/%s/%d", stream, ack.Sequence), fmt.Sprintf("/dead/one?seq=%d", seq), "/dead?subject=" + m.subject,
		} {
			page := s.Get(path, 200, viewer...)
			check.Contains(t, page, m.shown)
			check.That(t, !strings.Contains(page, "hunter2"), "%s shows what is of people: %s", path, page)
		}
	}
}
