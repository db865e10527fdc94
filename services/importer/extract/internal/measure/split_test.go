package measure

import (
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
)

// FuzzSplit holds that the parts of a text are all of it, each at its place, and that no reader goes beyond them.
func FuzzSplit(f *testing.F) {
	for _, text := range []string{"250克奶油奶酪", "醤油大さじ2と1/2", "两百三十克 1 minute to 2 minutes", "แป้ง200กรัม", "２大さじ"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = words.Plain(text)
		ws, end := Split(text), 0
		for i, w := range ws {
			check.Require(t, w.Text != "" && w.Start >= end && text[w.Start:w.End] == w.Text && strings.TrimSpace(text[end:w.Start]) == "",
				"%q: word %d is %+v after %d", text, i, w, end)
			end = w.End
			_, amount := ReadAmount(ws, i)
			_, duration := ReadDuration(ws, i)
			_, temperature := ReadTemperature(ws, i)
			check.Require(t, i+max(amount, duration, temperature) <= len(ws), "%q: read beyond the end from word %d", text, i)
		}
		if strings.TrimSpace(text[end:]) != "" {
			t.Fatalf("%q: %q is lost", text, text[end:])
		}
	})
}
