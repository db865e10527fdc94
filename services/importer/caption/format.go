package caption

import (
	"fmt"
	"slices"
	"strings"
)

// Format is a form that captions come in.
type Format string

// The formats.
const (
	// FormatAuto stands for the one that the content has.
	FormatAuto Format = "auto"
	// FormatSRT is SubRip: numbered cues, a comma before the milliseconds.
	FormatSRT Format = "srt"
	// FormatText is text: a transcript whose lines begin with a stamp such as [12.34s], or plain lines without times.
	FormatText Format = "text"
	// FormatWebVTT is WebVTT.
	FormatWebVTT Format = "webvtt"
)

// Formats returns the names of all formats, the one that stands for any first.
func Formats() []string {
	return []string{string(FormatAuto), string(FormatSRT), string(FormatText), string(FormatWebVTT)}
}

// ParseFormat returns the format of the name, upper or lower case. The error lists the names.
func ParseFormat(name string) (Format, error) {
	if lower := strings.ToLower(name); slices.Contains(Formats(), lower) {
		return Format(lower), nil
	}
	return "", fmt.Errorf("format %q: want one of %s", name, strings.Join(Formats(), ", "))
}
