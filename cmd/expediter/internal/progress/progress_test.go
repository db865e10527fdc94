package progress

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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

func run(b *Bar) {
	b.Asked(4)
	b.Answered("FOUND", 10)
	b.Answered("NOT_FOUND", 20)
	b.Answered("PENDING", 30)
}

func TestBarCounts(t *testing.T) {
	t.Parallel()
	for _, total := range []int64{0, 40, 5} {
		for _, visible := range []bool{true, false} {
			b := New(Config{Total: total, Visible: visible})
			run(b)
			check.Equal(t, Counts{Found: 1, NotFound: 1, Pending: 2}, b.Counts())
			b.Close()
		}
	}
}

func TestBarShowsCountsOnATerminal(t *testing.T) {
	t.Parallel()
	for _, total := range []int64{0, 40} {
		var terminal lockedBuffer
		b := New(Config{Total: total, Visible: true, Writer: &terminal})
		run(b)
		b.Close()
		got := terminal.buf.String()
		check.That(t, strings.Contains(got, "found, "), "total %d: no counts in %q", total, got)
		// The line after the last return is blank: the results come next.
		last := got[strings.LastIndex(got, "\r")+1:]
		check.That(t, strings.TrimSpace(last) == "", "total %d: %q is left on the line", total, last)
	}
}

func TestBarIsSilentElsewhere(t *testing.T) {
	t.Parallel()
	var file lockedBuffer
	b := New(Config{Total: 40, Writer: &file})
	run(b)
	b.Close()
	check.Same(t, "wrote", file.buf.String(), "")
}

type goneTerminal struct{}

func (goneTerminal) Write([]byte) (int, error) { return 0, errors.New("hung up") }

func TestBarSurvivesItsTerminal(t *testing.T) {
	t.Parallel()
	b := New(Config{Total: 40, Visible: true, Writer: goneTerminal{}})
	run(b)
	b.Close()
	check.Same(t, "lost count", b.Counts().Found, 1)
}

func TestBarConcurrently(t *testing.T) {
	t.Parallel()
	var terminal lockedBuffer
	b := New(Config{Total: 1000, Visible: true, Writer: &terminal})
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := range 100 {
				b.Asked(1)
				b.Answered("FOUND", int64(i))
			}
		})
	}
	group.Wait()
	b.Close()
	check.Same(t, "counted", b.Counts().Found, 800)
}

func TestNilBar(t *testing.T) {
	t.Parallel()
	var b *Bar
	run(b)
	b.Close()
	check.Same(t, "counted", b.Counts(), Counts{})
}

func ExampleBar() {
	bar := New(Config{}) // not a terminal: nothing is drawn
	defer bar.Close()
	bar.Asked(3)
	bar.Answered("FOUND", 120)
	bar.Answered("NOT_FOUND", 260)
	fmt.Println(bar.Counts())
	// Output: 1 found, 1 not found, 1 pending
}

// TestBarFitsTheTerminal: no frame is wider than a line, or the terminal would show one below the other.
func TestBarFitsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, total := range []int64{0, 40} {
		for width := 20; width < 130; width++ {
			var terminal lockedBuffer
			b := New(Config{Total: total, Visible: true, Width: width, Writer: &terminal})
			b.counts = Counts{Found: 1_234_567, NotFound: 1_234_567}
			run(b)
			b.Close()
			for frame := range strings.SplitSeq(terminal.buf.String(), "\r") {
				n := utf8.RuneCountInString(frame)
				check.That(t, n < width, "%d cells of %d, total %d: %q", n, width, total, frame)
			}
		}
	}
}

// The bar shows the present step, is drawn anew while nothing happens, and goes away.
func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := NewSteps(Config{Visible: true, Writer: &out})
		s.Set("reading the source", 0.25)
		synctest.Wait()
		check.Says(t, out.String(), "reading the source", "25%")
		out.Reset()
		<-time.After(3*tick + tick/2)
		synctest.Wait()
		n := strings.Count(out.String(), "reading the source")
		check.That(t, n == 3, "it draws %d times in three seconds: %q", n, out.String())
		s.Set(strings.Repeat("x", 100), 2)
		text := out.String()
		check.That(t, !strings.Contains(text, strings.Repeat("x", maxText)) && strings.Contains(text, "99%"), "it draws %q", text)
		s.Close()
		if text := out.String(); !strings.HasSuffix(text, "\r") {
			t.Errorf("it leaves %q", text[max(0, len(text)-40):])
		}
	})
}

func TestStepsThatNobodySees(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := NewSteps(Config{Writer: &out})
	s.Set("x", 1)
	s.Close()
	var none *Steps
	none.Set("x", 1)
	none.Close()
	check.That(t, out.Len() <= 0, "%q", out.String())
}
