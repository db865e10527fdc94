package measure

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func split(text string) []words.Word { return words.Split(words.Plain(text)) }

// rested returns the words that a reader left.
func rested(ws []words.Word, used int) string { return textOf(ws[used:]) }
