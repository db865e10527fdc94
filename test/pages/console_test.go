package pages_test

import (
	"fmt"
	"testing"

	"github.com/expediter-io/expediter/pkg/service/console"
	"github.com/expediter-io/expediter/test/internal/browser"
	"github.com/expediter-io/expediter/test/internal/consoletest"
)

// looks looks at a page of a console as everybody does: on a telephone and a large screen, by day and by night. Each is closed before the
// next: a browser has six connections to a host over HTTP/1.1, and a page that follows holds one.
func looks(t *testing.T, b *browser.Browser, s *consoletest.Site, name, path string) {
	t.Helper()
	for _, width := range []int64{360, 1440} {
		for _, dark := range []bool{false, true} {
			view := fmt.Sprintf("console-%s-%d-%t", name, width, dark)
			t.Run(view, func(t *testing.T) {
				b.Open(t, s.URL+path, browser.View{Dark: dark, Width: width}).Looks(view)
			})
		}
	}
}

func TestConsoleForEverybody(t *testing.T) {
	b := browser.Start(t)
	looks(t, b, consoletest.Start(t), "overview", "/")
	guard, _ := consoletest.Keys(t)
	looks(t, b, consoletest.Start(t, func(c *console.Config) { c.Access, c.Prefix = guard, "/console" }), "signin", "/")
}
