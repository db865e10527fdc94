package pages_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/expediter-io/expediter/pkg/contracts"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/worker"
	"github.com/expediter-io/expediter/test/internal/browser"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// click clicks, as a person does, and waits for the page that follows.
func click(p *browser.Page, selector string) {
	p.Helper()
	p.Do(chromedp.Focus(chromedp.CSS(selector)))
	p.Submit(kb.Enter)
}

// A group of 1,811 letters is found, understood and replayed by three clicks from the overview, without a script, too.
func TestAGroupIsReplayedByThreeClicks(t *testing.T) {
	b := browser.Start(t)
	for _, view := range []browser.View{{Width: 1440}, {Width: 360, NoScript: true}} {
		s := consoletest.Start(t)
		for n := range 1811 {
			s.PutLetters(consoletest.Letter(n))
		}
		s.PutLetters(consoletest.Letter(2000, func(l *worker.DeadLetter) { l.Signature = "no such user" }))
		p := b.Open(t, s.URL+"/", view)
		click(p, `nav a[href="/dead"]`)
		click(p, `tbody a[href*="extract"]`)
		if !view.NoScript {
			p.Do(chromedp.WaitVisible(chromedp.CSS("#rehearsal strong")))
			said := browser.Get(p, chromedp.Text(chromedp.CSS("#rehearsal")))
			counts := regexp.MustCompile(`Dry run: ([\d,]+) → ([\d,]+)`).FindStringSubmatch(said)
			check.Require(t, len(counts) == 3 && counts[1] == counts[2], "the dry run says %q", said)
			if !strings.Contains(said, "Only the first "+counts[1]) { // it takes three seconds at most, whatever machine that is
				check.Same(t, "letters of the dry run", counts[1], "1,811")
			}
		}
		check.Says(t, browser.Get(p, chromedp.Text(chromedp.CSS("main"))), "status 503", "1,811 letters", "vm-3")
		click(p, `form[action="/dead/replay"] button`)
		check.Says(t, browser.Get(p, chromedp.Text(chromedp.CSS("main"))), "of 1,811 letters")
		click(p, `form[action="/dead/stop"] button`)
	}
}

func TestDeadLettersForEverybody(t *testing.T) {
	b := browser.Start(t)
	s := consoletest.Start(t)
	looks(t, b, s, "dead-none", "/dead")
	for n := range 40 {
		s.PutLetters(consoletest.Letter(n))
	}
	s.PutLetters(consoletest.Letter(50, func(l *worker.DeadLetter) {
		l.Signature, l.Payload, l.Stack = "משתמש # לא נמצא", []byte(`{"name":"דנה"}`), "goroutine 1 [running]:\n\tmain.go:1"
	}))
	looks(t, b, s, "dead", "/dead")
	looks(t, b, s, "dead-group", "/dead?signature=extract:+status+%23")
	looks(t, b, s, "dead-letter", "/dead/letter?seq=41")
	looks(t, b, s, "dead-rehearsal", "/dead/rehearsal")
	s.Post("/dead/replay", url.Values{"rate": {"0.001"}, "signature": {"extract: status #"}}, http.StatusSeeOther)
	looks(t, b, s, "dead-replays", "/dead/replays")
	click(b.Open(t, s.URL+"/dead/replays", browser.View{Width: 1440}), `form[action="/dead/stop"] button`)
	looks(t, b, s, "dead-broken", "/dead")
}

func TestWorkersForEverybody(t *testing.T) {
	b := browser.Start(t)
	s := consoletest.Start(t)
	looks(t, b, s, "workers-none", "/workers")
	began, free := make(chan string), make(chan struct{})
	w, err := worker.New(s.JetStream, worker.Config{
		AutoCreate: true, Consumer: "importer", ID: "vm-3", Logger: slog.New(slog.DiscardHandler), Stream: contracts.StreamImportJobs,
	})
	check.OK(t, err)
	check.OK(t, worker.Handle(w, "jobs.import.high.>", worker.Policy{MaxAttempts: 1}, func(_ context.Context, job *worker.Job[string]) error {
		began <- job.Args
		if job.Args == "bad" {
			return fmt.Errorf("extract: status %d", 503)
		}
		<-free
		return nil
	}))
	t.Cleanup(natstest.Background(t, w.Run))
	t.Cleanup(func() { close(free) })
	for _, kind := range []string{"bad", "slow"} {
		check.OK(t, check.Err(s.JetStream.Publish(t.Context(), "jobs.import.high."+kind, fmt.Appendf(nil, "%q", kind))))
		check.Same(t, "the job that runs", <-began, kind)
	}
	looks(t, b, s, "workers", "/workers")
	looks(t, b, s, "overview-waited", "/")
	p := b.Open(t, s.URL+"/workers", browser.View{Width: 1440})
	click(p, `tbody a[href*="/workers/"]`)
	at := browser.Get(p, chromedp.Location())
	looks(t, b, s, "worker", at[len(s.URL):])
	p = b.Open(t, at, browser.View{Width: 1440})
	click(p, `form[action="/workers/pause"] button`)
	check.Says(t, browser.Get(p, chromedp.Text(chromedp.CSS(".note"))), "is paused until", "expediter jobs pause")
	looks(t, b, s, "worker-paused", at[len(s.URL):])
	p = b.Open(t, at, browser.View{Width: 1440})
	click(p, `form[action="/workers/resume"] button`)
	check.Says(t, browser.Get(p, chromedp.Text(chromedp.CSS(".note"))), "goes on", "expediter jobs resume")
	click(p, `form[action$="/drain"] button`)
	check.Says(t, browser.Get(p, chromedp.Text(chromedp.CSS(".note"))), "takes no more jobs", "expediter jobs drain")
	looks(t, b, s, "worker-drained", at[len(s.URL):])
	click(p, `form[action$="/resume"]:not([action="/workers/resume"]) button`)
	check.Says(t, browser.Get(p, chromedp.Text(chromedp.CSS(".note"))), "takes jobs again", "--resume")
}
