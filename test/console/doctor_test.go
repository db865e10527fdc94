package console_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/console"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

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
	check.Says(t, s.Get("/doctor", http.StatusOK), `aria-current="page">Doctor`, "Look now", "expediter doctor --read-only")
	run := func(status int, r result) string {
		page := make(chan string)
		go func() { page <- s.Get("/doctor?run=1", status) }()
		<-asked
		check.Says(t, s.Get("/doctor?run=1", http.StatusConflict), "looking for somebody else")
		answers <- r
		return <-page
	}
	page := run(http.StatusOK, result{all: []console.Finding{
		{Severity: console.Skipped, Problem: "far sides: no end"},
		{Severity: console.Warning, Of: "server n1", ID: "server.rtt", Problem: "it is slow", Cure: "true"},
		{Severity: console.Error, Of: "stream EVENTS", ID: "stream.max_age", Problem: "max_age is <b>", Cure: "expediter apply"},
	}})
	check.Says(t, page, "Errors: 1", "<b>stream EVENTS</b>: max_age is &lt;b&gt;", "stream.max_age", "mend: <code dir=\"ltr\">expediter apply</code>",
		"Warnings: 1", "Not looked at: 1", "Look again")
	check.That(t, strings.Index(page, "Errors") < strings.Index(page, "Warnings") && !strings.Contains(page, "Healthy"), "in no order: %s", page)
	check.Says(t, run(http.StatusOK, result{}), "Healthy.")
	check.Says(t, run(http.StatusServiceUnavailable, result{err: errors.New("the dog ate it")}), "Doctor came to no end: the dog ate it.")
}

func TestNoDoctorNoPage(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	check.That(t, !strings.Contains(s.Get("/", http.StatusOK), "Doctor"), "it is in the navigation")
	s.Get("/doctor", http.StatusNotFound)
}
