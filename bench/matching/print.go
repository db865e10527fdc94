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
