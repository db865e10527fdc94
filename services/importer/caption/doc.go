// Package caption reads caption files and makes transcripts of them.
//
// [Parse] reads WebVTT, SRT, transcripts and plain text and tells them apart by their content; [Each] does the same cue by
// cue, in constant memory. [Track.Transcript] turns cues into the segments that are stored and handed to an extractor.
//
// # WebVTT
//
// The parser follows the parsing rules of the W3C (https://www.w3.org/TR/webvtt1/, section 6): which lines make a cue,
// which timings count and what markup means are decided there, not here. A file without the signature is refused with a
// [FormatError] that reports what was found instead. A block whose timings are wrong is left out as the rules demand, and
// counted in [Summary.Skipped]. Cue settings, regions and style sheets concern the place and look of a cue on the screen
// and are read over.
//
// # Limits
//
// Time is linear in the input. Memory is bounded by [Options], whatever the input holds. Nothing is cut in silence:
// [Summary.Truncated] is set and [Summary.Cuts] reports what was cut, where and by which limit.
//
// # Rolling captions
//
// Automatic captions scroll: every cue shows the line before once more, so that a plain reading finds each word two or three
// times. A track that scrolls is recognised by its cues, and each cue then gives the lines that it adds. What is really
// said twice is kept.
package caption
