package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// All that match are those that the page has counted: jobs that come after it stay.
func TestAllThatMatchAreThoseOfThePage(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	put := func(n int) {
		check.OK(t, check.Err(s.JetStream.Publish(t.Context(), fmt.Sprintf("jobs.import.low.u%d", n), nil)))
	}
	put(1)
	put(2)
	const path = "/jobs/" + contracts.StreamImportJobs
	page := s.Get(path+"/all", http.StatusOK)
	check.Says(t, page, "2 jobs can be cancelled", "No job that matches can be run now.")
	put(3)
	values := form(t, page, path+"/cancel", "typed", "2")
	s.Post(path+"/cancel", values, http.StatusSeeOther)
	check.Same(t, "jobs", s.Messages(contracts.StreamImportJobs), 1)

	put(4) // as many as the page counted match again, and none is of the page
	_, refused := s.Post(path+"/cancel", values, http.StatusConflict)
	check.Says(t, refused, "0 of the jobs that were counted match now")
	check.Same(t, "jobs", s.Messages(contracts.StreamImportJobs), 2)
}

// None among the messages that were looked at is not none.
func TestNoneOfTheFirstIsNotNone(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	for range 10_001 {
		check.OK(t, check.Err(s.JetStream.PublishAsync("jobs.import.low.u1", nil)))
	}
	<-s.JetStream.PublishAsyncComplete()
	page := s.Get("/jobs/"+contracts.StreamImportJobs+"/all", http.StatusOK)
	check.Says(t, page, "1,000 jobs can be cancelled. There may be more", "among the first 10,000 messages")
	check.That(t, !strings.Contains(page, "can be run now."), "%s", page)
}
