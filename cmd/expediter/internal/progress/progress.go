// Package progress shows the progress of a run on a terminal, and nothing elsewhere.
package progress

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

// Config configures a progress bar.
type Config struct {
	// Predict shows the time that is left. Defaults to false: that of another program is unknown.
	Predict bool

	// Total is the whole, such as the bytes of an input. Defaults to 0: unknown, and then only the text is shown.
	Total int64

	// Visible shows the bar. Set it when Writer is a terminal. Defaults to false: nothing is written.
	Visible bool

	// Width is the number of cells of a line of the terminal. Defaults to 80.
	Width int

	// Writer is the terminal, usually the standard error. Defaults to io.Discard.
	Writer io.Writer
}

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

// New returns a bar. The caller has to Close it.
func New(cfg Config) *Bar {
	if cfg.Writer == nil {
		cfg.Writer = io.Discard
	}
	total := cfg.Total
	if total <= 0 {
		total = -1
	}
	width, length := cmp.Or(cfg.Width, 80), 20
	if width < 100 {
		length = 4
	}
	timed := width >= 60
	b := &Bar{done: make(chan struct{}), room: width - frame - length, bar: progressbar.NewOptions64(total,
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetElapsedTime(timed),
		progressbar.OptionSetPredictTime(timed && cfg.Predict && cfg.Total > 0),
		progressbar.OptionSetSpinnerChangeInterval(0), // otherwise it starts a goroutine that cannot be waited for
		progressbar.OptionSetVisibility(cfg.Visible),
		progressbar.OptionSetWidth(length),
		progressbar.OptionSetWriter(cfg.Writer),
		progressbar.OptionThrottle(redraw),
	)}
	if timed {
		b.room -= clock
	}
	if cfg.Visible {
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
			_ = b.bar.RenderBlank() //nolint:errcheck // a terminal that is gone must not end the run
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
	_ = b.bar.Set64(done) //nolint:errcheck // as above
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
	_ = b.bar.Finish() //nolint:errcheck // as above
}
