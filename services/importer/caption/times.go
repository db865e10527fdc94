package caption

import (
	"bytes"
	"strings"
	"time"
	"unicode"

	"github.com/expediter-io/expediter/internal/lazyregexp"
)

const (
	gap   = `[\s\pZ\p{Cf}]*`
	minus = `[-−‐‑–]`
	// anyClock is a time of two to four numbers in any script, which readClock reads or refuses.
	anyClock = minus + `?\p{Nd}+(?:` + gap + `[:.,;：．，；∶٫،]` + gap + minus + `?\p{Nd}+){1,3}`
)

var (
	// looseTimes matches two times at the start of a line: after the number of the cue, marks and brackets, with anything but words between
	// them, and before settings or the text of the cue.
	looseTimes = lazyregexp.New(`^[^\pL\p{Nd}]*?(?:(\p{Nd}+)\)?[\s\pZ]+)?[^\pL\p{Nd}]*?(` +
		anyClock + `)((?:&gt;|[^\pL\p{Nd}])+?)(` + anyClock + `)(?s:(.*))$`)
	// brokenTimes matches an arrow next to a time where looseTimes does not.
	brokenTimes = lazyregexp.New(`^[^\pL]*(?:\pL{1,2}[^\pL]+)*?[-−\x{2010}-\x{2015}]` + gap + `(?:>|&gt;)`)
	pointed     = lazyregexp.New(`[>→⇒⟶➔＞]|&gt;`)
	halfClock   = lazyregexp.New(`\p{Nd}` + gap + `[:;：；]`)
	settings    = lazyregexp.New(`^(?:[A-Za-z][\w-]*:\S+\s*)+$`)
	goesOn      = lazyregexp.New(`^[:.,;]\p{Nd}`)
	// plainClock and millisClock are times as asciiClock returns them.
	plainClock  = lazyregexp.New(`^(?:(\d+):)?(\d+):([0-5]?\d)(?:\.(\d+))?$`)
	millisClock = lazyregexp.New(`^(?:(\d+)[:.;])?(\d+)[:.;]([0-5]?\d)[:.;](\d{3})$`)
)

// span is what a line of times holds.
type span struct {
	id         string
	start, end time.Duration
	text       []byte // the text of a cue that is on the line of its times
}

// readTimes reads a line of times as people and programs write it. meant reports whether the line is one, and good whether its times can
// be read in one way only. A time before zero is zero.
func readTimes(line []byte) (s span, meant, good bool) {
	if m := looseTimes.FindSubmatch(line); m != nil {
		between := string(m[3])
		start, numbers, startGood := readClock(m[2])
		end, endNumbers, endGood := readClock(m[4])
		timed := halfClock.Match(m[2]) || halfClock.Match(m[4]) || strings.Contains(between, "-->") || numbers+endNumbers == 8 // or dates
		if timed && (min(numbers, endNumbers) > 2 || pointed.MatchString(between)) {                                           // or opening hours
			s = span{id: string(m[1]), start: start, end: end}
			if tail := bytes.TrimFunc(m[5], isMargin); !settings.Match(tail) {
				s.text = bytes.TrimLeft(tail, "|]) ")
			}
			return s, true, startGood && endGood && !goesOn.Match(m[5])
		}
	}
	m := brokenTimes.Find(line)
	return s, m != nil && (halfClock.Match(m) || halfClock.Match(line[len(m):min(len(line), len(m)+16)])), false
}

// readClock reads a time, and counts its numbers. A fraction follows a comma or a full stop, or has three digits: with fewer,
// a number after a colon or semicolon is a second or a frame.
func readClock(text []byte) (at time.Duration, numbers int, ok bool) {
	text = bytes.Map(asciiClock, text)
	below := bytes.IndexByte(text, '-') >= 0
	text = bytes.ReplaceAll(text, []byte("-"), nil)
	numbers = len(bytes.FieldsFunc(text, unicode.IsPunct))
	m := plainClock.FindSubmatch(text)
	if m == nil {
		m = millisClock.FindSubmatch(text)
	}
	switch {
	case m == nil, len(m[1]) > 0 && len(m[2]) > 1 && (len(m[2]) > 2 || m[2][0] > '5'): // more minutes than an hour has
		return 0, numbers, false
	case below:
		return 0, numbers, true
	}
	return duration(m[1:]), numbers, true
}

// asciiClock maps the characters of a time in any script to those of ASCII, with a full stop for a comma, and drops space and marks.
func asciiClock(r rune) rune {
	switch {
	case unicode.IsDigit(r):
		value := rune(0)
		for ; unicode.IsDigit(r - 1); r-- { // each script has its digits in order, from zero
			value++
		}
		return '0' + value%10
	case isMargin(r):
		return -1
	}
	for sign, same := range map[rune]string{'.': ".,．，٫،", ':': ":：∶", ';': ";；"} {
		if strings.ContainsRune(same, r) {
			return sign
		}
	}
	return '-'
}

// isMargin reports whether a character is not seen at the margin of a line: space, and marks of direction and byte order.
func isMargin(r rune) bool { return isGap(r) || unicode.Is(unicode.Cf, r) }
