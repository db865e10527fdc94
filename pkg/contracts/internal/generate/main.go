// Command generate writes the files that are generated from package contracts. Run it with `go generate` in
// pkg/contracts, from which it finds the root of the repository.
package main

import (
	"fmt"
	"os"

	"github.com/expediter-io/expediter/pkg/contracts/internal/render"
)

func main() {
	if err := render.Write("../.."); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
