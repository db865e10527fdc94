package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/service/audit"
	"github.com/expediter-io/expediter/pkg/service/console"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

func TestEventInPlainWords(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	s.Business()
	check.Says(t, s.Get("/notifications", http.StatusOK), "Name an event or a user", `href="/notifications?state=failed"`)
	body := s.Get("/notifications?event=evt+1", http.StatusOK)
	check.Says(t, body, "planned 3 rows for 3 recipients: delivered 2, suppressed 1 (the user has opted out)", "TABLE", consoletest.Hebrew, "1 try",
		"expediter notifications --event &#39;evt 1&#39;")
	check.That(t, !strings.Contains(body, "Cancel what is unsent"), "an event that was told can be cancelled: %s", body)
	body = s.Get("/notifications?user="+url.QueryEscape(consoletest.Hebrew), http.StatusOK)
	check.Says(t, body, "evt 1", "evt-2", "put off", `href="/people/`+url.PathEscape(consoletest.Hebrew)+`"`)
	body = s.Get("/people/"+url.PathEscape(consoletest.Hebrew), http.StatusOK)
	check.Says(t, body, "What "+consoletest.Hebrew+" was sent", "evt 1", "evt-2", "put off", "<b>inapp</b>", "delivered", "1 try", "expediter notifications --user")
	check.That(t, !strings.Contains(body, "ben"), "the page of a person: %s", body)
	check.Says(t, s.Get("/people/nobody", http.StatusOK), "There are no such rows")
	check.Says(t, s.Get("/notifications?state=suppressed", http.StatusOK), "ben", "opted out")
	check.Says(t, s.Get("/notifications?event=none", http.StatusNotFound), "The notifier says")
	check.Says(t, s.Get("/notifications?state=lost", http.StatusBadRequest), "state must be")
}

// What is unsent is cancelled once, by a record that names the operator; nobody else does it.
func TestEventIsCancelled(t *testing.T) {
	t.Parallel()
	guard, secrets := consoletest.Keys(t)
	s := consoletest.Start(t, func(c *console.Config) { c.Access = guard })
	s.Business()
	as := func(name string) []string { return []string{"Authorization", "Bearer " + secrets[name]} }
	form := url.Values{"event": {"evt-2"}}
	body := s.Get("/notifications?event=evt-2", http.StatusOK, as("operator")...)
	check.Says(t, body, "Cancel what is unsent", "expediter notifications cancel evt-2")
	body = s.Get("/notifications?event=evt-2", http.StatusOK, as("viewer")...)
	check.That(t, !strings.Contains(body, "Cancel what is unsent"), "a viewer may cancel: %s", body)
	s.Post("/notifications/cancel", form, http.StatusForbidden, as("viewer")...)
	s.Post("/notifications/cancel", form, http.StatusForbidden, append(as("operator"), "Sec-Fetch-Site", "cross-site")...)
	s.Post("/notifications/cancel", url.Values{}, http.StatusBadRequest, as("operator")...)
	to, _ := s.Post("/notifications/cancel", form, http.StatusSeeOther, as("operator")...)
	check.Says(t, s.Get(to, http.StatusOK, as("operator")...), "Cancelled: 3 suppressed", "cancelled; planned 3 rows")
	records := check.Must(audit.List(t.Context(), s.JetStream, 10))(t)
	check.That(t, len(records) == 1 && records[0].Actor == "nats/operator" && records[0].Source == "notifier" && records[0].Count == 3,
		"the records are %+v", records)
}

func TestImportWithItsEvidence(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	s.Business()
	body := s.Get("/imports?id=job-1", http.StatusOK)
	check.Says(t, body, "ready: there is a recipe", "Mix 2 cups of flour with 1 teaspoon of salt", "00:00:05", "flour", consoletest.Hebrew, "in the source",
		"expediter import status job-1")
	check.Says(t, s.Get("/imports?id=job-2", http.StatusOK), "failed (")
	check.Says(t, s.Get("/imports?id=none", http.StatusNotFound), "The importer says")
	s.Post("/imports/cancel", url.Values{"id": {"job-1"}}, http.StatusConflict)
	records := check.Must(audit.List(t.Context(), s.JetStream, 10))(t)
	check.That(t, len(records) == 1 && records[0].Action == "import-cancel" && records[0].Outcome == audit.Failed && records[0].Target == "import job-1",
		"the records are %+v", records)
	readOnly := consoletest.Serve(t, s.Server, s.Conn, s.JetStream, func(c *console.Config) { c.ReadOnly = true })
	check.Says(t, readOnly.Get("/imports?id=job-1", http.StatusOK), "read-only")
	readOnly.Post("/imports/retry", url.Values{"id": {"job-2"}}, http.StatusForbidden)
}

func TestPlaceWithItsEvidence(t *testing.T) {
	t.Parallel()
	s := consoletest.Start(t)
	check.Says(t, s.Get("/places?id=x", http.StatusServiceUnavailable), "No enricher answers")
	s.Business()
	body := s.Get("/places?id="+url.QueryEscape(consoletest.PlaceID), http.StatusOK)
	check.Says(t, body, "found: one venue is the place", "https://wolt.example/v1", "phone same", "for it", "Confidence")
	check.Says(t, s.Get("/places?id=x", http.StatusOK), "Nothing is known of this place")
}
