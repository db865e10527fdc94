package pages_test

import (
	"net/url"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/test/internal/browser"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

func TestBusinessForEverybody(t *testing.T) {
	b := browser.Start(t)
	s := consoletest.Start(t)
	s.Business()
	for name, path := range map[string]string{
		"event": "/notifications?event=evt+1", "event-open": "/notifications?event=evt-2", "events": "/notifications",
		"user": "/notifications?user=" + url.QueryEscape(consoletest.Hebrew), "person": "/people/" + url.PathEscape(consoletest.Hebrew), "import": "/imports?id=job-1", "import-failed": "/imports?id=job-2",
		"imports": "/imports", "place": "/places?id=" + url.QueryEscape(consoletest.PlaceID), "places": "/places",
	} {
		looks(t, b, s, name, path)
	}
}

// An event is found and cancelled with a keyboard, with a script and without.
func TestEventIsCancelledByKeyboard(t *testing.T) {
	b := browser.Start(t)
	for _, view := range []browser.View{{Width: 1440}, {Width: 360, NoScript: true}} {
		s := consoletest.Start(t)
		s.Business()
		p := b.Open(t, s.URL+"/notifications", view)
		p.Do(chromedp.Focus(chromedp.CSS("input[name=event]")))
		p.Press("e", "v", "t", "-", "2")
		p.Submit(kb.Enter)
		for !browser.Get(p, chromedp.Evaluate[bool](`document.activeElement.className === "danger"`)) {
			p.Press(kb.Tab)
		}
		p.Submit(kb.Enter)
		check.Says(t, browser.Get(p, chromedp.Text(chromedp.CSS("main"))), "Cancelled: 3 suppressed", "it was cancelled")
	}
}
