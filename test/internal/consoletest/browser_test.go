package consoletest

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The copy of axe-core is the file that its authors have published.
func TestAxeIsAsPublished(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte(axe))
	check.Equal(t, hex.EncodeToString(sum[:]), "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c",
		"the sum of axe.min.js of axe-core 4.14.1")
}
