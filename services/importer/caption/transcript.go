package caption

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Segment is a part of a transcript. In JSON the times are seconds: {"start":12.34,"dur":2.5,"text":"..."}.
type Segment struct {
	// Start is when it begins.
	Start time.Duration

	// Dur is how long it lasts. Zero when that is not known.
	Dur time.Duration

	// Text is one line without markup, never empty.
	Text string
}

// Transcript is what is said in a track.
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

// TranscriptOptions sets what to make of the cues. The zero value is right for an extractor: the lines of rolling captions
// once, no sounds, a segment per cue.
type TranscriptOptions struct {
	// KeepRepeats leaves rolling captions as they are. Defaults to false.
	KeepRepeats bool

	// KeepSounds leaves notes such as [Music] in the text. Defaults to false.
	KeepSounds bool

	// Sentences joins segments until one ends like a sentence, a pause follows, or the next would make it longer than
	// 15 seconds. Defaults to false.
	Sentences bool
}

// Transcript makes a transcript of the cues. Cues without text give no segment.
func (t Track) Transcript(opts TranscriptOptions) Transcript {
	segments := make([]Segment, 0, len(t.Cues))
	add := func(start, end time.Duration, text string) {
		if !opts.KeepSounds {
			text = withoutSounds(text)
		}
		if text != "" {
			segments = append(segments, Segment{Start: start, Dur: max(0, end-start), Text: text})
		}
	}
	if rolls := t.Format == FormatWebVTT || t.Format == FormatSRT; rolls && !opts.KeepRepeats && scrolls(t.Cues) {
		unroll(t.Cues, add)
	} else {
		for _, c := range t.Cues {
			add(c.Start, c.End, c.Plain())
		}
	}
	if t.Timed {
		slices.SortStableFunc(segments, func(a, b Segment) int { return cmp.Compare(a.Start, b.Start) })
	}
	if opts.Sentences {
		segments = sentences(segments, t.Timed)
	}
	return Transcript{Language: t.Language, Timed: t.Timed, Truncated: t.Truncated, Segments: segments}
}

const (
	maxSentence = 15 * time.Second
	// maxSentenceBytes ends a sentence in text without times.
	maxSentenceBytes = 1000
	// pauseTime ends a sentence: people breathe in less.
	pauseTime = time.Second
)

// sentences joins segments until one ends like a sentence, there is a pause, or it becomes too long. The times stay those of
// the cues: a segment is never split, because nobody knows when its second half is said.
func sentences(segments []Segment, timed bool) []Segment {
	joined := segments[:0]
	var parts []string
	size := 0
	flush := func() {
		if len(parts) > 1 {
			joined[len(joined)-1].Text = strings.Join(parts, " ")
		}
		parts, size = parts[:0], 0
	}
	for _, next := range segments {
		if len(parts) > 0 {
			last := &joined[len(joined)-1]
			end := last.Start + last.Dur
			full := size+len(next.Text) > maxSentenceBytes ||
				timed && (next.Start-end > pauseTime || next.Start+next.Dur-last.Start > maxSentence)
			if !full && !endsSentence(parts[len(parts)-1]) {
				last.Dur = max(end, next.Start+next.Dur) - last.Start
				parts = append(parts, next.Text)
				size += len(next.Text)
				continue
			}
			flush()
		}
		joined = append(joined, next)
		parts, size = append(parts, next.Text), len(next.Text)
	}
	flush()
	return joined
}

// endsSentence reports whether a text ends with a mark that ends a sentence, quotes and brackets after it left aside.
func endsSentence(text string) bool {
	text = strings.TrimRight(text, `"'”’»)]}`)
	last, _ := utf8.DecodeLastRuneInString(text)
	return strings.ContainsRune(".!?…。！？؟।", last) && text != ""
}
