// Package caption reads caption files and makes transcripts of them.
//
// [Parse] reads WebVTT, SRT, transcripts and plain text and tells them apart by their content. [Track.Transcript] turns cues
// into the segments that are stored and handed to an extractor.
//
// # WebVTT
//
// The parser follows the parsing rules of the W3C (https://www.w3.org/TR/webvtt1/, section 6): which lines make a cue,
// which timings count and how markup is read are decided there, not here. A file without the signature is refused with a
// [FormatError] that names the format found instead. A block whose timings are wrong is left out as the rules demand, and
// counted in [Track.Skipped], unless [Options.Lenient] is set. Cue settings, regions and style sheets concern the place
// and look of a cue on the screen. They are skipped.
//
// # SRT
//
// SRT has no rules. Times are read in every form that has one meaning, in the digits of any script. The error for others names the line.
//
// # Transcripts
//
// A transcript copied from a player, with "0:12" before its lines or above them, has times. Times that go back are an error.
//
// # Limits
//
// Time is linear in the input. Memory is bounded by [Options]. Nothing is cut in silence: [Track.Truncated] is
// set and [Track.Cuts] reports what was cut, where and by which limit.
//
// # Rolling captions
//
// Automatic captions scroll: every cue shows the line before once more, so that a plain reading finds each word two or three
// times. Parse recognises a track that scrolls by its cues, and takes from each cue the lines that it adds. A line that is
// spoken twice is kept.
package caption

import (
	"cmp"
	"strconv"
	"time"
)

// Cue is a text and the time for which it is shown.
type Cue struct {
	// ID is the identifier, as the file has it; empty when it has none.
	ID string

	// Start is the time at which the text appears. Zero in a track that is not timed.
	Start time.Duration

	// End is the time at which the text disappears. It may be before Start: WebVTT allows that. In a transcript it is
	// the start of the next cue.
	End time.Duration

	// Text is the text as the file has it, markup and all, its lines separated by "\n".
	Text string

	// Format is the format of the input. It decides which parts of Text are markup.
	Format Format

	// Line is the number, from 1, of the input's line with the times, or with the text of a cue that is not timed.
	Line int

	// Truncated reports whether a limit cut the text or the identifier.
	Truncated bool
}

// Track is a file of captions.
type Track struct {
	// Cues are the cues in the order of the file.
	Cues []Cue

	// Cuts are the limits that cut text or cues, each with the first place of a cut.
	Cuts []Cut

	// Format is the format as which the input was read.
	Format Format

	// Language is the line "Language:" of a WebVTT header, such as "en"; empty when there is none.
	Language string

	// Skipped counts cues of WebVTT that were left out because their times are against its rules. See Options.Lenient.
	Skipped int

	// Timed reports whether the cues have times. Plain text has none.
	Timed bool

	// Truncated reports whether a limit cut text or cues; Cuts lists the places.
	Truncated bool
}

// Parse reads captions up to the limits of opts. The error is a [*FormatError] when the text has another format.
//
// A limit is no error: the cues read so far are returned with Truncated set.
func Parse(text []byte, opts Options) (Track, error) {
	opts = opts.withDefaults()
	in := newLines(text, opts)
	format, err := detect(in.rest[:min(len(in.rest), headSize)], opts)
	if err != nil {
		return Track{}, err
	}
	track := Track{Format: format, Timed: true}
	track.read(in, open(in, &track))
	if in.refused != nil {
		return Track{}, in.refused
	}
	track.Cuts, track.Truncated = in.cuts, len(in.cuts) > 0
	return track, nil
}

// open returns the reader of a track's format. It returns the next cue, and false after the last one.
func open(in *lines, track *Track) (next func() (Cue, bool)) {
	cue := unfinished{in: in}
	switch track.Format {
	case FormatWebVTT:
		w := webVTT{unfinished: cue, track: track}
		w.start()
		return w.next
	case FormatSRT:
		s := subRip{unfinished: cue}
		return s.next
	case FormatText:
	}
	p := plainText{unfinished: cue, track: track, clocks: transcribed(in.rest[:min(len(in.rest), headSize)])}
	track.Timed = p.clocks // or else once a line has a stamp
	return p.next
}

// read reads the cues up to the limits.
func (t *Track) read(in *lines, next func() (Cue, bool)) {
	text := int64(0)
	for cue, ok := next(); ok; cue, ok = next() {
		if len(t.Cues) == in.limits.MaxCues {
			in.cut("MaxCues", int64(in.limits.MaxCues), cue.Line)
			return
		}
		if text += int64(len(cue.ID) + len(cue.Text)); text > in.limits.MaxTextBytes {
			in.cut("MaxTextBytes", in.limits.MaxTextBytes, cue.Line)
			return
		}
		t.Cues = append(t.Cues, cue)
	}
}

// The defaults of the limits in Options.
const (
	// DefaultMaxBytes is hundreds of times the size of the longest caption files.
	DefaultMaxBytes = 256 << 20
	// DefaultMaxCueBytes is far more than a screen can show.
	DefaultMaxCueBytes = 4 << 20
	// DefaultMaxCues is a day of cues that last a third of a second.
	DefaultMaxCues = 250_000
	// DefaultMaxTextBytes is a week of speech.
	DefaultMaxTextBytes = 32 << 20
)

// Options sets the limits of reading, none of which is negative. The zero value has the default limits.
type Options struct {
	// MaxBytes is the number of bytes of the text that are read. Defaults to DefaultMaxBytes.
	MaxBytes int64

	// MaxCueBytes is the number of bytes that are kept of one cue, and of one line. Defaults to DefaultMaxCueBytes.
	MaxCueBytes int

	// MaxCues is the number of cues that are kept. Defaults to DefaultMaxCues.
	MaxCues int

	// MaxTextBytes is the number of bytes that are kept of the identifiers and texts of all cues together. Defaults to
	// DefaultMaxTextBytes.
	MaxTextBytes int64

	// Lenient reads the times of WebVTT as it does those of SRT: in any form that has one meaning, and as an error in any other. Without it,
	// a cue whose times are against the rules of WebVTT is left out and counted, as browsers do. Defaults to false.
	Lenient bool

	// Timed refuses text without times, for input that has to be captions. Defaults to false.
	Timed bool
}

func (o Options) withDefaults() Options {
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	o.MaxCueBytes = cmp.Or(o.MaxCueBytes, DefaultMaxCueBytes)
	o.MaxCues = cmp.Or(o.MaxCues, DefaultMaxCues)
	o.MaxTextBytes = cmp.Or(o.MaxTextBytes, DefaultMaxTextBytes)
	return o
}

// FormatError is returned when the input has no format that can be read.
type FormatError struct {
	// Found describes the input in a few words, with its start where that helps.
	Found string

	// Hint is advice.
	Hint string

	// Line is the number of the line that cannot be read, from 1. Zero when it is the whole input.
	Line int
}

// Error implements error.
func (e *FormatError) Error() string { return "not captions: found " + e.Found + "; " + e.Hint }

// Cut is a place at which a limit cut text or cues.
type Cut struct {
	// Limit is the name of the limit in Options.
	Limit string

	// Max is the value of the limit.
	Max int64

	// Line is the number of the line of the cut, from 1.
	Line int
}

// String returns the place of the cut and its limit.
func (c Cut) String() string {
	return "cut at line " + strconv.Itoa(c.Line) + " by " + c.Limit + " (" + strconv.FormatInt(c.Max, 10) + ")"
}
