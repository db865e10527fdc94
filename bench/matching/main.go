// Command matching measures the place matcher on labelled pairs.
//
//	go -C bench run ./matching [--data DIR] [--errors] [--json]
//
// DIR holds pairs-*.jsonl, one {"left":{...},"right":{...},"label":0|1} a line. Without --data it looks beside the
// project, and says that it skips when there is nothing.
// Records have a name and may have an address, a city, a telephone number, a latitude and a longitude, under the usual
// column names. Every pairs file is read the same way: pairs-valid.jsonl is for reporting, the weights were fitted on
// pairs-train.jsonl.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/expediter-io/expediter/bench/internal/rig"
	"github.com/expediter-io/expediter/services/enricher/match"
)

const defaultData = "../../shared/data/places"

// report is the last line under --json.
type report struct {
	Machine rig.Machine `json:"machine"`
	Model   string      `json:"model,omitempty"`
	Pairs   []pairScore `json:"pairs,omitempty"`
}

func main() {
	p := &printer{}
	var data string
	rig.Text("matching", func(flags *flag.FlagSet) {
		flags.StringVar(&data, "data", defaultData, "`DIR` of the labelled places")
		flags.BoolVar(&p.list, "errors", false, "list every wrong, missed and undecided pair with its evidence")
	}, func(text *strings.Builder) (any, error) {
		p.Builder = text
		return measure(p, data)
	})
}

// fieldSet is the fields that a comparison may use.
type fieldSet struct {
	name           string
	address, phone bool
	location       bool
}

var fieldSets = []fieldSet{
	{name: "name+address+city+phone", address: true, phone: true, location: true},
	{name: "name+address+city", address: true, location: true},
	{name: "name+city"},
}

func (f fieldSet) only(p match.Place) match.Place {
	if !f.address {
		p.Address = ""
	}
	if !f.phone {
		p.Phone = ""
	}
	if !f.location {
		p.Location = nil
	}
	return p
}

// printer writes lines, and the wrong pairs among them if it is to list them.
type printer struct {
	*strings.Builder

	list bool
}

// mistake lists one pair under --errors.
func (p *printer) mistake(what string, a, b match.Place, e match.Evidence) {
	if p.list {
		fmt.Fprintf(p, "    %-9s %s  #  %s\n              %s\n", what, oneLine(a), oneLine(b), e)
	}
}

func oneLine(p match.Place) string {
	return fmt.Sprintf("%s | %s | %s | %s", p.Name, p.Address, p.City, p.Phone)
}

// labelled is a pair of places with the label whether they are one place.
type labelled struct {
	left, right match.Place
	same        bool
}

// columns are the names under which sources keep a field.
var columns = map[string]string{
	"name": "name", "title": "name",
	"addr": "address", "address": "address", "street": "address", "full_address": "address",
	"city": "city", "locality": "city", "town": "city",
	"phone": "phone", "tel": "phone", "telephone": "phone", "phone_number": "phone",
	"lat": "lat", "latitude": "lat", "lng": "lng", "lon": "lng", "long": "lng", "longitude": "lng",
}

// placeOf makes a place of a record with any known column names.
func placeOf(record map[string]any) match.Place {
	f := map[string]string{}
	for k, v := range record {
		if to, ok := columns[strings.ToLower(strings.TrimSpace(k))]; ok && v != nil && v != "" {
			f[to] = fmt.Sprint(v)
		}
	}
	place := match.Place{Name: f["name"], Address: f["address"], City: f["city"], Phone: f["phone"]}
	lat, errLat := strconv.ParseFloat(f["lat"], 64)
	lng, errLng := strconv.ParseFloat(f["lng"], 64)
	if errLat == nil && errLng == nil {
		place.Location = &match.Point{Lat: lat, Lng: lng}
	}
	return place
}

func readPairs(path string) ([]labelled, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read pairs: %w", err)
	}
	defer f.Close()
	var out []labelled
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var p struct {
			Label json.Number    `json:"label"`
			Left  map[string]any `json:"left"`
			Right map[string]any `json:"right"`
		}
		decoder := json.NewDecoder(bytes.NewReader(s.Bytes()))
		decoder.UseNumber() // a telephone number is not a float
		if err := decoder.Decode(&p); err != nil {
			return nil, fmt.Errorf("read pair %d of %s: %w", len(out)+1, path, err)
		}
		out = append(out, labelled{left: placeOf(p.Left), right: placeOf(p.Right), same: p.Label == "1"})
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("read pairs: %w", err)
	}
	return out, nil
}

// pairScore has the results of one set of fields for one file of pairs.
type pairScore struct {
	rig.Score

	File    string `json:"file"`
	Fields  string `json:"fields"`
	Pairs   int    `json:"pairs"`
	Matches int    `json:"matches"`
	// Abstained are the numbers of pairs, of either label, with the result AMBIGUOUS.
	AbstainedSame  int `json:"abstained_same"`
	AbstainedOther int `json:"abstained_other"`
	// F1Half counts a score of 0.5 and more as a match.
	F1Half float64 `json:"f1_at_half"`
	// LogLoss is the mean surprise at the labels, in nats.
	LogLoss float64 `json:"log_loss"`
}

func measure(p *printer, dir string) (report, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return report{}, fmt.Errorf("look for pairs: %w", err)
	}
	if len(files) == 0 {
		fmt.Fprintf(p, "no *.jsonl in %s: skipped (give --data DIR)\n", dir)
		return report{}, nil
	}
	r := report{Machine: rig.ThisMachine(), Model: match.ModelVersion}
	fmt.Fprintf(p, "model %s, FOUND from a score of %.2f, NOT_FOUND below %.2f, AMBIGUOUS between\n",
		match.ModelVersion, match.FoundScore, match.NotFoundScore)
	for _, f := range files {
		pairs, err := readPairs(f)
		if err != nil {
			return report{}, err
		}
		r.Pairs = append(r.Pairs, scoreFile(p, filepath.Base(f), pairs)...)
	}
	return r, nil
}

func scoreFile(p *printer, name string, pairs []labelled) []pairScore {
	note := ""
	if strings.Contains(name, "train") {
		note = " (the weights were fitted on these)"
	}
	fmt.Fprintf(p, "\n%s%s\n", name, note)
	fmt.Fprintf(p, "  %-24s %6s %7s %9s %7s %7s   %s\n", "fields", "pairs", "matches", "precision", "recall", "F1",
		"wrong/missed, abstained on matches/others, F1 at 0.5, log-loss")
	out := make([]pairScore, 0, len(fieldSets))
	for _, f := range fieldSets {
		s := scorePairs(p, f, pairs)
		s.File = name
		out = append(out, s)
		fmt.Fprintf(p, "  %-24s %6d %7d %9.3f %7.3f %7.3f   %d/%d, %d/%d, %.3f, %.3f\n", f.name, s.Pairs, s.Matches, s.Precision, s.Recall, s.F1,
			s.Wrong, s.Missed, s.AbstainedSame, s.AbstainedOther, s.F1Half, s.LogLoss)
	}
	return out
}

func scorePairs(p *printer, f fieldSet, pairs []labelled) pairScore {
	s := pairScore{Fields: f.name, Pairs: len(pairs)}
	var all, half rig.Counts
	for _, l := range pairs {
		a, b := f.only(l.left), f.only(l.right)
		d := match.Best(a, []match.Place{b})
		all.Add(d.Outcome == match.Found, l.same)
		s.decide(p, d, l.same, a, b)
		half.Add(d.Score >= 0.5, l.same)
		chance := d.Score
		if l.same {
			s.Matches++
		} else {
			chance = 1 - d.Score
		}
		s.LogLoss -= math.Log(max(chance, 1e-6)) / float64(len(pairs))
	}
	s.Score, s.F1Half = all.Score(), half.Score().F1
	return s
}

func (s *pairScore) decide(p *printer, d match.Decision, same bool, a, b match.Place) {
	switch {
	case d.Outcome == match.Ambiguous && same:
		s.AbstainedSame++
		p.mistake("abstained", a, b, d.Evidence)
	case d.Outcome == match.Ambiguous:
		s.AbstainedOther++
		p.mistake("undecided", a, b, d.Evidence)
	case d.Outcome == match.Found && !same:
		p.mistake("wrong", a, b, d.Evidence)
	case d.Outcome == match.NotFound && same:
		p.mistake("missed", a, b, d.Evidence)
	}
}
