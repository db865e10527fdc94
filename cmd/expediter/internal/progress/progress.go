// Package progress shows how far a run is, on a terminal, and nothing anywhere else.
package progress

import (
	"cmp"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// redraw is the least time between two drawings.
const redraw = 100 * time.Millisecond

// Config configures a progress bar.
type Config struct {
	// Total is the number of bytes of the whole input. Defaults to 0: unknown, and then only the counts are shown.
	Total int64

	// Visible shows the bar; set it when Writer is a terminal. Defaults to false: nothing is ever written.
	Visible bool

	// Width is how many cells a line of the terminal has. Defaults to 80.
	Width int

	// Writer is the terminal, mostly the standard error. Defaults to io.Discard.
	Writer io.Writer
}

// Bar counts places and draws the counts. Its methods may be called from several goroutines. A nil Bar counts nothing.
type Bar struct {
	bar    *progressbar.ProgressBar
	counts Counts
	mu     sync.Mutex
	room   int // for the counts, in cells
}

// Counts is how many places are in which state.
type Counts struct {
	// Found is how many have a page.
	Found int

	// NotFound is how many have none.
	NotFound int

	// Pending is how many were asked for and have no answer.
	Pending int
}

// String says the counts in words.
func (c Counts) String() string {
	return fmt.Sprintf("%d found, %d not found, %d pending", c.Found, c.NotFound, c.Pending)
}

// short is String for a narrow terminal: found/not found/pending, cut to room.
func (c Counts) short(room int) string {
	text := fmt.Sprintf("%d/%d/%d", c.Found, c.NotFound, c.Pending)
	return text[:min(len(text), max(room, 0))]
}

// The cells that a line has beside the counts: the percentage and the edges of the bar, and the time passed and left.
const (
	frame = 12
	clock = 20
)

// New returns a bar of one line. The caller has to Close it.
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
	room := width - frame - length
	if timed {
		room -= clock
	}
	return &Bar{room: room, bar: progressbar.NewOptions64(total,
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetDescription(Counts{}.short(room)),
		progressbar.OptionSetElapsedTime(timed),
		progressbar.OptionSetPredictTime(timed && cfg.Total > 0),
		progressbar.OptionSetSpinnerChangeInterval(0), // it would start a goroutine that nobody waits for
		progressbar.OptionSetVisibility(cfg.Visible),
		progressbar.OptionSetWidth(length),
		progressbar.OptionSetWriter(cfg.Writer),
		progressbar.OptionThrottle(redraw),
	)}
}

// Asked adds n places that were asked for.
func (b *Bar) Asked(n int) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts.Pending += n
	b.describe()
}

// Answered adds the status of a requested place, and sets how many bytes of the input are done with it. A place whose
// status is neither FOUND nor NOT_FOUND stays pending.
func (b *Bar) Answered(status string, offset int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch status {
	case "FOUND":
		b.counts.Found++
		b.counts.Pending--
	case "NOT_FOUND":
		b.counts.NotFound++
		b.counts.Pending--
	}
	b.describe()
	b.set(offset)
}

// Show shows a text in the place of the counts, and sets how many bytes of the input are done with.
func (b *Bar) Show(text string, offset int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bar.Describe(text[:min(len(text), max(b.room, 0))])
	b.set(offset)
}

// set sets how many bytes are done with. b is locked.
func (b *Bar) set(offset int64) {
	// An input in UTF-16 is shorter on disk than the text read from it, or longer; the bar then ends early or
	// jumps.
	if most := b.bar.GetMax64(); most > 0 {
		offset = min(offset, most-1) // the end is for Close
	}
	_ = b.bar.Set64(offset) //nolint:errcheck // a terminal that is gone must not end the run
}

// Counts returns the counts so far.
func (b *Bar) Counts() Counts {
	if b == nil {
		return Counts{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts
}

// Close removes the bar from the terminal.
func (b *Bar) Close() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.bar.Finish() //nolint:errcheck // as above
}

func (b *Bar) describe() {
	text := b.counts.String()
	if len(text) > b.room {
		text = b.counts.short(b.room)
	}
	b.bar.Describe(text)
}

// tick is how often the time that has passed is drawn anew.
const tick = time.Second

// whole is how many parts a bar of steps has.
const whole = 100

// Steps shows how far one job is, and for how long it has been under way. A nil one shows nothing.
type Steps struct {
	bar  *progressbar.ProgressBar
	done chan struct{}
	mu   sync.Mutex
	over sync.WaitGroup
}

// NewSteps returns a bar for one job. Config.Total has no meaning. The caller has to Close it.
func NewSteps(cfg Config) *Steps {
	if cfg.Writer == nil {
		cfg.Writer = io.Discard
	}
	s := &Steps{done: make(chan struct{}), bar: progressbar.NewOptions64(whole,
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSetPredictTime(false), // the time of the other side is unknown
		progressbar.OptionSetSpinnerChangeInterval(0),
		progressbar.OptionSetVisibility(cfg.Visible),
		progressbar.OptionSetWidth(20),
		progressbar.OptionSetWriter(cfg.Writer),
	)}
	if cfg.Visible {
		s.over.Go(s.run)
	}
	return s
}

// run draws the time that passes while nothing else happens.
func (s *Steps) run() {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.mu.Lock()
			_ = s.bar.RenderBlank() //nolint:errcheck // a terminal that is gone must not end the run
			s.mu.Unlock()
		case <-s.done:
			return
		}
	}
}

// Set sets the name of the present step, and the finished share of the whole, from 0 to 1.
func (s *Steps) Set(text string, share float64) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bar.Describe(shorten(text))
	// The end is for Close.
	_ = s.bar.Set64(min(int64(max(share, 0)*whole), whole-1)) //nolint:errcheck // as above
}

// maxText is how much of a text is shown, so that the bar stays on one line: a terminal that breaks it is not cleared.
const maxText = 45

func shorten(text string) string {
	if runes := []rune(text); len(runes) > maxText {
		return string(runes[:maxText-1]) + "…"
	}
	return text
}

// Close removes the bar from the terminal.
func (s *Steps) Close() {
	if s == nil {
		return
	}
	close(s.done)
	s.over.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.bar.Finish() //nolint:errcheck // as above
}
