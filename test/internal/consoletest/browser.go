package consoletest

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/expediter-io/expediter/internal/private"
	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// Environment variables of tests that look at pages.
const (
	// require makes a test fail, rather than skip it, where there is no Chromium.
	require = "EXPEDITER_REQUIRE_BROWSER"

	// screenshots names a folder for a picture of each page.
	screenshots = "EXPEDITER_SCREENSHOTS"
)

// patience bounds each action on a page.
const patience = time.Minute

// axe is axe-core 4.14.1, which finds barriers in a page, as published by its authors on npm under the MPL 2.0.
//
//go:embed axe/axe.min.js
var axe string

// Browser is a separate profile in the Chromium that the tests of a program share.
type Browser struct {
	ctx context.Context
	id  cdp.BrowserContextID
}

// chromium is a process with all tabs.
type chromium struct {
	ctx  context.Context
	stop func()
}

// shared is the Chromium of the program. The first test that needs it starts it, and Tests ends it.
var shared struct {
	sync.Once
	*chromium
}

// Tests runs tests, and ends the Chromium that they have shared. It is for goleak.VerifyTestMain.
type Tests struct{ *testing.M }

// Run implements goleak.TestingM.
func (t Tests) Run() int {
	code := t.M.Run()
	if shared.chromium != nil {
		shared.stop()
	}
	return code
}

// find returns the path of a Chromium, "" when there is none. It prefers the one without windows, which computes less.
func find() string {
	for _, name := range []string{"chromium-headless-shell", "chromium"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// launch starts a Chromium, which outlives the test.
func launch(t *testing.T, path string) *chromium {
	t.Helper()
	const prefix = "expediter-chromium-"
	root := os.TempDir() //nolint:usetesting // it outlives the test
	check.OK(t, private.Sweep(root, prefix))
	profile := check.Must(private.Make(root, prefix))(t)
	of, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.UserDataDir(profile.Path), chromedp.NoSandbox, chromedp.Flag("disable-gpu", true),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))...)
	ctx, cancel := chromedp.NewContext(of)
	check.OK(t, chromedp.Do(ctx))
	return &chromium{ctx: ctx, stop: func() {
		cancel()
		stop()
		_ = profile.Remove() // what it still writes goes with the next run
	}}
}

// Browse returns a browser for a test, or skips the test.
func Browse(t *testing.T) *Browser {
	t.Helper()
	path := find()
	if path == "" {
		check.Require(t, os.Getenv(require) == "", "chromium is missing, and %s is set", require)
		t.Skip("chromium is missing: install it to look at pages")
	}
	shared.Do(func() { shared.chromium = launch(t, path) })
	check.Require(t, shared.chromium != nil, "chromium did not start")
	of := chromedp.FromContext(shared.ctx).Browser
	made, err := cdp.Call(shared.ctx, of, target.CreateBrowserContext, target.CreateBrowserContextParams{})
	check.OK(t, err)
	t.Cleanup(func() {
		check.OK(t, check.Err(cdp.Call(shared.ctx, of, target.DisposeBrowserContext, target.DisposeBrowserContextParams(made))))
	})
	return &Browser{ctx: shared.ctx, id: made.BrowserContextID}
}

// View has the properties of a reader's view of a page.
type View struct {
	// Dark reports whether dark colours are preferred.
	Dark bool

	// NoScript reports whether scripts are off.
	NoScript bool

	// Width is the width of the window, in CSS pixels.
	Width int64
}

// Page is an open page.
type Page struct {
	*testing.T

	ctx        context.Context
	mu         sync.Mutex
	complaints []string
	view       View
}

// Open opens a page, until the end of the test.
func (b *Browser) Open(t *testing.T, url string, v View) *Page {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithExistingBrowserContext(b.id))
	t.Cleanup(cancel)
	p := &Page{T: t, ctx: ctx}
	check.OK(t, chromedp.Do(ctx)) // the end of this context is that of the page
	check.OK(t, chromedp.Listen(ctx, p.hear))
	p.Visit(url, v)
	return p
}

// Visit leaves the page for another, or loads the same page in another view. That costs half as much as Open.
func (p *Page) Visit(url string, v View) {
	p.Helper()
	p.show(v)
	p.Do(chromedp.Navigate(url))
}

// show shows the page in another view.
func (p *Page) show(v View) {
	p.Helper()
	p.view = v
	scheme := map[bool]string{false: "light", true: "dark"}[v.Dark]
	p.Do(
		call(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: v.Width, Height: 800, DeviceScaleFactor: 1, Mobile: v.Width < 600,
		}),
		call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		}),
		call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: v.NoScript}),
	)
}

// Everybody is Looks on a telephone by night and on a large screen by day: neither colours nor layout depend on both.
func (p *Page) Everybody(name string) {
	p.Helper()
	before := p.view
	for _, v := range []View{{Dark: true, Width: 390}, {Width: 1440}} {
		p.show(v)
		p.Looks(fmt.Sprintf("%s-%d-%s", name, v.Width, map[bool]string{false: "light", true: "dark"}[v.Dark]))
	}
	p.show(before)
}

// call returns the action of a command of the browser's protocol.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		return check.Err(cdp.Call(ctx, t, command, params))
	})
}

// hear records the browser's complaints: loads that a page's policy forbids, errors of scripts, failed requests.
func (p *Page) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		p.complaints = append(p.complaints, string(e.Entry.Level)+": "+e.Entry.Text+" "+e.Entry.URL)
	case *runtime.EventExceptionThrown:
		p.complaints = append(p.complaints, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		p.complaints = append(p.complaints, "console: "+string(e.Type))
	}
}

// Excuse forgets the browser's complaints so far that contain a text.
func (p *Page) Excuse(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.complaints = slices.DeleteFunc(p.complaints, func(complaint string) bool { return strings.Contains(complaint, text) })
}

// Do makes the browser do something with the page.
func (p *Page) Do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	for _, action := range actions {
		Get(p, action)
	}
}

// need ends the test when an action of the browser failed, and shows the page of that moment.
func (p *Page) need(err error) {
	p.Helper()
	if err == nil {
		return
	}
	ctx, stop := context.WithTimeout(p.ctx, 5*time.Second)
	defer stop()
	shows, unseen := chromedp.Run(ctx, chromedp.Evaluate[string](`document.title + ": " + document.body.innerText.slice(0, 2000)`))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Fatalf("%v: the page shows %q (%v) and complains of %q", err, shows, unseen, p.complaints[max(0, len(p.complaints)-10):])
}

// Get returns the result of an action on the page.
func Get[T any](p *Page, action chromedp.Action[T]) T {
	p.Helper()
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	found, err := chromedp.Run(ctx, action)
	p.need(err)
	return found
}

// Press presses keys, one after the other.
func (p *Page) Press(keys ...string) {
	p.Helper()
	for _, key := range keys {
		p.Do(chromedp.KeyEvent(key))
	}
}

// Submit presses a key that leads to another page, and waits for the page.
func (p *Page) Submit(key string) {
	p.Helper()
	ctx, stop := context.WithTimeout(p.ctx, patience)
	defer stop()
	_, err := chromedp.RunResponse(ctx, chromedp.KeyEvent(key))
	p.need(err)
}

// Looks stores a picture of the page under a name, and reports barriers: the findings of axe, the complaints of the browser, and a page
// that is wider than the window. Scripts must be on.
func (p *Page) Looks(name string) {
	p.Helper()
	if folder := os.Getenv(screenshots); folder != "" {
		picture := Get(p, chromedp.FullScreenshot(100))
		check.OK(p.T, os.MkdirAll(folder, 0o750))
		check.OK(p.T, os.WriteFile(filepath.Join(folder, name+".png"), picture, 0o600))
	}
	if !Get(p, chromedp.Evaluate[bool](`"axe" in window`)) {
		Get(p, chromedp.Evaluate[int](axe+";0"))
	}
	found := Get(p, chromedp.Evaluate[[]string](`axe.run({resultTypes: ["violations"]}).then(
		r => r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html).join(" ")))`, chromedp.EvalAwaitPromise))
	if Get(p, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)) > p.view.Width {
		found = append(found, "it is wider than the window")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, problem := range append(found, p.complaints...) {
		p.Errorf("%s: %s", name, problem)
	}
}
