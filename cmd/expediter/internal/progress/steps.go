package progress

import (
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

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
