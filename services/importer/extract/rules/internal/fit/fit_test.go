package main

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/extract/internal/logistic"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sentencesFile writes marked videos of a few dishes: orders are steps, praise is none. Dishes with odd numbers say the
// opposite, which nobody may learn from.
func sentencesFile(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("Title,VideoUrl,TimeStamp,Sentence,IsUsefulSentence\n")
	for dish := range 12 {
		for i := range 10 {
			step := i % 2
			text := "it is so delicious my friends."
			if step == 1 {
				text = "add the onions to the pan."
			}
			if dish%2 == 1 {
				step = 1 - step
			}
			fmt.Fprintf(&b, "dish %d,video %d,00:%02d.0,%s,%d\n", dish, dish, 5*i, text, step)
		}
	}
	path := filepath.Join(t.TempDir(), "sentences.csv")
	check.OK(t, os.WriteFile(path, []byte(b.String()), 0o600))
	return path
}

func TestFitLearnsFromEveryOtherDish(t *testing.T) {
	t.Parallel()
	videos := check.Must(readVideos(sentencesFile(t)))(t)
	check.Require(t, len(videos) == 6 && len(videos[0].sentences) == 10, "%d videos, %d sentences", len(videos), len(videos[0].sentences))
	base, weights := logistic.Fit(samples(videos), width, nil)
	for i, f := range videos[0].features {
		p := logistic.Sigmoid(logistic.Odds(base, weights, f[:]))
		check.That(t, (p > 0.5) == videos[0].marked[i], "%q is %.2f, marked %v", videos[0].sentences[i].Text, p, videos[0].marked[i])
	}
	again, more := logistic.Fit(samples(videos), width, nil)
	check.That(t, again == base && slices.Equal(more, weights), "a second fit differs")
	check.That(t, weights[talk.StrongBase] > 0 && weights[talk.Taste] < 0,
		"an order weighs %v, praise %v", weights[talk.StrongBase], weights[talk.Taste])
}

func TestRunWritesSource(t *testing.T) {
	t.Parallel()
	in, out := sentencesFile(t), filepath.Join(t.TempDir(), "weights.go")
	check.OK(t, run([]string{"-write", out, in}, io.Discard))
	check.Is(t, check.Err(parser.ParseFile(token.NewFileSet(), out, nil, parser.AllErrors)), nil)
	var printed bytes.Buffer
	check.OK(t, run([]string{in}, &printed))
	check.Equal(t, string(check.Must(os.ReadFile(out))(t)), printed.String())
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	check.Is(t, run(nil, io.Discard), errUsage)
	check.Is(t, run([]string{filepath.Join(t.TempDir(), "none.csv")}, io.Discard), os.ErrNotExist)
}

func TestTimeOf(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]float64{"01:30.5": 90.5, "0:01:30": 90, "": 0, "x": 0} {
		check.Same(t, text, timeOf(text).Seconds(), want)
	}
}
