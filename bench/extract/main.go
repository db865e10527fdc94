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
	"encoding/csv"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/bench/internal/rig"
)

const (
	defaultData  = "../../shared/data/cooking"
	talksFolder  = "../services/importer/extract/rules/testdata/talks/"
	defaultTalks = talksFolder + "heldout.txt," + talksFolder + "unseen.txt,../../shared/data/captions"
)

// report is the last line of the output, as JSON.
type report struct {
	OK         bool        `json:"ok"`
	Skipped    bool        `json:"skipped,omitempty"`
	Machine    rig.Machine `json:"machine"`
	Extractor  string      `json:"extractor,omitempty"`
	Train      *split      `json:"train,omitempty"`
	Validation *split      `json:"validation,omitempty"`

	// Talks has, by source, the numbers of texts without cooking that became recipes, and of other texts that did not.
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
	p := &printer{}
	var data, talks string
	return rig.Text("extract", args, out, true, func(flags *flag.FlagSet) {
		flags.StringVar(&data, "data", defaultData, "`DIR` of the marked transcripts")
		flags.BoolVar(&p.videos, "videos", false, "print a line for each video")
		flags.BoolVar(&p.errors, "errors", false, "list every sentence that was taken or left wrongly")
		flags.StringVar(&talks, "talks", defaultTalks, "`PATHS`, with commas, of texts and captions of which it is known whether somebody cooks")
	}, func(out *rig.Printer) (any, error) {
		p.Printer = out
		result, err := measure(p, data)
		result.Machine = rig.ThisMachine()
		if err != nil {
			return nil, err
		}
		if result.Talks, err = measureTalks(p, strings.Split(talks, ",")); err != nil {
			return nil, err
		}
		result.Pages, err = measurePages(p)
		return result, err
	})
}

// printer writes lines, with those that it is to list.
type printer struct {
	*rig.Printer

	videos, errors bool
}

// row is a sentence with the marks that people made in it.
type row struct {
	start, end   float64
	text         string
	step         bool
	objects      string
	times        string
	temperatures string
}

// video is a transcript.
type video struct {
	title, address string
	train          bool
	rows           []row
}

// lastRow is the duration of the last sentence of a video, in seconds.
const lastRow = 5

func load(dir string) ([]video, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.csv"))
	if err != nil {
		return nil, fmt.Errorf("look for transcripts: %w", err)
	}
	var out []video
	for _, path := range files {
		videos, err := loadFile(path)
		if err != nil {
			return nil, err
		}
		out = append(out, videos...)
	}
	return out, nil
}

func loadFile(path string) ([]video, error) {
	f, err := os.Open(path) //nolint:gosec // the path is the caller's
	if err != nil {
		return nil, fmt.Errorf("read transcripts: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	in := csv.NewReader(f)
	in.FieldsPerRecord, in.LazyQuotes = -1, true
	rows, err := in.ReadAll()
	if err != nil || len(rows) == 0 {
		return nil, fmt.Errorf("read transcripts of %s: %d rows: %w", path, len(rows), err)
	}
	column := columns(rows[0])
	var out []video
	dishes := map[string]int{}
	for _, fields := range rows[1:] {
		get := func(name string) string {
			if i, ok := column[name]; ok && i < len(fields) {
				return strings.TrimSpace(fields[i])
			}
			return ""
		}
		if len(out) == 0 || out[len(out)-1].address != get("videourl") {
			dish := get("title")
			if _, ok := dishes[dish]; !ok {
				dishes[dish] = len(dishes)
			}
			out = append(out, video{title: dish, address: get("videourl"), train: dishes[dish]%2 == 0})
		}
		v := &out[len(out)-1]
		r := row{
			start: seconds(get("timestamp")), text: get("sentence"), step: get("isusefulsentence") == "1",
			objects: get("object"), times: get("time"), temperatures: get("temperature"),
		}
		r.end = r.start + lastRow
		if n := len(v.rows); n > 0 {
			r.start = max(r.start, v.rows[n-1].start)
			v.rows[n-1].end = r.start
			r.end = r.start + lastRow
		}
		v.rows = append(v.rows, r)
	}
	return out, nil
}

// columns finds columns by the letters with which their names begin: one is called "Object(directly related with Verb)".
func columns(header []string) map[string]int {
	out := map[string]int{}
	for i, name := range header {
		name, _, _ = strings.Cut(strings.ToLower(name), "(")
		out[strings.TrimSpace(name)] = i
	}
	return out
}

// seconds reads "01:30.5" and "0:01:30".
func seconds(text string) float64 {
	total := 0.0
	for part := range strings.SplitSeq(text, ":") {
		x, err := strconv.ParseFloat(part, 64)
		if err != nil {
			return total
		}
		total = total*60 + x
	}
	return total
}
