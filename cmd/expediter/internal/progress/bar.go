// Package progress shows how far a run is on the terminal of the person who started it, and nothing anywhere else.
package progress

import (
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

	// Writer is the terminal, mostly the standard error. Defaults to io.Discard.
	Writer io.Writer
}

// Bar counts places and draws the counts. Its methods may be called from several goroutines. A nil Bar counts nothing.
type Bar struct {
	bar    *progressbar.ProgressBar
	counts Counts
	mu     sync.Mutex
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

// New returns a bar. The caller has to Close it.
func New(cfg Config) *Bar {
	if cfg.Writer == nil {
		cfg.Writer = io.Discard
	}
	total := cfg.Total
	if total <= 0 {
		total = -1
	}
	return &Bar{bar: progressbar.NewOptions64(total,
		progressbar.OptionClearOnFinish(),
		progressbar.OptionSetDescription(Counts{}.String()),
		progressbar.OptionSetPredictTime(cfg.Total > 0),
		progressbar.OptionSetSpinnerChangeInterval(0), // it would start a goroutine that nobody waits for
		progressbar.OptionSetVisibility(cfg.Visible),
		progressbar.OptionSetWidth(20),
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
	// An input in UTF-16 is shorter on disk than what is read of it, or longer; the bar then ends early or jumps.
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

func (b *Bar) describe() { b.bar.Describe(b.counts.String()) }
