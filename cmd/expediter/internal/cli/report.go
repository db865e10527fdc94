package cli

import (
	"errors"
	"fmt"
	"io"

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
