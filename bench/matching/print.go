package main

import (
	"fmt"
	"io"

	"github.com/expediter-io/expediter/services/enricher/match"
)

// printer writes lines and keeps the first error.
type printer struct {
	out  io.Writer
	list bool
	err  error
}

func (p *printer) linef(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format+"\n", args...)
	}
}

// mistake lists one pair under --errors.
func (p *printer) mistake(what string, a, b match.Place, e match.Evidence) {
	if p.list {
		p.linef("    %-9s %s  #  %s\n              %s", what, oneLine(a), oneLine(b), e)
	}
}

func oneLine(p match.Place) string {
	return fmt.Sprintf("%s | %s | %s | %s", p.Name, p.Address, p.City, p.Phone)
}

// counts are the cells of a confusion table.
type counts struct {
	Right  int `json:"right"`
	Wrong  int `json:"wrong"`
	Missed int `json:"missed"`
}

func (c counts) precision() float64 { return share(c.Right, c.Right+c.Wrong) }
func (c counts) recall() float64    { return share(c.Right, c.Right+c.Missed) }
func (c counts) f1() float64        { return share(2*c.Right, 2*c.Right+c.Wrong+c.Missed) }

func share(part, whole int) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
