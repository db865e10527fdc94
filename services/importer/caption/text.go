package caption

import (
	"bytes"
	"io"
	"time"
)

// plainText reads text: one cue per line, or, when the first line has a stamp as in a transcript, one per stamp.
type plainText struct {
	in      *lines
	summary *Summary
	maxCue  int

	cue     Cue // the cue whose text is being read
	cut     bool
	decided bool // it is known whether there are stamps
	have    bool
	text    []byte
}

func (p *plainText) start() error {
	p.summary.Timed = false
	return nil
}

func (p *plainText) next() (Cue, error) {
	for {
		line, err := p.in.next()
		if err != nil {
			if err == io.EOF && p.have { //nolint:errorlint // lines returns it bare
				return p.finish(Cue{Start: p.cue.Start}, false), nil
			}
			return Cue{}, err
		}
		flat := squeeze(string(line))
		if flat == "" {
			continue
		}
		p.decide(flat)
		if !p.summary.Timed {
			return Cue{Text: string(line), Format: FormatText, Line: p.in.number, Truncated: p.in.short}, nil
		}
		at, rest, stamped := stampedLine([]byte(flat))
		if p.have && !stamped {
			p.add([]byte(flat))
			continue
		}
		if !stamped {
			rest = []byte(flat)
		}
		complete := p.have
		cue := p.finish(Cue{Start: at, Format: FormatText, Line: p.in.number}, true)
		p.add(rest)
		if complete {
			return cue, nil
		}
	}
}

// decide finds out from the first line with words whether there are stamps. A note of a sound has none, and it is right to
// leave it out, so that what is below it would come first when the transcript is read again.
func (p *plainText) decide(line string) {
	if p.decided {
		return
	}
	if said := withoutSounds(line); said != "" {
		_, _, p.summary.Timed = stampedLine([]byte(said))
		p.decided = true
	}
}

func (p *plainText) add(line []byte) {
	var cut bool
	if p.text, cut = addLine(p.text, line, p.maxCue); cut {
		p.in.cut("MaxCueBytes", int64(p.maxCue), p.in.number)
	}
	p.cut = p.cut || cut || p.in.short
}

// finish returns the cue that was being read, which ends where the next one starts, and goes on with that.
func (p *plainText) finish(next Cue, have bool) Cue {
	done := p.cue
	done.End, done.Text, done.Truncated = max(done.Start, next.Start), string(p.text), p.cut
	p.cue, p.have, p.cut, p.text = next, have, false, p.text[:0]
	return done
}

// stampedLine reads a stamp as Transcript.WriteText writes it: seconds without leading zeros and two decimals. What looks
// only similar is text.
func stampedLine(line []byte) (at time.Duration, rest []byte, ok bool) {
	s := scanner{text: line}
	if !s.is('[') {
		return 0, nil, false
	}
	from := s.pos
	seconds, length := s.digits()
	if length == 0 || length > 10 || length > 1 && line[from] == '0' || !s.is('.') {
		return 0, nil, false
	}
	hundredths, length := s.digits()
	if length != 2 || !s.is('s') || !s.is(']') || s.pos < len(line) && line[s.pos] != ' ' {
		return 0, nil, false
	}
	return duration(0, 0, min(seconds, int64(maxStamp/time.Second)-1), 10*hundredths), bytes.TrimSpace(line[s.pos:]), true
}
