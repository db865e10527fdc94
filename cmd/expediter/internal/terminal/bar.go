package terminal

import (
	"cmp"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// redraw is the least time between two drawings, and tick the interval at which the elapsed time is drawn.
const (
	redraw = 100 * time.Millisecond
	tick   = time.Second
)

// Bar shows in one line how far something is, and for how long it has been under way. Its methods may be called from several
// goroutines. A nil Bar shows nothing.
type Bar struct {
	bar  *progressbar.ProgressBar
	done chan struct{}
	mu   sync.Mutex
	over sync.WaitGroup
	room int // for the text, in cells
}

// The cells that a line has beside the text: the percentage and the edges of the bar, and the time passed and left.
const (
	frame = 12
	clock = 20
)

// NewBar returns a bar that is shown on a terminal, and nowhere else. total is the whole, such as
// the bytes of a file; 0 when it is not known, and then only the text is shown. predict shows the
// time that is left. The caller has to Close the bar.
func NewBar(on Stream, total int64, predict bool) *Bar {
	return newBar(on, on.TTY, on.Width(), total, predict)
}

func newBar(on io.Writer, visible bool, width int, total int64, predict bool) *Bar {
	if total <= 0 {
		total = -1
	}
	width, length := cmp.Or(width, 80), 20
	if width < 100 {
		length = 4
	}
	timed := width >= 60
	b := &Bar{done: make(chan struct{}), room: width - frame - length, bar: progressbar.NewOptions64(total,
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetElapsedTime(timed),
		progressbar.OptionSetPredictTime(timed && predict && total > 0),
		progressbar.OptionSetSpinnerChangeInterval(0), // otherwise it starts a goroutine that cannot be waited for
		progressbar.OptionSetVisibility(visible),
		progressbar.OptionSetWidth(length),
		progressbar.OptionSetWriter(on),
		progressbar.OptionThrottle(redraw),
	)}
	if timed {
		b.room -= clock
	}
	if visible {
		b.over.Go(b.run)
	}
	return b
}

// run draws the elapsed time between other changes.
func (b *Bar) run() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			b.mu.Lock()
			_ = b.bar.RenderBlank() // a terminal that is gone must not end the run
			b.mu.Unlock()
		case <-b.done:
			return
		}
	}
}

// Set sets the text, which is cut to the line, and how much of the whole is done.
func (b *Bar) Set(text string, done int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if runes := []rune(text); len(runes) > b.room {
		text = string(runes[:max(b.room-1, 0)]) + "…"
	}
	b.bar.Describe(text)
	// An input in UTF-16 is shorter or longer on disk than the text read from it. The bar then ends early or jumps.
	if most := b.bar.GetMax64(); most > 0 {
		done = min(done, most-1) // Close sets the end
	}
	_ = b.bar.Set64(done) // as above
}

// Close removes the bar from the terminal.
func (b *Bar) Close() {
	if b == nil {
		return
	}
	close(b.done)
	b.over.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.bar.Finish() // as above
}
