// Again runs tests many times, none of them from the cache: on the idle machine, beside two busy loops, and on one core. It
// prints how often each test failed, and keeps the output of every failure in a file.
//
//	go run ./test/again -idle 12 -busy 6 -one-core 3               # every test of the workspace
//	go run ./test/again -idle 200 -run '^TestKilled' ./pkg/worker/test
//	go run ./test/again -busy 200 -parallel 4 -run '^TestKilled' ./pkg/worker/test
//
// The tests of one package are built once and run by themselves; those of several are run by "go test". Arguments after
// -args are for the tests. An interrupt ends the run that is under way, and the table tells of what was found until then.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := again(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, errFailed) {
		fmt.Fprintln(os.Stderr, "again:", err)
	}
	if err != nil {
		os.Exit(1) //nolint:gocritic // the process ends with its signals
	}
}
