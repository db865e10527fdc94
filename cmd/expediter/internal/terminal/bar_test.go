package terminal

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

// lockedBuffer is a terminal that may be written to from several goroutines.
type lockedBuffer struct {
	buf bytes.Buffer
	mu  sync.Mutex
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// The bar shows the present text, is drawn anew while nothing happens, and goes away.
func TestBar(t *testing.T) {
	for _, total := range []int64{0, 40} {
		synctest.Test(t, func(t *testing.T) {
			var out lockedBuffer
			b := newBar(&out, true, 0, total, true)
			b.Set("reading the source", 10)
			synctest.Wait()
			check.Says(t, out.buf.String(), "reading the source")
			out.buf.Reset()
			<-time.After(3*tick + tick/2)
			synctest.Wait()
			n := strings.Count(out.buf.String(), "reading the source")
			check.That(t, n == 3, "it draws %d times in three seconds: %q", n, out.buf.String())
			check.That(t, total == 0 || strings.Contains(out.buf.String(), "25%"), "it draws %q", out.buf.String())
			b.Set("more than there is", 80)
			check.That(t, total == 0 || !strings.Contains(out.buf.String(), "100%"), "it draws %q", out.buf.String())
			b.Close()
			// The line after the last return is blank: the results come next.
			got := out.buf.String()
			last := got[strings.LastIndex(got, "\r")+1:]
			check.That(t, strings.TrimSpace(last) == "", "total %d: %q is left on the line", total, last)
		})
	}
}

type goneTerminal struct{}

func (goneTerminal) Write([]byte) (int, error) { return 0, errors.New("hung up") }

// A bar that nobody sees writes nothing, and one without a terminal does no harm.
func TestBarsThatNobodySees(t *testing.T) {
	t.Parallel()
	var file lockedBuffer
	for _, b := range []*Bar{newBar(&file, false, 0, 40, false), newBar(goneTerminal{}, true, 0, 0, false), nil} {
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for i := range 100 {
					b.Set("x", int64(i))
				}
			})
		}
		group.Wait()
		b.Close()
	}
	check.Same(t, "wrote", file.buf.String(), "")
}

// No frame is wider than a line, or the terminal would show one below the other.
func TestBarFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, total := range []int64{0, 40} {
		for width := 20; width < 130; width++ {
			var terminal lockedBuffer
			b := newBar(&terminal, true, width, total, true)
			b.Set("1234567 found, 1234567 not found, 0 pending", 10)
			b.Set("1234568 found, 1234567 not found, 2 pending", 20)
			b.Close()
			for frame := range strings.SplitSeq(terminal.buf.String(), "\r") {
				n := utf8.RuneCountInString(frame)
				check.That(t, n < width, "%d cells of %d, total %d: %q", n, width, total, frame)
			}
		}
	}
}
