// Command extract scores the importer's rules extractor on transcripts in which people marked the steps.
//
//	go -C bench run ./extract [--data DIR] [--talks PATHS] [--videos] [--errors] [--write FILE] [--json=false]
//
// DIR holds *.csv files with a row for each sentence of a video and the columns VideoUrl, Title, TimeStamp, Sentence,
// IsUsefulSentence (1 for a step), Object..., Time and Temperature. Without --data it looks beside the project, and says
// that it skips when there is nothing. The last line is JSON.
//
// Only the sentences and the title are given to the extractor. Dishes are counted from 0 in the order of the file; the weights
// were fitted on the videos of those with even numbers ("train"), never on the others ("validation").
//
// PATHS are captions of talks in which nobody cooks, and texts in the form of the importer's extract/rules/testdata/talks, of
// which is counted how many become recipes. Pages with recipes are those of the importer's source/sourcetest.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

const (
	defaultData  = "../../shared/data/cooking"
	talksFolder  = "../services/importer/extract/rules/testdata/talks/"
	defaultTalks = talksFolder + "heldout.txt," + talksFolder + "unseen.txt,../../shared/data/captions"
)

// report is the last line.
type report struct {
	OK         bool   `json:"ok"`
	Skipped    bool   `json:"skipped,omitempty"`
	Extractor  string `json:"extractor,omitempty"`
	Train      *split `json:"train,omitempty"`
	Validation *split `json:"validation,omitempty"`

	// Talks is how often texts in which nobody cooks became recipes, and others did not, by their source.
	Talks map[string]*verdicts `json:"talks,omitempty"`

	Pages *pages `json:"pages,omitempty"`
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "extract:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("extract", flag.ContinueOnError)
	data := flags.String("data", defaultData, "`DIR` of the marked transcripts")
	videos := flags.Bool("videos", false, "print a line for each video")
	list := flags.Bool("errors", false, "list every sentence that was taken or left wrongly")
	talks := flags.String("talks", defaultTalks, "`PATHS`, with commas, of texts and captions of which it is known whether somebody cooks")
	asJSON := flags.Bool("json", true, "end with one line of JSON")
	write := flags.String("write", "", "write the report into `FILE`, a document with a place for it")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("parse flags: %w", err)
	}
	page, err := rig.OpenPage("extract", *write)
	if err != nil {
		return err
	}
	p := &printer{out: io.MultiWriter(out, page), videos: *videos, errors: *list}
	result, err := measure(p, *data)
	if err != nil {
		return err
	}
	if result.Talks, err = measureTalks(p, strings.Split(*talks, ",")); err != nil {
		return err
	}
	if result.Pages, err = measurePages(p); err != nil {
		return err
	}
	if err := page.SaveText(args); err != nil {
		return err
	}
	if *asJSON {
		line, err := json.Marshal(result)
		if err != nil {
			return fmt.Errorf("encode the result: %w", err)
		}
		p.linef("%s", line)
	}
	return p.err
}

// printer writes lines and keeps the first error.
type printer struct {
	out            io.Writer
	videos, errors bool
	err            error
}

func (p *printer) linef(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.out, format+"\n", args...)
	}
}
