package modules

import (
	"fmt"
	"io"
)

// Printer writes what a program has to say, and keeps the first error.
type Printer struct {
	W   io.Writer
	Err error
}

// Printf writes as fmt.Fprintf does.
func (p *Printer) Printf(format string, args ...any) {
	if _, err := fmt.Fprintf(p.W, format, args...); p.Err == nil {
		p.Err = err
	}
}
