package caption

import (
	"bytes"
	"math"
	"regexp"
	"strconv"
	"time"
)

// maxStamp stands for a stamp that is longer than a time.Duration can be, some 292 years.
const maxStamp = time.Duration(math.MaxInt64 - math.MaxInt64%int64(time.Millisecond))

const (
	// vttStamp is a WebVTT timestamp (section 6.3 of the rules, "collect a WebVTT timestamp"): hours of any length or none.
	vttStamp = `(?:(\d+):)?([0-5]\d):([0-5]\d)\.(\d{3})`
	// srtStamp is a time in an SRT file: the fraction follows a comma, a full stop or a colon, or is missing.
	srtStamp = `(?:(\d+):)?([0-5]?\d):([0-5]?\d)(?:[,.:](\d+))?`
)

var (
	// vttLine is a line of "collect WebVTT cue timings and settings". The text after the second time has settings, which cannot
	// invalidate the line.
	vttLine = regexp.MustCompile(`^\s*` + vttStamp + `\s*-->\s*` + vttStamp + `(?:\D|$)`)
	vttTag  = regexp.MustCompile(`^` + vttStamp + `$`)
	srtLine = regexp.MustCompile(`^` + srtStamp + `\s*-->\s*` + srtStamp + `(?:[^\d,.:]|$)`)
	// textStamp is a stamp as Transcript.WriteText writes it: seconds without leading zeros and two decimals.
	textStamp = regexp.MustCompile(`^\[(0|[1-9]\d{0,9})\.(\d\d)s\](?: |$)`)
)

// timings returns the times of a line that vttLine or srtLine describes.
func timings(form *regexp.Regexp, line []byte) (start, end time.Duration, ok bool) {
	m := form.FindSubmatch(line)
	if m == nil {
		return 0, 0, false
	}
	return duration(m[1:5]), duration(m[5:9]), true
}

// duration returns the duration of a stamp's hours, minutes, seconds and fraction, at most maxStamp.
func duration(parts [][]byte) time.Duration {
	number := func(digits string) int64 {
		n, err := strconv.ParseInt("0"+digits, 10, 64)
		if err != nil {
			return math.MaxInt64
		}
		return n
	}
	hours := number(string(parts[0]))
	if hours >= int64(maxStamp/time.Hour) {
		return maxStamp
	}
	seconds := hours*3600 + number(string(parts[1]))*60 + number(string(parts[2]))
	return time.Duration(seconds)*time.Second + time.Duration(number((string(parts[3]) + "000")[:3]))*time.Millisecond
}

// stampedLine reads the stamp of a line of a transcript. Any other text is no stamp.
func stampedLine(line []byte) (at time.Duration, rest []byte, ok bool) {
	m := textStamp.FindSubmatch(line)
	if m == nil {
		return 0, nil, false
	}
	at, err := time.ParseDuration(string(m[1]) + "." + string(m[2]) + "s")
	if err != nil {
		at = maxStamp.Truncate(time.Second) - time.Second
	}
	return at, bytes.TrimSpace(line[len(m[0]):]), true
}
