// Digest reads the output of "go test -json" and prints what matters of it:
//
//	go test -json work | go run ./test/digest
//
// It prints the line of each package, then which tests were skipped and why, and last the output of the tests that failed.
// The whole output is in a file, which is kept if a package failed. The exit status is that of the reading, so that a shell
// with pipefail ends with that of go test.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/expediter-io/expediter/test/internal/gotest"
)

func main() {
	signal.Ignore(os.Interrupt) // go test ends by it, and then the stream does
	if err := run(os.Stdin, os.Stdout, ""); err != nil {
		fmt.Fprintln(os.Stderr, "digest:", err)
		os.Exit(1)
	}
}

// run digests a stream and keeps its whole output in a file of dir if a package failed.
func run(in io.Reader, out io.Writer, dir string) error {
	log, err := os.CreateTemp(dir, "test-*.log")
	if err != nil {
		return fmt.Errorf("keep the output: %w", err)
	}
	passed, err := gotest.Digest(in, out, log)
	err = errors.Join(err, log.Close())
	if passed {
		return errors.Join(err, os.Remove(log.Name()))
	}
	_, wrote := fmt.Fprintf(out, "\nThe whole output is in %s\nFAIL\n", log.Name())
	return errors.Join(err, wrote)
}
