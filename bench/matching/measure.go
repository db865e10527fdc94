package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/expediter-io/expediter/services/enricher/match"
)

// pairScore is how one set of fields did on one file of pairs.
type pairScore struct {
	counts

	File      string  `json:"file"`
	Fields    string  `json:"fields"`
	Pairs     int     `json:"pairs"`
	Matches   int     `json:"matches"`
	Precision float64 `json:"precision"`
	Recall    float64 `json:"recall"`
	F1        float64 `json:"f1"`
	// Abstained are the pairs of either kind that came out AMBIGUOUS.
	AbstainedSame  int `json:"abstained_same"`
	AbstainedOther int `json:"abstained_other"`
	// F1Half counts a score of 0.5 and more as a match.
	F1Half float64 `json:"f1_at_half"`
	// LogLoss is the mean surprise at the labels, in nats.
	LogLoss float64 `json:"log_loss"`
}

// timing is what comparing costs.
type timing struct {
	PreparePerPlace float64 `json:"prepare_us_per_place"`
	ComparePerPair  float64 `json:"compare_us_per_pair"`
	Pairs           int     `json:"pairs"`
}

func measure(p *printer, dir string) (report, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return report{}, fmt.Errorf("look for pairs: %w", err)
	}
	if len(files) == 0 {
		p.linef("no *.jsonl in %s: skipped (give --data DIR)", dir)
		return report{OK: true, Skipped: true}, nil
	}
	r := report{OK: true, Model: match.ModelVersion}
	p.linef("model %s, FOUND from a score of %.2f, NOT_FOUND below %.2f, AMBIGUOUS between",
		match.ModelVersion, match.FoundScore, match.NotFoundScore)
	var truth []labelled
	for _, f := range files {
		pairs, err := readPairs(f)
		if err != nil {
			return report{}, err
		}
		truth = append(truth, pairs...)
		r.Pairs = append(r.Pairs, scoreFile(p, filepath.Base(f), pairs)...)
	}
	left, errLeft := readTable(filepath.Join(dir, "fodors.csv"))
	right, errRight := readTable(filepath.Join(dir, "zagats.csv"))
	switch err := errors.Join(errLeft, errRight); {
	case errors.Is(err, fs.ErrNotExist) || os.IsNotExist(err):
		p.linef("\nno tables to link in %s", dir)
		return r, nil
	case err != nil:
		return report{}, err
	}
	r.Tables, r.Timing = linkTables(p, left, right, truth)
	return r, nil
}

func scoreFile(p *printer, name string, pairs []labelled) []pairScore {
	note := ""
	if strings.Contains(name, "train") {
		note = " (the weights were fitted on these)"
	}
	p.linef("\n%s%s", name, note)
	p.linef("  %-24s %6s %7s %9s %7s %7s   %s", "fields", "pairs", "matches", "precision", "recall", "F1",
		"wrong/missed, abstained on matches/others, F1 at 0.5, log-loss")
	out := make([]pairScore, 0, len(fieldSets))
	for _, f := range fieldSets {
		s := scorePairs(p, f, pairs)
		s.File = name
		out = append(out, s)
		p.linef("  %-24s %6d %7d %9.3f %7.3f %7.3f   %d/%d, %d/%d, %.3f, %.3f", f.name, s.Pairs, s.Matches, s.Precision, s.Recall, s.F1,
			s.Wrong, s.Missed, s.AbstainedSame, s.AbstainedOther, s.F1Half, s.LogLoss)
	}
	return out
}

func scorePairs(p *printer, f fieldSet, pairs []labelled) pairScore {
	s := pairScore{Fields: f.name, Pairs: len(pairs)}
	var half counts
	for _, l := range pairs {
		a, b := f.only(l.left), f.only(l.right)
		d := match.Best(a, []match.Place{b})
		s.decide(p, d, l.same, a, b)
		half.add(d.Score >= 0.5, l.same)
		chance := d.Score
		if l.same {
			s.Matches++
		} else {
			chance = 1 - d.Score
		}
		s.LogLoss -= math.Log(max(chance, 1e-6)) / float64(len(pairs))
	}
	s.Precision, s.Recall, s.F1, s.F1Half = s.precision(), s.recall(), s.f1(), half.f1()
	return s
}

func (s *pairScore) decide(p *printer, d match.Decision, same bool, a, b match.Place) {
	s.add(d.Outcome == match.Found, same)
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

func (c *counts) add(found, same bool) {
	switch {
	case found && same:
		c.Right++
	case found:
		c.Wrong++
	case same:
		c.Missed++
	}
}

func microseconds(d time.Duration, n int) float64 {
	return float64(d.Nanoseconds()) / 1e3 / float64(max(n, 1))
}
