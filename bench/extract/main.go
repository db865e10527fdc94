// Command extract scores the importer's rules extractor on transcripts in which people marked the steps.
//
//	go -C bench run ./extract [--data DIR] [--json]
//
// DIR holds *.csv files with a row for each sentence of a video and the columns VideoUrl, Title, TimeStamp, Sentence,
// IsUsefulSentence (1 for a step), Object..., Time and Temperature. Without --data it looks beside the project, and says
// that it skips when there is nothing.
//
// Only the sentences and the title are given to the extractor. Dishes are counted from 0 in the order of the file; the weights
// were fitted on the videos of those with even numbers ("train"), never on the others ("validation").
package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/services/importer/caption"
	"github.com/expediter-io/expediter/services/importer/extract"
	"github.com/expediter-io/expediter/services/importer/extract/rules"
	"github.com/expediter-io/expediter/services/importer/recipe"
)

// report is the last line under --json.
type report struct {
	Machine    rig.Machine `json:"machine"`
	Train      *split      `json:"train,omitempty"`
	Validation *split      `json:"validation,omitempty"`
}

// split has the results for one half of the videos.
type split struct {
	Videos    int `json:"videos"`
	Sentences int `json:"sentences"`
	NoRecipe  int `json:"no_recipe"`
	// Steps counts sentences: right when marked and inside the time of a step of the recipe.
	Steps        rig.Score `json:"steps"`
	Ingredients  rig.Score `json:"ingredients"`
	Times        rig.Score `json:"times"`
	Temperatures rig.Score `json:"temperatures"`
}

func main() {
	var data string
	rig.Text("extract", func(flags *flag.FlagSet) {
		flags.StringVar(&data, "data", "../../shared/data/cooking", "`DIR` of the marked transcripts")
	}, func(text *strings.Builder) (any, error) { return score(text, data) })
}

// score scores the extractor on both halves of the transcripts in a folder.
func score(text *strings.Builder, dir string) (r report, err error) {
	r.Machine = rig.ThisMachine()
	videos, err := load(dir)
	if err != nil || len(videos) == 0 {
		fmt.Fprintf(text, "no *.csv in %s: skipped (give --data DIR)\n", dir)
		return r, err
	}
	if r.Train, err = measure(text, "train", videos, true); err != nil {
		return r, err
	}
	r.Validation, err = measure(text, "validation", videos, false)
	return r, err
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
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read transcripts: %w", err)
	}
	defer f.Close()
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

// measure scores one half of the videos and prints its table.
func measure(p *strings.Builder, name string, videos []video, train bool) (*split, error) {
	var out split
	var steps, ingredients, times, temperatures rig.Counts
	for i := range videos {
		v := &videos[i]
		if v.train != train {
			continue
		}
		r, err := rules.New().Extract(context.Background(), v.input())
		if errors.Is(err, extract.ErrNoRecipe) {
			out.NoRecipe++
		} else if err != nil {
			return nil, fmt.Errorf("extract %s: %w", v.address, err)
		}
		out.Videos++
		out.Sentences += len(v.rows)
		for _, row := range v.rows {
			steps.Add(len(stepsIn(row, &r)) > 0, row.step)
			times.Sum(judgeTimes(row, &r))
			temperatures.Sum(judgeTemperatures(row, &r))
		}
		ingredients.Sum(judgeObjects(v, &r))
	}
	out.Steps, out.Ingredients, out.Times, out.Temperatures = steps.Score(), ingredients.Score(), times.Score(), temperatures.Score()
	fmt.Fprintf(p, "\n%s: %d videos, %d sentences; %d without a recipe\n", name, out.Videos, out.Sentences, out.NoRecipe)
	fmt.Fprintf(p, "  %-42s %9s %9s %9s   %s\n", "", "precision", "recall", "F1", "right, wrong, missed")
	line := func(what string, c rig.Score) {
		fmt.Fprintf(p, "  %-42s %9.3f %9.3f %9.3f   %d, %d, %d\n", what, c.Precision, c.Recall, c.F1, c.Right, c.Wrong, c.Missed)
	}
	line("steps: sentences in the time of a step", out.Steps)
	line("ingredients: against the marked objects", out.Ingredients)
	line("times, in marked sentences", out.Times)
	line("temperatures, in marked sentences", out.Temperatures)
	return &out, nil
}

func (v *video) input() extract.Input {
	in := extract.Input{Title: v.title, Language: "en", Source: recipe.Source{Type: "youtube", Ref: v.address}}
	for _, r := range v.rows {
		in.Segments = append(in.Segments, caption.Segment{Start: duration(r.start), Dur: duration(r.end - r.start), Text: r.text})
	}
	return in
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// slack forgives rounding to milliseconds.
const slack = 0.002

func stepsIn(r row, made *recipe.Recipe) []*recipe.Step {
	var out []*recipe.Step
	for i := range made.Steps {
		s := &made.Steps[i]
		if s.Timestamp != nil && s.End != nil && *s.Timestamp < r.end-slack && *s.End > r.start+slack {
			out = append(out, s)
		}
	}
	return out
}

// things are objects of cooks that nobody eats, and words that stand for a food.
var things = set(`heat pan lid pot oven bowl spatula everything it them that this mixture mix ingredient ingredients surface
edge edges center bottom side sides hole cover plate temperature all rest stove dish pieces piece layer inside top liquid contents foil`)

func set(list string) map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		out[w] = true
	}
	return out
}

var separators = regexp.MustCompile(`[;,/&；，、]|\band\b|\bor\b|\bwith\b`)

// objects returns the foods that people marked as objects of an action, each once, but not the dish itself.
func (v *video) objects() [][]string {
	var out [][]string
	for _, r := range v.rows {
		if !r.step {
			continue
		}
		for _, part := range separators.Split(strings.ToLower(r.objects), -1) {
			name := nameOf(part)
			if len(name) == 0 || things[name[len(name)-1]] || strings.Contains(strings.ToLower(v.title), strings.Join(name, " ")) {
				continue
			}
			if !has(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

var letters = regexp.MustCompile(`[\p{L}]+`)

// nameOf returns the words of a name in the singular. In "center of dough" only the dough counts.
func nameOf(text string) []string {
	if _, after, ok := strings.Cut(text, " of "); ok {
		text = after
	}
	var out []string
	for _, w := range letters.FindAllString(strings.ToLower(text), -1) {
		switch {
		case w == "the" || w == "a" || w == "some" || w == "of":
			continue
		case strings.HasSuffix(w, "ies") && len(w) > 4:
			w = w[:len(w)-3] + "y"
		case strings.HasSuffix(w, "oes") || strings.HasSuffix(w, "shes") || strings.HasSuffix(w, "ches"):
			w = w[:len(w)-2]
		case strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && len(w) > 3:
			w = w[:len(w)-1]
		}
		out = append(out, w)
	}
	return out
}

// has reports whether one of the names is a part of the name, or the name of it: "red onion" and "onion".
func has(names [][]string, name []string) bool {
	within := func(short, long []string) bool {
		return !slices.ContainsFunc(short, func(w string) bool { return !slices.Contains(long, w) })
	}
	return slices.ContainsFunc(names, func(n []string) bool { return within(n, name) || within(name, n) })
}

// judgeObjects compares the ingredients with the marked objects. One that is not a marked object counts as wrong, although it
// may be an ingredient: people marked objects in the sentences of steps only.
func judgeObjects(v *video, r *recipe.Recipe) (c rig.Counts) {
	marked := v.objects()
	var names [][]string
	for i := range r.Ingredients {
		name := nameOf(r.Ingredients[i].Item)
		if len(name) == 0 || has(names, name) {
			continue
		}
		names = append(names, name)
		if !has(marked, name) {
			c.Wrong++
		}
	}
	for _, name := range marked {
		c.Add(has(names, name), true)
	}
	return c
}

var numberWords = strings.NewReplacer(
	"half an hour", "30 minutes", "half hour", "30 minutes", "an hour and a half", "90 minutes", "an hour", "1 hours", "a minute", "1 minutes",
	"a couple of", "2", "a couple", "2", "couple", "2", " to ", "-", " or ", "-", "–", "-",
	"one hundred", "100", "two hundred", "200", "eleven", "11", "fifteen", "15", "eighteen", "18", "twenty five", "25", "thirty five", "35", "forty five", "45", "twenty", "20",
	"thirty", "30", "forty", "40", "fifty", "50", "sixty", "60", "ten", "10", "twelve", "12", "eight", "8", "seven", "7", "six", "6", "five", "5",
	"four", "4", "three", "3", "two", "2", "one", "1",
)

var span = regexp.MustCompile(`(\d+(?:\.\d+)?)(?:\s*-\s*(\d+(?:\.\d+)?))?\s*(second|sec|minute|min|hour|hr|h\b)`)

// bounds reads the seconds of a marked time; 0, 0 when it names no number.
func bounds(text string) (low, high int) {
	m := span.FindStringSubmatch(numberWords.Replace(strings.ToLower(text)))
	if m == nil {
		return 0, 0
	}
	unit := map[byte]float64{'s': 1, 'm': 60, 'h': 3600}[m[3][0]]
	a, _ := strconv.ParseFloat(m[1], 64) // the pattern matched digits
	b := a
	if m[2] != "" {
		b, _ = strconv.ParseFloat(m[2], 64) // the pattern matched digits
	}
	return int(a * unit), int(b * unit)
}

func parts(text string) []string {
	all := regexp.MustCompile(`[;；]`).Split(text, -1)
	return slices.DeleteFunc(all, func(part string) bool { return strings.TrimSpace(part) == "" })
}

// judgeTimes compares the times that people marked in a sentence with those of the steps in which it lies. Signs such as
// "until golden" are left out: people marked none.
func judgeTimes(r row, made *recipe.Recipe) rig.Counts {
	var found [][2]int
	for _, s := range stepsIn(r, made) {
		for _, d := range s.Times {
			if d.Until == "" && said(r.text, d.Raw) {
				found = append(found, [2]int{d.MinSec, d.MaxSec})
			}
		}
	}
	var marked [][2]int
	for _, part := range parts(r.times) {
		low, high := bounds(part)
		marked = append(marked, [2]int{low, high})
	}
	return compare(r, found, marked, func(a, b [2]int) bool { return a == b })
}

// judgeTemperatures does the same for temperatures: degrees by their number, levels by their words.
func judgeTemperatures(r row, made *recipe.Recipe) rig.Counts {
	var found, marked []string
	for _, s := range stepsIn(r, made) {
		for _, t := range s.Temperatures {
			if said(r.text, t.Raw) {
				found = append(found, t.Raw)
			}
		}
	}
	marked = parts(r.temperatures)
	return compare(r, found, marked, func(a, b string) bool {
		return degrees(a) != "" && degrees(a) == degrees(b) || level(a) != "" && level(a) == level(b)
	})
}

var figures = regexp.MustCompile(`\d{2,3}`)

// degrees returns the number of a temperature in digits, however it is written: "350", "three hundred fifty", "three fifty".
func degrees(text string) string {
	text = strings.ToLower(text)
	if found := figures.FindString(text); found != "" {
		return found
	}
	sum, hundreds, last := 0, 0, 0
	for _, w := range letters.FindAllString(text, -1) {
		x, known := spelled[w]
		switch {
		case w == "hundred" && last > 0:
			hundreds, last = last, 0
		case !known:
			continue
		case last > 0 && last < 10 && x >= 10: // "three fifty"
			hundreds, last = last, x
		default:
			last += x
		}
		sum = 100*hundreds + last
	}
	if sum == 0 {
		return ""
	}
	return strconv.Itoa(sum)
}

var spelled = map[string]int{
	"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "fifteen": 15,
	"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}

var levels = regexp.MustCompile(`very|low|medium|high|simmer|boil`)

func level(text string) string {
	return strings.TrimPrefix(strings.Join(levels.FindAllString(strings.ToLower(text), -1), " "), "very ")
}

// compare pairs the findings in a sentence with the marks. Findings in an unmarked sentence are not judged.
func compare[T any](r row, found, marked []T, equal func(a, b T) bool) rig.Counts {
	var c rig.Counts
	if !r.step {
		return c
	}
	used := make([]bool, len(found))
	for _, m := range marked {
		right := false
		for i, f := range found {
			if !used[i] && !right && equal(f, m) {
				used[i], right = true, true
			}
		}
		c.Add(right, true)
	}
	for _, u := range used {
		if !u {
			c.Wrong++
		}
	}
	return c
}

// said reports whether a mark of a step comes from this sentence and not from another of the same step.
func said(text, raw string) bool {
	squeeze := func(s string) string { return strings.Join(letters2.FindAllString(strings.ToLower(s), -1), " ") }
	return strings.Contains(squeeze(text), squeeze(raw))
}

var letters2 = regexp.MustCompile(`[\p{L}\d]+`)
