package pages_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/crash"
	"github.com/expediter-io/expediter/pkg/pause"
	"github.com/expediter-io/expediter/test/internal/browser"
)

// up builds the program, runs `expediter up`, and returns the address of its page.
func up(t *testing.T) (string, *crash.Process) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "expediter")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s", "-o", program, "../../cmd/expediter").CombinedOutput()
	check.Require(t, err == nil, "build: %v\n%s", err, out)
	p := crash.Start(t, exec.Command(program, "up", "--console-port", "0", "--http-port", "0", "--importer-port", "0", "--nats-port", "0",
		"--notifier-port", "0"))
	return p.Await(`Open (http://\S+) to try it`)[1], p
}

// pending reports whether a place of a page is.
const pending = `document.querySelector("#found .warn") !== null || document.querySelector("#found li") === null`

// A newcomer sees a recipe made, a notification arrive and links appear, with nothing but a keyboard.
func TestNewcomerSeesItHappen(t *testing.T) {
	b := browser.Start(t)
	url, running := up(t)
	for _, view := range []browser.View{{Width: 360}, {Dark: true, Width: 1440}} {
		b.Open(t, url, view).Looks(fmt.Sprintf("newcomer-%d-%t", view.Width, view.Dark))
	}
	p := b.Open(t, url+"/?q=pizza", browser.View{Width: 1280})
	p.Do(chromedp.Focus(chromedp.CSS("#source")))
	p.Press(kb.Tab, kb.Enter)
	p.Do(chromedp.WaitVisible(chromedp.CSS("#imported .recipe")), chromedp.Focus(chromedp.CSS("input[name=name]")))
	p.Press(kb.Tab, kb.Tab, kb.Enter)
	p.Do(chromedp.WaitVisible(chromedp.CSS("ol[sse-connect] bdi")), chromedp.Focus(chromedp.CSS("#q")))
	p.Press(kb.Enter)
	p.Do(chromedp.WaitVisible(chromedp.CSS("#found a")))
	p.Looks("newcomer")
	settle(p)
	check.Says(t, browser.Get(p, chromedp.Text(chromedp.CSS("#found"))), "https://wolt.com/")
	t.Run("through disconnects", func(t *testing.T) {
		survive(t, b, url, running.Await(`enrichers +(\S+)`)[1], running.Await(`NATS +(\S+)`)[1])
	})
}

// settle waits until nothing is under way on a page.
func settle(p *browser.Page) {
	p.Helper()
	for browser.Get(p, chromedp.Evaluate[bool](pending)) {
		pause.For(p.Context(), 100*time.Millisecond)
	}
}
