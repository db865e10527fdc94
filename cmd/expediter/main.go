// Command expediter runs the services on a laptop, sends them work and shows its outcome.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/expediter-io/expediter/cmd/expediter/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(cli.Run(ctx, cli.Config{}, os.Args[1:]))
}
