// Command expediter runs the services on a laptop, sends them work and shows its outcome.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/expediter-io/expediter/cmd/expediter/internal/cli"
	"github.com/expediter-io/expediter/pkg/natsrun"
)

func main() {
	natsrun.NodeMain() // up --cluster starts each node as a process of this program
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(cli.Run(ctx, cli.Config{}, os.Args[1:]))
}
