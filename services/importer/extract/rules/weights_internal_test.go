package rules

import (
	"bytes"
	"encoding/csv"
	"flag"
	"fmt"
	"go/format"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/expediter-io/expediter/pkg/natsrun/natstest/check"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract/internal/talk"
	"github.com/expediter-io/expediter/services/importer/extract/internal/words"
	"github.com/expediter-io/expediter/services/importer/extract/rules/rulestest"
)

var (
	speechDir = flag.String("speech", "", "`folder` with transcripts: cooking/sentences-dev.csv, and captions/*.vtt of talks without cooking")
	write     = flag.Bool("write", false, "write the fitted weights to their sources")
)

// widthOfPrior keeps the weights small.
const widthOfPrior = 2

// observed is a text to learn from.
type observed struct {
	rulestest.Text
	sample

	stems []string
}

// observe observes the texts to learn from: each as it is, and then each without its title among as many words of small
// talk, as people speak.
func observe(t *testing.T) []observed {
	t.Helper()
	texts := rulestest.Read("", file(t, "train.txt"))
	chatter := strings.Split(strings.TrimSpace(file(t, "chatter.txt")), "\n")
	for i, text := range texts {
		count := 0
		for _, s := range text.Input.Segments {
			count += len(strings.Fields(s.Text))
		}
		text.Input.Title, text.Input.Segments = "", slices.Clone(text.Input.Segments)
		for j := i; count > 0; j++ {
			line := chatter[j%len(chatter)]
			count -= len(strings.Fields(line)) + 2
			text.Input.Segments = append(text.Input.Segments, caption.Segment{Text: line + "."})
		}
		texts = append(texts, text)
	}
	for i := range chatter { // and small talk alone
		text := rulestest.Text{}
		for j := range 8 {
			text.Input.Segments = append(text.Input.Segments, caption.Segment{Text: chatter[(i+j)%len(chatter)] + "."})
		}
		texts = append(texts, text)
	}
	return observeAll(t, texts)
}

func observeAll(t *testing.T, texts []rulestest.Text) []observed {
	t.Helper()
	out := make([]observed, len(texts))
	for i := range texts {
		r := &reader{stop: func() error { return nil }}
		check.OK(t, r.prepare(texts[i].Input))
		check.OK(t, r.readDescription())
		d := check.Must(r.document())(t)
		traits, stems, err := d.Observe()
		check.OK(t, err)
		out[i] = observed{Text: texts[i], sample: sample{traits[:], float64(one(texts[i].Cooking))}, stems: stems}
	}
	return out
}

// speech returns pieces of 100 words of real speech: of the cooking videos of every other dish, and of half of the captions of talks.
func speech(t *testing.T) []observed {
	t.Helper()
	rows := markedSentences(t)
	column := func(name string) int { return slices.Index(rows[0], name) }
	var texts []rulestest.Text
	dishes, said := map[string]bool{}, ""
	for i, row := range rows[1:] {
		title := row[column("Title")]
		dishes[title] = true
		said += " " + row[column("Sentence")]
		if i+2 < len(rows) && rows[i+2][column("VideoUrl")] == row[column("VideoUrl")] {
			continue
		}
		if len(dishes)%2 == 1 {
			texts = append(texts, pieces(said, true)...)
		}
		said = ""
	}
	names := check.Must(filepath.Glob(filepath.Join(*speechDir, "captions", "*.vtt")))(t)
	for i := 0; i < len(names); i += 2 {
		data := check.Must(os.ReadFile(names[i]))(t)
		track := check.Must(caption.Parse(bytes.NewReader(data), caption.Options{}))(t)
		for _, s := range track.Transcript().Segments {
			said += " " + s.Text
		}
		texts = append(texts, pieces(said, false)...)
		said = ""
	}
	return observeAll(t, texts)
}

// markedSentences returns the sentences of cooking videos that people marked, one to a row: VideoUrl, Title, TimeStamp, Sentence, and
// IsUsefulSentence, 1 for a step.
func markedSentences(t *testing.T) [][]string {
	t.Helper()
	if *speechDir == "" {
		t.Skip("-args -speech FOLDER names no transcripts")
	}
	data := check.Must(os.ReadFile(filepath.Join(*speechDir, "cooking", "sentences-dev.csv")))(t)
	return check.Must(csv.NewReader(bytes.NewReader(data)).ReadAll())(t)
}

// pieces cuts a transcript into texts of 100 words without marks.
func pieces(said string, cooking bool) (out []rulestest.Text) {
	for piece := range slices.Chunk(strings.Fields(strings.ToLower(strings.NewReplacer(".", "", ",", "", "?", "").Replace(said))), 100) {
		text := rulestest.Text{Cooking: cooking}
		for line := range slices.Chunk(piece, 10) {
			text.Input.Segments = append(text.Input.Segments, caption.Segment{Text: strings.Join(line, " ")})
		}
		out = append(out, text)
	}
	return out
}

func file(t *testing.T, name string) string {
	t.Helper()
	data := check.Must(os.ReadFile("testdata/talks/" + name))(t)
	return string(data)
}

// model are the weights of traits and then of stems.
type model struct {
	base    float64
	weights []float64
	stems   map[string]int
}

// fitTexts fits with signs: words of cooks speak for cooking, words of others against it, and small talk never for it. A stem counts
// when it is in three texts.
func fitTexts(texts []observed, chatter map[string]bool) *model {
	m := &model{stems: map[string]int{}}
	in := map[string]int{}
	for i := range texts {
		said, _ := talk.Said(texts[i].stems, func(stem string) bool { return stem[0] >= 'a' })
		for _, stem := range said {
			in[stem]++
			if in[stem] == 6 { // a text is there twice
				m.stems[stem] = talk.TraitCount + len(m.stems)
			}
		}
	}
	signs := make([]float64, talk.TraitCount+len(m.stems))
	for j := range talk.TraitCount {
		signs[j] = 1
		if j == talk.StoriesTold || j >= talk.Computing && j <= talk.Society {
			signs[j] = -1
		}
	}
	for stem, j := range m.stems {
		signs[j] = -float64(one(chatter[stem]))
	}
	samples := make([]sample, len(texts))
	for i := range texts {
		samples[i] = sample{m.observed(&texts[i]), texts[i].label}
	}
	m.base, m.weights = fit(samples, widthOfPrior, signs)
	return m
}

// smallTalk returns the stems of small talk.
func smallTalk(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, stem := range words.Stems(words.Split(file(t, "chatter.txt"))) {
		out[stem] = true
	}
	return out
}

func (m *model) observed(text *observed) []float64 {
	out := append(slices.Clone(text.features), make([]float64, len(m.stems))...)
	said, share := talk.Said(text.stems, func(stem string) bool { return m.stems[stem] > 0 })
	for _, stem := range said {
		out[m.stems[stem]] = share
	}
	return out
}

func (m *model) cooking(text *observed) float64 {
	return talk.Likelihood(m.base, m.weights, m.observed(text))
}

// The weights in use are those that the texts give. With -args -speech FOLDER -write they are made again.
func TestWeightsAreThoseOfTheTexts(t *testing.T) {
	t.Parallel()
	texts := append(observe(t), speech(t)...)
	m := fitTexts(texts, smallTalk(t))
	if *write {
		writeCooking(t, m)
		return
	}
	for i := range texts {
		r := &reader{stop: func() error { return nil }}
		check.OK(t, r.prepare(texts[i].Input))
		check.OK(t, r.readDescription())
		d := check.Must(r.document())(t)
		got := check.Must(d.Cooking(r.stop))(t)
		if want := m.cooking(&texts[i]); math.Abs(want-got) > 0.02 && len(texts[i].stems) < 120 {
			t.Errorf("%s: cooking is %.3f likely by the texts, and %.3f by the weights in use", texts[i].Input.Title, want, got)
		}
	}
}

func writeCooking(t *testing.T, m *model) {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, `// Code generated by a test of extract/rules. DO NOT EDIT.
//
// To make it again, and stems.txt, from extract/rules/testdata/talks/train.txt and real transcripts, in the folder of the module:
//
//	go test ./extract/rules -run Weights -args -speech FOLDER -write

package talk

// cookingBase is the log-odds of a document of which nothing was observed.
const cookingBase = %.3f

// cookingWeights are the terms of the traits in the log-odds.
var cookingWeights = Traits{
`, m.base)
	for j, name := range talk.TraitNames {
		fmt.Fprintf(&b, "%s: %.3f,\n", name, m.weights[j])
	}
	b.WriteString("}\n")
	source := check.Must(format.Source(b.Bytes()))(t)
	check.OK(t, os.WriteFile("../internal/talk/cooking.go", source, 0o600))
	b.Reset()
	for i, stem := range slices.Sorted(maps.Keys(m.stems)) {
		fmt.Fprintf(&b, "%s:%.2f%c", stem, m.weights[m.stems[stem]], " \n"[one(i%12 == 11)])
	}
	check.OK(t, os.WriteFile("../internal/talk/stems.txt", append(bytes.TrimSpace(b.Bytes()), '\n'), 0o600))
}

// Of texts that are judged by the weights of the others, few are judged wrongly.
func TestCrossValidation(t *testing.T) {
	t.Parallel()
	texts, said := observe(t), speech(t)
	plain := strings.Count(file(t, "train.txt"), "\n## ")
	refused, cooking, taken, other := 0, 0, 0, 0
	for left := range 5 {
		others := slices.Clone(said)
		for i := range texts {
			if i%plain%5 != left { // a text as it is and with small talk are in one
				others = append(others, texts[i])
			}
		}
		m := fitTexts(others, smallTalk(t))
		for i := left; i < plain; i += 5 {
			switch p := m.cooking(&texts[i]); {
			case texts[i].Cooking:
				cooking++
				refused += one(p < talk.Refused)
			default:
				other++
				taken += one(p >= talk.Refused)
			}
		}
	}
	t.Logf("of %d with cooking %d are refused, of %d others %d are taken", cooking, refused, other, taken)
	check.That(t, refused*20 <= cooking && taken*5 <= 2*other, "too many are judged wrongly")
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
