package operate

import (
	"cmp"
	"fmt"

	"github.com/expediter-io/expediter/pkg/contracts"
)

// ImportWords describes the state and the progress of an import, which waits for waitingFor, "" for nothing.
func ImportWords(s contracts.ImportStatus, waitingFor string) string {
	switch {
	case s.Status == contracts.ImportQueued:
		return "queued"
	case s.Status == contracts.ImportReady:
		return "ready: there is a recipe"
	case s.Status == contracts.ImportFailed:
		return fmt.Sprintf("failed (%s): %s", s.Code, s.Error)
	case waitingFor != "":
		return fmt.Sprintf("waiting for %s: %s", waitingFor, s.Error)
	case s.Error != "":
		return "retrying: " + s.Error
	}
	words := cmp.Or(map[string]string{"extract": "making the recipe", "create": "storing the recipe"}[s.Step], "reading the source")
	if s.Attempt > 1 {
		words += fmt.Sprintf(", attempt %d", s.Attempt)
	}
	return words
}
