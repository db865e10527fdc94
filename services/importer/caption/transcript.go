package caption

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// Segment is a part of a transcript. In JSON the times are seconds: {"start":12.34,"dur":2.5,"text":"..."}.
type Segment struct {
	// Start is the time at which the segment begins.
	Start time.Duration

	// Dur is the length of the segment. Zero when it is not known.
	Dur time.Duration

	// Text is one line without markup, never empty.
	Text string
}

// Transcript is the text of a track.
type Transcript struct {
	// Language is the language that the file names; empty when it names none.
	Language string `json:"language,omitempty"`

	// Timed reports whether the segments have times.
	Timed bool `json:"timed"`

	// Truncated reports that a limit cut something.
	Truncated bool `json:"truncated"`

	// Segments are ordered by their start.
	Segments []Segment `json:"segments"`
}

// Transcript makes a transcript with a segment for each cue, without notes such as "[Music]", and with each line of rolling captions,
// of captions that grow by a word, and of joined segments once. A cue without text gives no segment.
func (t Track) Transcript() Transcript {
	segments := make([]Segment, 0, len(t.Cues))
	add := func(start, end time.Duration, text string) {
		if text = withoutSounds(text); text != "" {
			segments = append(segments, Segment{Start: start, Dur: max(0, end-start), Text: text})
		}
	}
	cues, rolls := t.Cues, false
	if t.Format != FormatText {
		cues = distinct(cues)
		if rolls = scrolls(cues); !rolls {
			cues = grown(cues)
			rolls = scrolls(cues)
		}
	}
	if rolls {
		unroll(cues, add)
	} else {
		for _, c := range cues {
			add(c.Start, c.End, c.Plain())
		}
	}
	if t.Timed {
		slices.SortStableFunc(segments, func(a, b Segment) int { return cmp.Compare(a.Start, b.Start) })
	}
	return Transcript{Language: t.Language, Timed: t.Timed, Truncated: t.Truncated, Segments: segments}
}

// segmentJSON is a Segment on the wire.
type segmentJSON struct {
	Start float64 `json:"start"`
	Dur   float64 `json:"dur"`
	Text  string  `json:"text"`
}

// MarshalJSON writes the times as seconds, to the millisecond.
func (s Segment) MarshalJSON() ([]byte, error) {
	return json.Marshal(segmentJSON{float64(s.Start.Milliseconds()) / 1000, float64(s.Dur.Milliseconds()) / 1000, s.Text})
}

// UnmarshalJSON is the inverse of MarshalJSON. It refuses times that a time.Duration cannot hold.
func (s *Segment) UnmarshalJSON(data []byte) error {
	var wire segmentJSON
	if err := json.Unmarshal(data, &wire); err != nil {
		return fmt.Errorf("segment: %w", err)
	}
	if most := max(math.Abs(wire.Start), math.Abs(wire.Dur)); most > maxStamp.Seconds() {
		return fmt.Errorf("segment: a time of %v seconds is out of range", most)
	}
	millis := func(seconds float64) time.Duration { return time.Duration(math.Round(seconds*1000)) * time.Millisecond }
	*s = Segment{Start: millis(wire.Start), Dur: millis(wire.Dur), Text: wire.Text}
	return nil
}

// WriteText writes a line per segment, "[12.34s] text", without stamps when the track has no times. Parse reads the
// lines back to the same transcript.
func (t Transcript) WriteText(w io.Writer) error {
	buffered := bufio.NewWriter(w) // returns its first error at the end
	var line []byte
	for _, s := range t.Segments {
		line = line[:0]
		if t.Timed {
			line = appendStamp(line, s.Start)
		}
		_, _ = buffered.Write(append(append(line, s.Text...), '\n')) // see above
	}
	return buffered.Flush()
}

// appendStamp appends "[12.34s] ": seconds, rounded to hundredths.
func appendStamp(b []byte, at time.Duration) []byte {
	hundredths := (max(0, at).Milliseconds() + 5) / 10
	return fmt.Appendf(b, "[%d.%02ds] ", hundredths/100, hundredths%100)
}
