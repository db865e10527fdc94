package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/expediter-io/expediter/cmd/expediter/internal/input"
)

// errBadRecords is returned when records of the input could not be used.
var errBadRecords = errors.New("records could not be used")

// problems lists the mistakes in the input, and returns an error that counts them.
func problems(w io.Writer, report input.Report) error {
	for _, problem := range report.Problems {
		fmt.Fprintln(w, problem) //nolint:errcheck // nowhere to say so
	}
	if more := report.Bad - len(report.Problems); more > 0 {
		fmt.Fprintf(w, "... and %d more\n", more) //nolint:errcheck // as above
	}
	if report.Duplicates > 0 {
		fmt.Fprintf(w, "%d records repeat an earlier one and were asked about once\n", report.Duplicates) //nolint:errcheck // as above
	}
	if report.Bad == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d %w", report.Bad, report.Rows, errBadRecords)
}

// openInput opens a file, or for "-" the standard input. The caller closes it.
func (g *globals) openInput(path string) (io.ReadCloser, error) {
	if path == input.Stdin {
		return io.NopCloser(g.config.Stdin), nil
	}
	return os.Open(path) //nolint:gosec,wrapcheck // the person who runs it names the file, and so does the error
}

// inputName is what messages call a file, or the standard input.
func inputName(path string) string {
	if path == input.Stdin {
		return "standard input"
	}
	return path
}

// writeLine writes a line of JSON.
func (g *globals) writeLine(value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	_, err = fmt.Fprintf(g.config.Stdout, "%s\n", line)
	return wrapWrite(err)
}
