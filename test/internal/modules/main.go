package modules

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Main is the main function of a program: it calls run with the root of the work tree of the working directory and the arguments, and exits
// with 1 after an error. A signal ends the context.
func Main(run func(ctx context.Context, work string, args []string, out io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	work, err := workTree(ctx)
	if err == nil {
		err = run(ctx, work, os.Args[1:], os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:revive // for main
	}
}

// Printer writes the output of a program, and keeps the first error.
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
