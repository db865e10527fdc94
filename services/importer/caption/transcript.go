package caption

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
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

// Transcript makes a transcript with a segment for each cue, without notes such as "[Music]", and with each line of rolling captions
// once. A cue without text gives no segment.
func (t Track) Transcript() Transcript {
	segments := make([]Segment, 0, len(t.Cues))
	add := func(start, end time.Duration, text string) {
		if text = withoutSounds(text); text != "" {
			segments = append(segments, Segment{Start: start, Dur: max(0, end-start), Text: text})
		}
	}
	if rolls := t.Format == FormatWebVTT || t.Format == FormatSRT; rolls && scrolls(t.Cues) {
		unroll(t.Cues, add)
	} else {
		for _, c := range t.Cues {
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
	Start seconds `json:"start"`
	Dur   seconds `json:"dur"`
	Text  string  `json:"text"`
}

// seconds is a duration as a number of seconds, to the millisecond.
type seconds time.Duration

// MarshalJSON writes the duration with as many decimals as it needs, three at most.
func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(time.Duration(s).Milliseconds())/1000, 'f', -1, 64), nil
}

// UnmarshalJSON reads a number that a duration can hold.
func (s *seconds) UnmarshalJSON(data []byte) error {
	var value float64
	if err := json.Unmarshal(data, &value); err != nil {
		return fmt.Errorf("a time in seconds: %w", err)
	}
	millis := math.Round(value * 1000)
	if math.Abs(millis) > float64(maxStamp/time.Millisecond) {
		return fmt.Errorf("a time of %v seconds is out of range", value)
	}
	*s = seconds(time.Duration(millis) * time.Millisecond)
	return nil
}

// MarshalJSON writes the times as seconds, to the millisecond.
func (s Segment) MarshalJSON() ([]byte, error) {
	return json.Marshal(segmentJSON{Start: seconds(s.Start), Dur: seconds(s.Dur), Text: s.Text})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (s *Segment) UnmarshalJSON(data []byte) error {
	var wire segmentJSON
	if err := json.Unmarshal(data, &wire); err != nil {
		return fmt.Errorf("segment: %w", err)
	}
	*s = Segment{Start: time.Duration(wire.Start), Dur: time.Duration(wire.Dur), Text: wire.Text}
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

// wire returns the segments as they are in JSON.
func (t Transcript) wire() []segmentJSON {
	out := make([]segmentJSON, len(t.Segments))
	for i, s := range t.Segments {
		out[i] = segmentJSON{Start: seconds(s.Start), Dur: seconds(s.Dur), Text: s.Text}
	}
	return out
}

// WriteSegments writes the segments as a JSON array.
func (t Transcript) WriteSegments(w io.Writer) error { return encode(w, t.wire()) }

// cueJSON is a Cue in the output of WriteJSON.
type cueJSON struct {
	ID        string  `json:"id"`
	Start     seconds `json:"start"`
	End       seconds `json:"end"`
	Text      string  `json:"text"`
	Plain     string  `json:"plain"`
	Truncated bool    `json:"truncated,omitempty"`
}

// WriteJSON writes a track and the transcript that was made of it as a JSON object: format, kind, language, timed,
// truncated, cuts, skipped, cues and segments. Times are in seconds. A cue has the text as it is in the file ("text") and
// without markup ("plain").
func (t Track) WriteJSON(w io.Writer, transcript Transcript) error {
	cues := make([]cueJSON, len(t.Cues))
	for i, c := range t.Cues {
		cues[i] = cueJSON{c.ID, seconds(c.Start), seconds(c.End), c.Text, c.Plain(), c.Truncated}
	}
	return encode(w, struct {
		Format    Format        `json:"format"`
		Kind      string        `json:"kind,omitempty"`
		Language  string        `json:"language,omitempty"`
		Timed     bool          `json:"timed"`
		Truncated bool          `json:"truncated"`
		Cuts      []Cut         `json:"cuts,omitempty"`
		Skipped   int           `json:"skipped"`
		Cues      []cueJSON     `json:"cues"`
		Segments  []segmentJSON `json:"segments"`
	}{t.Format, t.Kind, t.Language, t.Timed, t.Truncated, t.Cuts, t.Skipped, cues, transcript.wire()})
}

// encode writes a value as a line of JSON, with "<" and "&" as they are.
func encode(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
