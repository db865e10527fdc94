package caption

import "strconv"

// FormatError is returned when the input is not what it was to be read as, or is nothing that can be read at all.
type FormatError struct {
	// Want is the format that was asked for; FormatAuto when any would have done.
	Want Format

	// Found reports in a few words what is there instead, with the start of the input where that helps.
	Found string

	// Hint names what to do about it.
	Hint string
}

// Error implements error.
func (e *FormatError) Error() string {
	want := "captions"
	switch e.Want {
	case FormatWebVTT:
		want = "a WebVTT file"
	case FormatSRT:
		want = "an SRT file"
	case FormatText:
		want = "text"
	case FormatAuto:
	}
	return "not " + want + ": found " + e.Found + "; " + e.Hint
}

// Cut is one place where a limit took something away.
type Cut struct {
	// Limit is the name of the limit in Options.
	Limit string `json:"limit"`

	// Max is its value.
	Max int64 `json:"max"`

	// Line is where it happened, counted from 1.
	Line int `json:"line"`
}

// String reports what was cut, where and by which limit.
func (c Cut) String() string {
	return "cut at line " + strconv.Itoa(c.Line) + " by " + c.Limit + " (" + strconv.FormatInt(c.Max, 10) + ")"
}
