package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The figures are those that a person counts. The extractor makes a step of each of the last three sentences about dal, with onions,
// tomatoes and lentils, 20 minutes, 10 minutes and 350 degrees, and nothing of the talk.
func TestFiguresAreThoseOfTheMarks(t *testing.T) {
	t.Parallel()
	const marked = `Title,VideoUrl,TimeStamp,Sentence,IsUsefulSentence,Object(directly related with Verb),Time,Temperature
dal,https://v/1,00:00.0,Hello my friends and welcome back to the channel.,0,,,
dal,https://v/1,00:05.0,Chop two onions and three tomatoes.,0,onions; tomatoes,,
dal,https://v/1,00:10.0,Add two cups of lentils and simmer for twenty minutes.,1,lentils; salt; the pan; dal,20 minutes; 5 minutes,simmer
dal,https://v/1,00:20.0,Then bake it at 350 degrees for ten minutes.,1,it,12 minutes,three fifty; high
talk,https://v/2,00:00.0,We went to the sea and it was great.,0,,,
talk,https://v/2,00:05.0,The hotel had a pool.,1,,,
`
	dir := t.TempDir()
	check.OK(t, os.WriteFile(filepath.Join(dir, "marked.csv"), []byte(marked), 0o600))
	var text strings.Builder
	check.OK(t, check.Err(score(&text, dir)))
	check.Contains(t, strings.Join(strings.Fields(text.String()), " "), "train: 1 videos, 4 sentences; 0 without a recipe"+
		" precision recall F1 right, wrong, missed"+
		" steps: sentences in the time of a step 0.667 1.000 0.800 2, 1, 0"+
		" ingredients: against the marked objects 0.333 0.500 0.400 1, 2, 1"+
		" times, in marked sentences 0.500 0.333 0.400 1, 1, 2"+
		" temperatures, in marked sentences 1.000 0.333 0.500 1, 0, 2"+
		" validation: 1 videos, 2 sentences; 1 without a recipe precision recall F1 right, wrong, missed"+
		" steps: sentences in the time of a step 0.000 0.000 0.000 0, 0, 1 ")
}
